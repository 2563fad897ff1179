"""The one table of thresholds: value, unit, where it comes from; a TOML file overrides values.

Invariant: the tree holds no number of its own. Sources are given per row, "practice" being a
figure operators of continuous-batching servers use, to be overridden where a fleet knows better.
"""

from __future__ import annotations

import difflib
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuner.documents import read_document
from tuner.errors import UserError


@dataclass(frozen=True, slots=True)
class Threshold:
    name: str
    value: float
    unit: str
    source: str


_PRACTICE = "practice"
_PREEMPTION = "vLLM's optimisation guide: preemptions mean too little KV; one in 100 is felt at p99"
_LEAST = "with less on the fullest replica a ratio tells nothing"
_SIGNAL = "statistics: below it, one observation moves the share by more than the threshold"

_ROWS: tuple[tuple[str, float, str, str], ...] = (
    ("age_intervals", 3, "scrape intervals", "Prometheus: two missed scrapes can be chance"),
    ("plausible_ratio", 1.1, "×", "queue and prefill are parts of e2e; 10 % for clock reads"),
    ("unlike_peaks", 1.1, "×", "10 % between two measurements of one device"),
    ("stall_s", 60, "s", _PRACTICE),
    ("stall_warning_s", 10, "s", "one long prefill can keep a small server silent for seconds"),
    ("error_share_warning", 0.01, "share", _PRACTICE),
    ("error_share_critical", 0.05, "share", _PRACTICE),
    ("abort_share_warning", 0.10, "share", _PRACTICE),
    ("rejections_warning", 1, "requests", "each rejection is a 503 a client saw"),
    ("length_share_warning", 0.20, "share", _PRACTICE),
    ("own_stop_share", 0.01, "share", "below it no answer ends by itself: lengths are prescribed"),
    ("at_own_limit", 0.99, "answer / max_tokens", "sums of integers, equal when all reach it"),
    ("queue_share_warning", 0.2, "share of queue + prefill", _PRACTICE),
    ("queue_share_critical", 0.5, "share of queue + prefill", "more than half of TTFT is waiting"),
    ("kv_full", 0.95, "share of KV blocks", "admission fails before 1.0: blocks come whole"),
    ("kv_free_enough", 0.9, "share of KV blocks", _PRACTICE),
    ("kv_low", 0.6, "share of KV blocks", _PRACTICE),
    ("at_cap", 0.95, "of max_num_seqs", _PRACTICE),
    ("decode_share", 0.8, "share of inference time", "who decodes takes a place, not the budget"),
    ("at_budget", 0.9, "of chunk_size", _PRACTICE),
    ("binding_share_warning", 0.2, "share of steps", "the engine's own count per step"),
    ("binding_share_critical", 0.5, "share of steps", "most steps were held back by it"),
    ("deferred_share", 0.5, "share of waiting", _PRACTICE),
    ("unequal_prompts", 2, "p99 / p50", "a prompt of twice the usual length holds a step twice"),
    ("steps_waited", 2, "steps", "a request that finds room at once still waits for one step"),
    ("waiting_some", 0.5, "requests", "a mean below half a request is no queue"),
    ("overload_growth_s", 300, "s", _PRACTICE),
    ("saturated_busy", 0.9, "share of time", _PRACTICE),
    ("waiting_rise", 1, "requests", "a queue that is longer by less than a request has not risen"),
    ("long_prompt", 1.0, "prompt / chunk, exceeded", "above it a prompt takes a second step"),
    ("long_prompt_critical", 4.0, "prompt / chunk", _PRACTICE),
    ("prefill_share_warning", 0.5, "share of TTFT", "more than half of TTFT is prefill"),
    ("hit_rate_fall", 0.8, "× the rate before", _PRACTICE),
    ("reuse_at_eviction", 0.5, "reuse gap / idle", "gaps end at eviction: near it more lie beyond"),
    ("mfu_compute_bound", 0.40, "share of peak FLOP/s", "roofline practice for dense prefill"),
    ("kind_most", 0.5, "share of computing time", "what fills most of it sets the usual gap"),
    ("mfu_low", 0.10, "share of peak FLOP/s", "roofline practice"),
    ("small_step", 0.25, "of chunk_size", _PRACTICE),
    ("tail_ratio", 8, "p99 / p50", _PRACTICE),
    ("prompt_tail_ratio", 8, "p99 / p50", _PRACTICE),
    ("front_end_share", 0.2, "share of TTFT", _PRACTICE),
    ("front_end_s", 0.1, "s", "from here on the lower share below is enough"),
    ("front_end_least_share", 0.1, "share of TTFT", "100 ms of a ten-second TTFT is no cause"),
    ("client_ratio", 1.25, "client / server TTFT", _PRACTICE),
    ("itl_ratio_warning", 2, "p99 / p50", _PRACTICE),
    ("itl_ratio_critical", 3, "p99 / p50", _PRACTICE),
    ("mixed_step_ratio", 1.5, "tokens per step / running", "a decode is one token per step"),
    ("mixed_time_share", 0.05, "share of computing time", "such steps are 1 in 100 or more"),
    ("preemption_warning", 0.01, "per finished request", _PREEMPTION),
    ("preemption_critical", 0.05, "per finished request", _PREEMPTION),
    ("preemption_events", 2, "events", _SIGNAL),
    ("mbu_warning", 0.5, "share of peak bytes/s", "roofline practice for decode"),
    ("mbu_critical", 0.7, "share of peak bytes/s", "roofline practice for decode"),
    ("device_busy_low", 0.6, "share of busy time", _PRACTICE),
    ("throttled_share", 0.05, "share of time", _PRACTICE),
    ("uneven_warning", 1.5, "max / median", _PRACTICE),
    ("uneven_critical", 3, "max / median", _PRACTICE),
    ("uneven_share", 1.25, "× the fair share of tokens", _PRACTICE),
    ("uneven_least_running", 4, "requests", _LEAST),
    ("uneven_least_kv", 0.1, "share of KV blocks", _LEAST),
    ("uneven_least_ttft_s", 0.001, "s", _LEAST),
    ("slo_critical", 1.5, "× the SLO bound", _PRACTICE),
    ("clear_margin", 0.10, "of the threshold", "keeps a node at its threshold from flapping"),
    ("fire_evaluations", 2, "evaluations", "one bad window can be chance"),
    ("clear_evaluations", 3, "evaluations", "clearing too soon hides an intermittent cause"),
    ("high_requests", 30, "requests", "the least for a stable mean and p95"),
    ("likely_requests", 10, "requests", _SIGNAL),
    ("high_evaluations", 3, "evaluations", _PRACTICE),
    ("high_margin", 1.3, "× the threshold", _PRACTICE),
)

TABLE: Mapping[str, Threshold] = {row[0]: Threshold(*row) for row in _ROWS}


@dataclass(frozen=True, slots=True)
class DevicePeak:
    """The device's peaks for the roofline, where the engine does not export them."""

    flops_per_s: float | None = None
    bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The table with overrides; t("name") gives the number."""

    overrides: Mapping[str, float] = field(default_factory=dict)
    device: DevicePeak = DevicePeak()

    def __call__(self, name: str) -> float:
        return self.overrides.get(name, TABLE[name].value)


DEFAULT = Thresholds()


def load_thresholds(path: str | Path) -> Thresholds:
    """Thresholds of a TOML file: `[thresholds] queue_share_warning = 0.3`, and optionally
    `[device] flops_per_s = 9.9e14`, `bytes_per_s = 3.3e12`. Raises UserError."""
    data = read_document(Path(path), tomllib.loads, "TOML")
    if unknown := set(data) - {"thresholds", "device"}:
        names = ", ".join(sorted(unknown))
        raise UserError(f"{path}: unknown table or key {names}; use [thresholds] and [device]")
    values = _numbers(path, "thresholds", data.get("thresholds", {}), tuple(TABLE))
    peaks = _numbers(path, "device", data.get("device", {}), ("flops_per_s", "bytes_per_s"))
    return Thresholds(values, DevicePeak(**peaks))


def device_peak(texts: Sequence[str]) -> DevicePeak:
    """Of "flops=9.9e14,bandwidth=3.3e12", one or both; raises UserError."""
    names = {"flops": "flops_per_s", "bandwidth": "bytes_per_s"}
    found: dict[str, float] = {}
    for part in ",".join(texts).split(","):
        name, _, number = part.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = 0.0
        if name.strip() not in names or not 0 < value < float("inf"):
            raise UserError(
                f"--peak {part!r} is not flops=N or bandwidth=N with N above 0 (FLOP/s, bytes/s)"
            )
        found[names[name.strip()]] = value
    return DevicePeak(**found)


def _numbers(
    path: str | Path, table: str, data: object, known: tuple[str, ...]
) -> dict[str, float]:
    if not isinstance(data, dict):
        raise UserError(f"{path}: {table} must be a table of numbers")
    numbers: dict[str, float] = {}
    for name, value in data.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UserError(f"{path}: [{table}] has no {name!r}{hint}")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 < value <= sys.float_info.max:
            raise UserError(f"{path}: [{table}] {name} must be a number above 0, not {value!r:.40}")
        numbers[name] = float(value)
    return numbers
