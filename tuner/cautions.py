"""What a reader of a run should know before trusting it: lengths, missing usage, a warm cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tuner.measure import Measurement

LENGTH_TOLERANCE = 0.05
"""Mean lengths may be this share off what the workload asked for."""

HIT_RATE_TOLERANCE = 0.1
"""Prefix-cache hits may exceed the share of shared tokens by this much."""


def notes(made: Measurement) -> list[str]:
    """One sentence each; empty when nothing is odd."""
    good = [record for record in made.in_window if record.ok]
    counted = [record for record in good if record.counted_by_server]
    found = []
    if len(counted) < len(good):
        found.append(
            f"{len(good) - len(counted)} of {len(good)} answers came without usage: "
            "their tokens are counted by chunks"
        )
    for what in ("prompt", "output"):
        got = _mean([getattr(record, f"{what}_tokens") for record in counted])
        wanted = _mean([getattr(record, f"wanted_{what}_tokens") for record in counted])
        if got and wanted and abs(got / wanted - 1) > LENGTH_TOLERANCE:
            found.append(
                f"{what}s came out at {got:.0f} tokens on average where the workload asks for "
                f"{wanted:.0f}"
            )
    return [*found, *_cut(made), *_warm_cache(made)]


def _cut(made: Measurement) -> list[str]:
    """Requests that the server's context could not hold as the workload asks for them."""
    longest = made.endpoint.max_model_len
    if longest is None:
        return []
    cut = sum(
        made.workload.lengths(made.seed, record.index)[:2]
        != (record.wanted_prompt_tokens, record.wanted_output_tokens)
        for record in made.in_window
        if record.wanted_prompt_tokens
    )
    if not cut:
        return []
    return [
        f"{cut} of {len(made.in_window)} requests were cut to the server's context of {longest} "
        "tokens"
    ]


def _warm_cache(made: Measurement) -> list[str]:
    """Hits that neither the workload's shared prefix nor the chat template explains come from an
    earlier run's tokens."""
    rate = made.server.prefix_hit_rate if made.server is not None else None
    workload = made.workload
    shared = workload.shared_prefix + made.endpoint.template_tokens
    explained = min(1.0, shared / workload.prompt.mean)
    if rate is None or rate <= explained + HIT_RATE_TOLERANCE:
        return []
    return [
        f"the server's prefix cache served {rate:.0%} of prompt tokens though the workload shares "
        f"{explained:.0%}: a warm cache or other traffic flatters these figures"
    ]


def _mean(values: list[int]) -> float:
    return float(np.mean(values)) if values else 0.0
