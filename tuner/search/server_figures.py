"""The server's own figures of a study: several runs taken together, and back from storage.

Invariant: a figure that one of the runs lacks is not known of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from tuner.server_side import ServerSide


def together(runs: Sequence[ServerSide | None]) -> ServerSide | None:
    """Increases added up, waits over the requests of all runs; None when a run has no figures.

    The prefix hit rate is left out: shares do not add up without the numbers looked up.
    """
    known = [run for run in runs if run is not None]
    if len(known) < len(runs) or not known:
        return None
    if len(known) == 1:
        return known[0]
    waits = sum(run.queue_count for run in known)
    waited_s = _sum(
        None if run.queue_mean_s is None else run.queue_mean_s * run.queue_count for run in known
    )
    return ServerSide(
        prompt_tokens=_sum(run.prompt_tokens for run in known),
        generation_tokens=_sum(run.generation_tokens for run in known),
        preemptions=_sum(run.preemptions for run in known),
        prefix_hit_rate=None,
        finished=_sum(run.finished for run in known),
        queue_mean_s=waited_s / waits if waited_s is not None and waits > 0 else None,
        queue_bounds_s=_buckets(known),
    )


def restored(stored: Mapping[str, Any] | None) -> ServerSide | None:
    """The inverse of ServerSide.as_dict; what was not stored is not known."""
    if stored is None:
        return None
    values: dict[str, Any] = {f.name: stored.get(f.name) for f in fields(ServerSide)}
    values["queue_bounds_s"] = tuple(
        (float(bound), float(count)) for bound, count in stored.get("queue_bounds_s") or ()
    )
    return ServerSide(**values)


def _sum(values: Iterable[float | None]) -> float | None:
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if len(known) == len(found) else None


def _buckets(runs: Sequence[ServerSide]) -> tuple[tuple[float, float], ...]:
    """Cumulative counts of all runs; none where the runs have other buckets."""
    bounds = [bound for bound, _ in runs[0].queue_bounds_s]
    if any([bound for bound, _ in run.queue_bounds_s] != bounds for run in runs):
        return ()
    counts = zip(*([count for _, count in run.queue_bounds_s] for run in runs), strict=True)
    return tuple((bound, sum(each)) for bound, each in zip(bounds, counts, strict=True))
