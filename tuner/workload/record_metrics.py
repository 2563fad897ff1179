"""A workload's text from an engine's own metrics, and plainly what they cannot tell.

Histograms give the shape of lengths only as fine as their buckets; the mean is exact. A shape that
a lognormal meets at every bucket within FIT_TOLERANCE is written as one, any other as quantiles.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from storage.sources.answers import bucket_bound
from storage.sources.exposition import STARTED
from tuner.diagnosis.registry import SPECS
from tuner.errors import UserError
from tuner.units import count_text
from tuner.workload.lengths import MAX_SIGMA
from tuner.workload.writing import plain

if TYPE_CHECKING:
    from storage.sources.base import MetricSource, Reading

Floats = npt.NDArray[np.float64]
FIT_TOLERANCE = 0.05
"""Of the share of requests: as far as the fitted curve may be from the histogram's."""

ANY_TIME_S = 3600.0
MEAN_TOLERANCE = 0.02
PERCENT_STEP = 0.005
TAIL = 0.01
"""Of the requests: what lies further out says little about a curve's shape."""

FEWEST_REQUESTS = 30
SMALLEST_SIGMA = 0.01

_LENGTHS = {"prompt": "prompt_tokens", "output": "answer_tokens"}
_METRICS = {spec.name: (*spec.vllm, *spec.sglang) for spec in SPECS}

UNKNOWN: tuple[str, ...] = (  # the first is about the rate
    "rate= is that of finished requests: what was refused or still waits is not in it, and whether "
    "clients wait for answers (concurrency=) cannot be seen",
    "prompt and output lengths are drawn apart: which came together no histogram tells",
    "arrivals are taken as Poisson: bursts shorter than the window are not seen; a proxy's log has "
    "them (--proxy-log)",
)


@dataclass(frozen=True, slots=True)
class Shape:
    """A length's distribution as text, and how it was come by."""

    text: str
    said: str
    mean: float
    samples: int


@dataclass(slots=True)
class Recorded:
    """text: for --workload. window_s: what the figures cover, seconds, None: since an unknown
    start. notes: one sentence each."""

    text: str
    window_s: float | None
    samples: int
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {
            "workload": self.text,
            "window_s": self.window_s,
            "samples": self.samples,
            "notes": self.notes,
        }


def record(source: MetricSource, window_s: float, target: str, *, timed: bool = True) -> Recorded:
    """Raises UserError where the target exports no lengths or had no traffic.

    timed: whether window_s is the time in which the counters grew; without it there is no rate.
    """
    names = source.names()
    shapes = {}
    for what, signal in _LENGTHS.items():
        histogram = _exported(signal, names, "_bucket")
        if histogram is None:
            raise UserError(
                f"{target} exports none of {' and '.join(_METRICS[signal])}: without a histogram "
                f"of {what} lengths there is no workload to record; use --proxy-log"
            )
        shapes[what] = _shape(source, histogram, window_s, f"{target}: {what} lengths")
    finished = _exported("finished", names)
    rate = source.rate(finished, window_s) if finished and timed else None
    text = f"prompt={shapes['prompt'].text},output={shapes['output'].text}"
    notes = [f"{what}: {shape.said}" for what, shape in shapes.items()]
    unknown = UNKNOWN
    if rate is not None and rate.ok and rate.value:
        text += f",rate={plain(float(f'{rate.value:.4g}'))}"
    else:
        unknown = UNKNOWN[1:]
        why = "" if timed else ", the target does not say when it started; --window measures it"
        notes.append(f"the rate is not known{why}: add rate= or concurrency=")
    samples = shapes["prompt"].samples
    if samples < FEWEST_REQUESTS:
        seen = count_text(samples, "request")
        notes.append(f"only {seen}: record a longer window before relying on it")
    notes += [*unknown, _sharing(source, names, window_s, shapes["prompt"].mean)]
    return Recorded(text, window_s if timed else None, samples, notes)


def lifetime_source(url: str) -> tuple[MetricSource, float, bool]:
    """A target's counters since it started, as a source, and how long ago that was in seconds; the
    last is False where the target does not tell. Raises StorageError when nothing answers.
    """
    from storage.sources import RecordedSource, scrape_once

    now = scrape_once(url)
    start_s = now.value(STARTED)
    timed = start_s is not None and 0 < start_s < now.at_s
    if start_s is None or not timed:
        start_s = now.at_s - ANY_TIME_S
    at_start = "\n".join(f"{key} 0" for key in now.values)
    text = "\n".join(f"{key} {value!r}" for key, value in now.values.items())
    return RecordedSource([(start_s, at_start), (now.at_s, text)]), now.at_s - start_s, timed


def watched_source(url: str, window_s: float, say: Callable[[float], None]) -> MetricSource:
    """Watches a target for window_s; say gets the seconds that are left. The caller closes it."""
    from storage.sources import open_source

    source = open_source(url=url, scrape_interval_s=max(0.5, min(5.0, window_s / 20)))
    end_s = time.monotonic() + window_s
    try:
        while (left_s := end_s - time.monotonic()) > 0:
            status = source.status()
            if not status.up:
                raise UserError(f"{url} gives no metrics: {status.reason or 'it does not answer'}")
            say(left_s)
            time.sleep(min(1.0, left_s))
    except BaseException:
        source.close()
        raise
    return source


def _exported(signal: str, names: frozenset[str], ending: str = "") -> str | None:
    """The first metric of a signal that is among the names; ending: of the sample looked for."""
    from storage.sources.exposition import spellings

    return next(
        (
            name
            for name in _METRICS[signal]
            if any(spelling in names for spelling in spellings(name + ending))
        ),
        None,
    )


def _shape(source: MetricSource, histogram: str, window_s: float, what: str) -> Shape:
    mean = source.mean(histogram, window_s)
    if not mean.ok or mean.value is None or mean.samples < 1:
        raise UserError(f"{what}: {_why(mean)}")
    counts = {
        bound: reading.value
        for le, reading in source.breakdown(f"{histogram}_bucket", "le", window_s).items()
        if reading.value is not None and (bound := bucket_bound(le)) is not None and bound > 0
    }
    bounds = np.array(sorted(counts))
    below = np.maximum.accumulate(np.array([counts[bound] for bound in bounds]))
    if len(bounds) < 2 or not below[-1] > 0:
        raise UserError(f"{what}: the histogram's buckets cannot be read")
    text, said = _written(bounds, below / below[-1], max(1.0, mean.value))
    said += f"; {count_text(mean.samples, 'request')}, exact mean {mean.value:.4g} tokens"
    return Shape(text, said, mean.value, mean.samples)


def _written(bounds: Floats, shares: Floats, mean: float) -> tuple[str, str]:
    """The text of a distribution of which that share lies at or below each bound.

    bounds ascend and end with infinity, shares with 1.
    """
    inner = (shares > TAIL) & (shares < 1 - TAIL) & np.isfinite(bounds)
    fullest = int(np.argmax(np.diff(shares, prepend=0.0)))
    if np.diff(shares, prepend=0.0)[fullest] > 1 - 2 * TAIL:
        low = bounds[fullest - 1] if fullest else 0
        return plain(round(mean)), (
            f"nearly all lie in one bucket, {low:g} to {bounds[fullest]:g} tokens: their spread "
            "inside it is not known, the mean is taken"
        )
    if len(np.unique(shares[inner])) >= 2:
        z = np.array([NormalDist().inv_cdf(share) for share in shares[inner]])
        sigma = max(SMALLEST_SIGMA, float(np.polyfit(z, np.log(bounds[inner]), 1)[0]))
        median = mean / math.exp(min(sigma, MAX_SIGMA) ** 2 / 2)
        curve = NormalDist(math.log(median), sigma)
        finite = np.isfinite(bounds)
        fitted = np.array([curve.cdf(math.log(bound)) for bound in bounds[finite]])
        worst = float(np.max(np.abs(fitted - shares[finite])))
        if worst <= FIT_TOLERANCE and median >= 1 and sigma <= MAX_SIGMA:
            return (
                f"lognormal({plain(float(f'{median:.4g}'))},{plain(float(f'{sigma:.3g}'))})",
                f"a lognormal fits, {worst:.1%} of requests off at most",
            )
    return _points(bounds, shares, mean)


def _points(bounds: Floats, shares: Floats, mean: float) -> tuple[str, str]:
    """The shares at the bounds as quantiles, stretched where their mean is not the exact one."""
    said = "no lognormal fits: the shares at the buckets' bounds are taken"
    first = int(np.argmax(shares > 0))
    last = int(np.argmax(shares >= 1))
    tokens = np.concatenate([[bounds[first - 1] if first else 0.0], bounds[first : last + 1]])
    percents = np.concatenate([[0.0], 100 * shares[first : last + 1]])
    if not np.isfinite(tokens[-1]):
        tokens[-1] = tokens[-2]
        said += f", those beyond the last bucket as its {tokens[-1]:g} tokens"
    drawn = float(np.sum(np.diff(percents) / 100 * (tokens[1:] + tokens[:-1]) / 2))
    if abs(drawn / mean - 1) > MEAN_TOLERANCE:
        tokens = tokens * (mean / drawn)
        said += f", stretched by {mean / drawn:.2f} to the exact mean"
    pairs = _rising(np.round(percents, 2).tolist(), np.maximum(1, np.round(tokens)).tolist())
    return f"quantiles({','.join(f'{plain(p)}:{plain(t)}' for p, t in pairs)})", said


def _rising(percents: list[float], tokens: list[float]) -> list[tuple[float, float]]:
    """Points of strictly rising percents; where several have one percent, nothing lies between
    the first and the last of them: a step that is PERCENT_STEP wide."""
    points: list[tuple[float, float]] = []
    for percent, group in groupby(zip(percents, tokens, strict=True), key=lambda point: point[0]):
        low, *_, high = [count for _, count in group] * 2
        if percent == 0:
            points.append((0.0, high))
        else:
            points.append((percent, low))
            if high > low and percent + PERCENT_STEP < 100:
                points.append((round(percent + PERCENT_STEP, 3), high))
    return points


def _sharing(source: MetricSource, names: frozenset[str], window_s: float, mean: float) -> str:
    """What the prefix cache's hits say about shared prefixes: an upper guess, never put in."""
    queries, hits = _exported("prefix_queries", names), _exported("prefix_hits", names)
    asked = source.increase(queries, window_s) if queries else None
    found = source.increase(hits, window_s) if hits else None
    if asked is None or found is None or not asked.value or found.value is None:
        return "shared prefixes: the target counts no prefix-cache hits, nothing is known of them"
    share = found.value / asked.value
    return (
        f"shared prefixes are not in the text: {share:.0%} of prompt tokens were found in the "
        f"prefix cache; were it one common head, it would be shared_prefix={round(share * mean)}, "
        "but it may be conversations (turns=) or groups, and a full cache finds less than is shared"
    )


def _why(reading: Reading) -> str:
    from storage.sources.base import Outcome

    said = {
        Outcome.NO_TRAFFIC: "no request finished in the window",
        Outcome.NO_DATA: "not exported in the window",
        Outcome.VALUE: "no request finished in the window",
    }
    return said.get(reading.outcome) or reading.reason or str(reading.outcome)
