"""Estimates with intervals: quantiles, shares, rates, and the comparison of two runs."""

from tuner.stats.compare import Comparison, compare_rates
from tuner.stats.estimate import CONFIDENCE, Estimate
from tuner.stats.quantiles import exceedance_test, quantile_estimate, samples_needed
from tuner.stats.rates import mean_estimate, mean_of_runs, rate_estimate, share_estimate
from tuner.stats.runs import RunNoise, run_noise, run_noises

__all__ = [
    "CONFIDENCE", "Comparison", "Estimate", "RunNoise", "compare_rates", "exceedance_test",
    "mean_estimate", "mean_of_runs", "quantile_estimate", "rate_estimate", "run_noise",
    "run_noises", "samples_needed", "share_estimate",
]  # fmt: skip
