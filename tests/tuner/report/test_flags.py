"""Flags that reproduce a configuration, and text without invention."""

from __future__ import annotations

import math

from tuner.report.flags import commands, config_text
from tuner.report.optimize import estimate_text, gain_text
from tuner.search.decide import Decision
from tuner.search.objective import Objective
from tuner.search.pool import Pooled
from tuner.slo import Verdict
from tuner.stats import Comparison, Estimate

CONFIG = {"max_num_seqs": 24, "chunk_size": 512, "gpu_memory_utilization": 0.85}


def test_both_engines_flags() -> None:
    lines = commands(CONFIG, model="models/a b")
    assert lines["slotune"] == (
        "engine serve --model 'models/a b' --max-num-seqs 24 --chunk-size 512 "
        "--gpu-memory-utilization 0.85"
    )
    assert lines["vllm serve"] == (
        "vllm serve MODEL --max-num-seqs 24 --max-num-batched-tokens 512 "
        "--gpu-memory-utilization 0.85"
    )
    assert config_text(CONFIG) == "max_num_seqs=24 chunk_size=512 gpu_memory_utilization=0.85"


def test_engine_flags_are_what_the_engine_reads() -> None:
    from engine.cli import _parser, from_arguments

    words = commands(CONFIG)["slotune"].split()[1:]
    config, _ = from_arguments(_parser().parse_args(words))
    assert {name: getattr(config, name) for name in CONFIG} == CONFIG


def test_estimates_carry_interval_and_samples() -> None:
    assert estimate_text(Estimate(0.31, 0.28, math.inf, 41, "s", "m")) == "310 ms [280 ms, ∞] n=41"
    assert estimate_text(Estimate.missing("s", "none")) == "–"


def gain(ratio: float, low: float, high: float, n: int, outcome: str) -> str:
    nothing = Pooled(1, {}, Verdict("pass", ()))
    comparison = Comparison(ratio, low, high, n, outcome, "m")  # type: ignore[arg-type]
    return gain_text(Decision("improved", "", {}, nothing, gain=comparison), Objective())


def test_a_gain_carries_its_ground() -> None:
    assert gain(1.31, 1.22, 1.41, 3, "improved").startswith(
        "output_tps 1.31 × baseline (95 % interval 1.22 to 1.41 from 3 interleaved pairs"
    )
    assert gain(1.31, 1.22, 1.41, 3, "improved").endswith(": confirmed")
    assert gain(1.1, 0.9, 1.3, 3, "inconclusive").endswith(": not confirmed")


def test_one_pair_claims_nothing() -> None:
    assert "no gain or loss is claimed" in gain(2.0, 0.0, math.inf, 1, "inconclusive")
