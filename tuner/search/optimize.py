"""The joint search: baseline twice, single-variable points, Optuna, confirmation, decision.

Every stage looks at the ledger first and does what is missing, so that a study resumed after a
kill at any point ends where it would have ended. Invariant: a failed baseline ends the study.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from storage.rows import Stage
from tuner.errors import UserError
from tuner.search.budget import BASELINES, Plan
from tuner.search.candidates import closest, ranked, sweep_points
from tuner.search.decide import Config, Decision, compare, decide, ends_rounds, pooled_baseline
from tuner.search.ledger import Ledger
from tuner.search.objective import Objective
from tuner.search.pace import Pace
from tuner.search.pool import pool
from tuner.search.proposals import Proposer
from tuner.search.space import Space
from tuner.trial import Lab, Outcome, run_trial, worst_margin

FAILURE_LIMIT = 5
"""Failed trials in a row after which the search ends: something else is wrong."""

MAX_ROUNDS = 8
NEARLY = 0.15
"""A worst margin (log ratio) up to which a point that misses an SLO may be noise."""

CONFIRM_SEEDS = 1_000_000
"""Confirmation seeds start here: never one the search has seen."""


class Events(Protocol):
    """What a person is told while it runs."""

    def begin(self, stage: Stage, config: Config, pace: Pace) -> None: ...

    def done(self, outcome: Outcome) -> None: ...

    def note(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Search:
    """All that a search works with."""

    lab: Lab
    ledger: Ledger
    proposer: Proposer
    space: Space
    objective: Objective
    plan: Plan
    pace: Pace
    events: Events
    baseline: Config
    seed: int = 0


def optimize(search: Search) -> Decision:
    """Run or continue the study. Raises UserError when the baseline fails, TargetError when the
    target is gone, KeyboardInterrupt; the ledger keeps what was measured."""
    measure_baseline(search)
    _explore(search)
    _confirm(search)
    return decide(search.ledger.outcomes, search.baseline, search.lab.slos, search.objective)


def measure_baseline(search: Search) -> None:
    """Twice, under two seeds: the second shows the noise."""
    have = [o for o in search.ledger.outcomes if o.stage == "baseline"]
    for attempt in range(len(have), BASELINES + 1):
        if sum(o.ok for o in search.ledger.outcomes if o.stage == "baseline") >= BASELINES:
            return
        outcome = _trial(search, search.baseline, "baseline", search.seed + attempt)
        if outcome.state == "failed":
            tail = f"\nend of the server's log:\n{outcome.log_tail}" if outcome.log_tail else ""
            raise UserError(
                f"the baseline failed: {outcome.failure_reason}{_advice(outcome)}{tail}"
            )
        search.proposer.learn(outcome)
    usable = [o for o in search.ledger.outcomes if o.stage == "baseline" and o.ok]
    if not usable:
        reason = search.ledger.outcomes[-1].failure_reason
        raise UserError(f"the baseline could not be measured: {reason}")


def _advice(outcome: Outcome) -> str:
    """What to change where no request fell into the window: it was too short for this load."""
    if outcome.measurement is None or outcome.measurement.in_window:
        return ""
    return (
        "; a request takes longer than this window: a larger --budget or --duration, a smaller "
        "--workload, or --calibrate"
    )


def _explore(search: Search) -> None:
    """Sweep points, then what the sampler proposes, until the confirmation's share is left."""
    explored = _explored(search)
    if not explored and not any(o.stage == "confirm" for o in search.ledger.outcomes):
        count = max(2, search.plan.search // 2)
        search.proposer.enqueue(sweep_points(search.space, search.baseline, count))
    if any(o.stage == "confirm" for o in search.ledger.outcomes):
        return
    while search.pace.left() > _reserve(search):
        if _failing(search.ledger.outcomes):
            last = search.ledger.outcomes[-1].failure_reason
            search.events.note(f"the last {FAILURE_LIMIT} trials failed; search ended: {last}")
            return
        proposal = search.proposer.ask()
        outcome = _trial(
            search,
            proposal.config,
            "sweep" if proposal.swept else "search",
            search.seed + BASELINES + 1 + len(_explored(search)),  # beyond every baseline's
            proposal.number,
        )
        search.proposer.tell(proposal, outcome)


def _reserve(search: Search) -> int:
    """Measurements to keep for the confirmation; few while nothing is worth confirming."""
    promising = _finalists(search, search.plan.finalists)
    if promising:
        affordable = max(2, int(0.6 * (search.pace.left() + len(_explored(search)))))
        return min(search.plan.confirm_slots, affordable)
    return 1


def _confirm(search: Search) -> None:
    """Rounds of baseline and finalists under a fresh common seed, order alternating, until the
    answer is clear or the budget ends. Finalists that miss the SLOs make room for the next."""
    for turn in range(MAX_ROUNDS):
        seed = CONFIRM_SEEDS + search.seed + turn
        done = [o.config for o in search.ledger.outcomes if o.seed == seed]
        finalists = _finalists(search, search.plan.finalists if turn < 2 else 1)
        if not finalists or (not done and _settled(search, finalists)):
            return
        room = search.pace.left() - 1
        members = [search.baseline, *finalists[: max(1, room)]]
        if turn % 2:
            members.reverse()
        missing = [config for config in members if config not in done]
        if len(missing) > search.pace.left():
            if done or search.pace.left() < 1 or not _baseline_fails(search):
                return
            missing = finalists[:1]  # against a baseline that misses the SLOs no pair is needed
        for config in missing:
            _trial(search, config, "confirm", seed)


def _finalists(search: Search, count: int) -> list[Config]:
    """The best explored configurations that no confirmation has refuted."""
    explored = _explored(search)
    others = [c for c in ranked(explored, search.objective) if c != search.baseline]
    if not others:
        nearest = closest([o for o in explored if o.config != search.baseline])
        if nearest is not None and worst_margin(nearest) <= NEARLY:
            others = [nearest.config]
    alive = [config for config in others if not _refuted(search, config)]
    tried = [c for c in alive if _confirmed(search, c)]
    if tried and count == 1:  # after the first rounds only the better one goes on
        return _best_first(search, tried)[:1]
    return alive[:count]


def _best_first(search: Search, configs: Sequence[Config]) -> list[Config]:
    def rank(config: Config) -> float:
        found = pool(_confirmed(search, config), search.lab.slos)
        return search.objective.rank(found.summary if found is not None else {})

    return sorted(configs, key=rank)


def _refuted(search: Search, config: Config) -> bool:
    """Missed the SLOs in two confirmation runs taken together: one may be the machine's bad day."""
    runs = _confirmed(search, config)
    if len(runs) < 2:
        return False
    found = pool(runs, search.lab.slos)
    return found is None or found.verdict.state == "fail"


def _settled(search: Search, finalists: Sequence[Config]) -> bool:
    """Whether more rounds could not change the answer for the best finalist."""
    best = finalists[0]
    found = pool(_confirmed(search, best), search.lab.slos)
    if found is None or found.verdict.state != "pass":
        return False
    confirmed = [o for o in search.ledger.outcomes if o.stage == "confirm"]
    gain = compare(confirmed, search.baseline, best, search.objective)
    if gain is None or gain.n < 2:
        return False
    return _baseline_fails(search) or ends_rounds(gain, MAX_ROUNDS)


def _baseline_fails(search: Search) -> bool:
    base = pooled_baseline(search.ledger.outcomes, search.baseline, search.lab.slos)
    return base is not None and base.verdict.state == "fail"


def _confirmed(search: Search, config: Config) -> list[Outcome]:
    return [o for o in search.ledger.outcomes if o.stage == "confirm" and o.config == config]


def _explored(search: Search) -> list[Outcome]:
    return [o for o in search.ledger.outcomes if o.stage in ("sweep", "search")]


def _failing(outcomes: Sequence[Outcome]) -> bool:
    last = outcomes[-FAILURE_LIMIT:]
    return len(last) == FAILURE_LIMIT and all(o.state == "failed" for o in last)


def _trial(
    search: Search, config: Config, stage: Stage, seed: int, number: int | None = None
) -> Outcome:
    search.events.begin(stage, config, search.pace)
    outcome = run_trial(search.lab, config, stage=stage, seed=seed, trial_number=number)
    search.ledger.add(outcome)
    search.events.done(outcome)
    return outcome
