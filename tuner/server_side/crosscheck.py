"""Does the server's account of a run agree with the load generator's?

Counts and mean latencies of the whole run, warm-up included, side by side. Differences above
TOLERANCE are told with their likely cause; a figure one side lacks is no agreement and no fault.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tuner.records import RequestRecord
from tuner.server_side.increases import ServerSide
from tuner.units import count_text

TOLERANCE = 0.05
PROBES = 6
"""So many requests the tuner sends before a load, to learn what the server takes."""

LEAST_GAP_S = 1e-3
"""Mean latencies closer than this agree whatever their ratio: the way there takes its time."""


@dataclass(frozen=True, slots=True)
class Check:
    """One figure as both saw it; difference = client / server − 1. likely_cause: where it exceeds
    the tolerance."""

    name: str
    client: float
    server: float
    unit: str
    n: int
    likely_cause: str = ""

    @property
    def difference(self) -> float:
        if self.server == 0:
            return 0.0 if self.client == 0 else math.inf
        return self.client / self.server - 1

    @property
    def agrees(self) -> bool:
        if self.unit == "s" and abs(self.client - self.server) <= LEAST_GAP_S:
            return True
        return abs(self.difference) <= TOLERANCE

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "difference": self.difference, "agrees": self.agrees}


@dataclass(frozen=True, slots=True)
class _Client:
    """What the load generator counted over the whole run. wanted: tokens asked for, by check."""

    answered: int
    wanted: Mapping[str, int]
    failed: int
    unfinished: int
    prompt_tokens: int
    output_tokens: int
    uncounted: int
    ttft_mean_s: float
    e2e_mean_s: float

    @classmethod
    def of(cls, records: Sequence[RequestRecord]) -> _Client:
        good = [record for record in records if record.ok]
        begun = [r for r in records if not math.isnan(r.first_token_s)]
        return cls(
            answered=len(good),
            wanted={
                "prompt tokens": sum(r.wanted_prompt_tokens for r in begun),
                "output tokens": sum(r.wanted_output_tokens for r in begun),
            },
            failed=sum(record.state == "failed" for record in records),
            unfinished=sum(record.state == "censored" for record in records),
            prompt_tokens=sum(r.prompt_tokens or r.wanted_prompt_tokens for r in begun),
            output_tokens=sum(r.output_tokens or sum(r.chunk_tokens) for r in begun),
            uncounted=sum(not record.counted_by_server for record in good),
            ttft_mean_s=_mean([r.first_token_s - r.sent_s for r in begun]),
            e2e_mean_s=_mean([r.chunk_times_s[-1] - r.sent_s for r in good if r.chunk_times_s]),
        )


def crosscheck(records: Sequence[RequestRecord], server: ServerSide | None) -> list[Check]:
    """The figures both sides know; empty without the server's.

    TTFT and E2E count from the actual send here, as the server cannot know when a request was due.
    """
    if server is None or not records:
        return []
    client = _Client.of(records)
    pairs: list[tuple[str, float, float | None, str, float]] = [
        ("requests", client.answered, server.finished, "", client.answered),
        ("prompt tokens", client.prompt_tokens, server.prompt_tokens, "tok", client.answered),
        ("output tokens", client.output_tokens, server.generation_tokens, "tok", client.answered),
        ("mean TTFT", client.ttft_mean_s, server.ttft_mean_s, "s", server.first_tokens or 0),
        ("mean E2E", client.e2e_mean_s, server.e2e_mean_s, "s", server.finished or 0),
    ]
    made = [
        Check(name, ours, theirs, unit, int(n))
        for name, ours, theirs, unit, n in pairs
        if theirs is not None and not math.isnan(ours)
    ]
    others = _other_traffic(made)
    return [
        check if check.agrees else _told(check, _cause(check, client, server, others))
        for check in made
    ]


def _other_traffic(checks: Sequence[Check]) -> float:
    """The difference of the request counts: below 0 where the server had others' requests too."""
    return next((c.difference for c in checks if c.name == "requests" and not c.agrees), 0.0)


def _told(check: Check, cause: str) -> Check:
    return Check(check.name, check.client, check.server, check.unit, check.n, cause)


def _cause(check: Check, client: _Client, server: ServerSide, others: float) -> str:
    more = (server.finished or 0.0) - client.answered
    if others < 0 and client.failed + client.unfinished < more:
        if server.source.startswith("Prometheus") and more <= PROBES:
            return (
                "Prometheus's counters begin at its last scrape before the run: they hold the "
                "tuner's own probes, or a little of other clients"
            )
        return "other clients use this server: its counters hold their requests too"
    if others > 0:
        return (
            "the counters are of fewer requests than were answered: one replica of several behind "
            "this address, a cache in front of it, or a server that counts late"
        )
    if check.name == "requests":
        return (
            f"{client.failed} failed and {client.unfinished} unfinished requests here ended well "
            "on the server: answers were lost or cut off on the way"
        )
    if check.unit == "tok":
        return _token_cause(check, client, server)
    if check.client > check.server:
        return (
            "time between client and engine: network, proxy, HTTP front end or tokenizer – or this "
            "machine's own load"
        )
    cut = round(max(server.aborted or 0.0, client.failed + client.unfinished))
    if cut:
        return (
            f"{count_text(cut, 'request')} that this client cut off or that failed: the server's "
            "histogram holds the time until then, the client's mean only answers that came whole"
        )
    return "the server counts more than this client's wait: its histogram holds other requests"


def _token_cause(check: Check, client: _Client, server: ServerSide) -> str:
    if client.uncounted and check.name == "output tokens":
        return (
            f"{client.uncounted} answers came without usage, their tokens are counted by chunks: "
            "the server sends several tokens in one chunk, or special tokens without text"
        )
    if client.unfinished or client.failed or server.aborted:
        cut = f"{client.unfinished} unfinished and {client.failed} failed requests"
        if check.client > check.server:
            return f"{cut}: the server does not count the tokens of answers that do not end"
        return f"{cut}: the server counts tokens that were never received"
    if server.preemptions and check.client < check.server:
        preempted = count_text(round(server.preemptions), "preemption")
        return f"{preempted}: recomputed tokens are counted again"
    return (
        _miscounted(check, client.wanted[check.name])
        or "usage and the server's counters count differently, for example special tokens"
    )


def _miscounted(check: Check, wanted: int) -> str:
    """Where just one side holds what the workload asked for, the other miscounts."""
    if not wanted or not check.server:
        return ""
    ours, theirs = (abs(v / wanted - 1) <= TOLERANCE for v in (check.client, check.server))
    if ours and not theirs:
        return (
            "usage tells what was asked for, the server's counters hold "
            f"{check.server / check.client:.3g} times that: they count something else too, or twice"
        )
    if theirs and not ours:
        return (
            "the server's counters hold what was asked for, usage tells "
            f"{check.client / check.server:.3g} times that: the usage in its answers is wrong"
        )
    return ""


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan
