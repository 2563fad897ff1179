"""Series and records with a known truth: autocorrelated values, queues, runs that differ."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter

from tuner.figures.samples import Window
from tuner.records import RequestRecord

Floats = npt.NDArray[np.float64]


def ar1(rng: np.random.Generator, rows: int, n: int, phi: float) -> Floats:
    """rows series of n standard normals, each correlated phi with the one before."""
    noise = rng.normal(size=(rows, n + 200)) * math.sqrt(1 - phi * phi)
    series: Floats = lfilter([1], [1, -phi], noise, axis=1)[:, 200:]
    return series


def queue_waits(arrivals_s: Floats, service_s: Floats) -> Floats:
    """Time in a single-server queue (first come, first served), last axis in order of arrival."""
    gaps = np.diff(arrivals_s, axis=-1)
    waits = np.zeros_like(service_s)
    for i in range(1, service_s.shape[-1]):
        waits[..., i] = np.maximum(
            0.0, waits[..., i - 1] + service_s[..., i - 1] - gaps[..., i - 1]
        )
    return waits


def sojourns(rng: np.random.Generator, rows: int, n: int, load: float) -> Floats:
    """Times in an M/M/1 queue in steady state; exponential with mean load / (1 - load)."""
    arrivals = np.cumsum(rng.exponential(1, (rows, n + 500)), axis=1)
    service = rng.exponential(load, (rows, n + 500))
    times: Floats = (queue_waits(arrivals, service) + service)[:, 500:]
    return times


def lock_step(
    rng: np.random.Generator, rows: int, n: int, *, wave: float = 0.08, own: float = 0.02
) -> Floats:
    """Logs of latencies of eight clients that fell in step: waves nearly identical, plus noise."""
    waves = wave * rng.normal(size=(rows, -(-n // 8), 1))
    series: Floats = (waves + own * rng.normal(size=(rows, waves.shape[1], 8))).reshape(rows, -1)
    return series[:, :n]


def bursty_times(rng: np.random.Generator, span_s: float) -> Floats:
    """Events at 80/s and 10/s in turn, each for about a second: 45/s in the long run."""
    at_s, fast, times = 0.0, bool(rng.random() < 0.5), []
    while at_s < span_s:
        ends_s = at_s + rng.exponential(1.0)
        times.append(rng.uniform(at_s, ends_s, rng.poisson((80 if fast else 10) * (ends_s - at_s))))
        at_s, fast = ends_s, not fast
    return np.sort(np.concatenate(times))


def request(
    index: int, at_s: float, ttft_s: float, *, output: int = 4, gap_s: float = 0.01
) -> RequestRecord:
    times = [at_s + ttft_s + i * gap_s for i in range(output)]
    return RequestRecord(
        index, at_s, sent_s=at_s, first_byte_s=times[0], first_token_s=times[0],
        first_answer_token_s=times[0], end_s=times[-1], chunk_times_s=times,
        chunk_tokens=[1] * output, wanted_prompt_tokens=8, wanted_output_tokens=output,
        prompt_tokens=8, output_tokens=output, http_status=200, state="ok",
    )  # fmt: skip


def run_of(
    at_s: Floats, ttft_s: Floats, first_index: int = 0
) -> tuple[list[RequestRecord], Window]:
    """A run of requests at these times; its window ends after the last of them."""
    records = [
        request(first_index + i, float(at), float(took))
        for i, (at, took) in enumerate(zip(at_s, ttft_s, strict=True))
    ]
    return records, (0.0, float(at_s[-1]) + 1e-6)
