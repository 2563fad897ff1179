"""The confirmation: baseline and finalists in turn, under fresh seeds, until the answer is clear.

A round is measured by one worker on one target, all its members under one seed, in an order that
alternates, so that what a round has in common cancels in the comparison. Rounds go to the next look
(tuner.search.levels) or are not begun.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.search.budget import ALL_FINALISTS
from tuner.search.candidates import nearly, ranked
from tuner.search.decide import Standing, candidates_of, crashed, pooled_baseline, standing
from tuner.search.goal import is_complete
from tuner.search.levels import next_look
from tuner.search.session import POLL_S, Search, measure
from tuner.search.trials import Config, Trial, explored, of_config

CONFIRM_SEEDS = 1_000_000
"""Confirmation seeds start here: never one the search has seen."""

COMFORT = 0.05
"""A worst margin (log ratio) below the bound at which a candidate is likely to pass in the end."""


@dataclass(frozen=True, slots=True)
class Round:
    unit: str
    seed: int
    members: list[Config]


def confirm(search: Search) -> None:
    """Rounds until the best finalist is settled, or the budget does not reach the next look.
    Finalists that miss the SLOs make room for the next."""
    while True:
        with search.workers.turn():
            search.catch_up()
            wanted = _next_round(search)
            busy = bool(search.workers.of_others()) or bool(search.proposer.running())
        if wanted is None and not busy:
            return
        if wanted is None:
            search.wait(POLL_S)
            continue
        for config in wanted.members:
            measure(search, config, "confirm", wanted.seed)
        with search.workers.turn():
            search.workers.finish(wanted.unit)


def _next_round(search: Search) -> Round | None:
    """Claimed for us; None when nothing is to be done, now or at all."""
    begun = _taken_over(search)
    if begun is not None:
        return begun
    members = _members(search)
    if not members:
        return None
    for turn in itertools.count():
        unit, seed = f"confirm {turn}", CONFIRM_SEEDS + search.seed + turn
        if search.workers.is_done(unit) or any(t.seed == seed for t in _confirmed(search)):
            continue
        ordered = members[::-1] if turn % 2 else members
        claimed = search.workers.claim(unit, [[seed, config] for config in ordered])
        if claimed is not None:
            return Round(unit, seed, [config for _, config in claimed])
    return None


def _taken_over(search: Search) -> Round | None:
    """A round that was begun by a worker that is no more, ours of an earlier sitting included."""
    seeds = {trial.seed for trial in _confirmed(search)}
    for seed in sorted(seeds):
        unit = f"confirm {seed - CONFIRM_SEEDS - search.seed}"
        if search.workers.is_done(unit) or unit in search.workers.of_others():
            continue
        mine = [trial for trial in _confirmed(search) if trial.seed == seed]
        begun = [trial.config for trial in mine]
        whole = [trial.config for trial in mine if is_complete(search.goal, trial)]
        members = search.workers.claim(unit, [[seed, config] for config in begun]) or []
        missing = [config for _, config in members if config not in whole]
        more = sum(config not in begun for config in missing)
        if missing and more <= max(0, search.left()):
            return Round(unit, seed, missing)
        search.workers.finish(unit)
    return None


def _members(search: Search) -> list[Config]:
    """Who takes part in the next round; empty: none is worth it, or the budget ends."""
    room = search.left()
    finalists = alive(search)
    if not finalists or room < 1:
        return []
    lead = finalists[0]
    runs = len(of_config(_confirmed(search), lead)) + _rounds_of_others(search, lead)
    look = next_look(runs)
    if look is None or settled(search, lead):
        return []
    together = runs < ALL_FINALISTS
    members = [search.baseline, *(finalists if together else finalists[:1])]
    if not together and baseline_fails(search):
        members = [lead]  # against a baseline that misses the SLOs no further pair is needed
    rounds = look - runs
    if rounds * len(members) > room and together:  # fewer finalists, but all the rounds
        members = members[: max(2, room // rounds)]
    if rounds * len(members) > room and baseline_fails(search):
        members = [lead]
    if rounds * len(members) <= room or (runs == 0 and len(members) <= room):
        return members
    return []


def alive(search: Search) -> list[Config]:
    """Finalists, best first: the best explored configurations that no confirmation has refuted."""
    trials, goal = search.trials, search.goal
    found = explored(trials)
    others = [c for c in ranked(goal, found, trials) if c != search.baseline]
    if not others:
        near = nearly(goal, [t for t in found if t.config != search.baseline], trials)
        others = [near] if near is not None else []
    standings = {index: _standing(search, config) for index, config in enumerate(others)}
    kept = [
        i for i, found in standings.items()
        if not crashed(trials, others[i]) and (found is None or not _refuted(found))
    ]  # fmt: skip
    tried = [i for i in kept if standings[i] is not None]
    fresh = [others[i] for i in kept if standings[i] is None]
    if not tried:
        return fresh[: search.plan.finalists]
    ordered = _best_first(search, [s for i in tried if (s := standings[i]) is not None])
    least = min(len(of_config(_confirmed(search), config)) for config in ordered)
    room = max(0, search.plan.finalists - len(ordered)) if least < ALL_FINALISTS else 0
    return [*ordered, *fresh[:room]]


def settled(search: Search, config: Config) -> bool:
    """Whether more rounds could not change the answer for this finalist."""
    found = _standing(search, config)
    if found is None or found.pooled.verdict.state != "pass":
        return False
    if baseline_fails(search):
        return True
    return found.improved or any(o in ("worse", "no_difference") for o in found.outcomes)


def baseline_fails(search: Search) -> bool:
    count = max(1, len(candidates_of(search.trials, search.baseline)))
    base = pooled_baseline(search.trials, search.baseline, search.goal, count)
    return base is not None and base.verdict.state == "fail"


def _standing(search: Search, config: Config) -> Standing | None:
    count = max(1, len(candidates_of(search.trials, search.baseline)))
    return standing(search.trials, search.baseline, config, search.goal, count)


def _refuted(found: Standing) -> bool:
    """Missed the SLOs in runs taken together: one may be the machine's bad day."""
    return found.pooled.runs >= 2 and found.pooled.verdict.state == "fail"


def _best_first(search: Search, standings: Sequence[Standing]) -> list[Config]:
    """By the objective, those first that are likely to be shown to meet the SLOs."""

    def key(found: Standing) -> tuple[bool, float]:
        margins = found.pooled.verdict.margins
        likely = found.pooled.verdict.state == "pass" or max(margins, default=-1.0) <= -COMFORT
        return not likely, search.goal.objectives[0].rank(found.pooled.summary)

    return [found.config for found in sorted(standings, key=key)]


def _rounds_of_others(search: Search, config: Config) -> int:
    """Rounds with this configuration that others are measuring."""
    measured = {t.seed for t in of_config(_confirmed(search), config)}
    return sum(
        any(member[1] == config and member[0] not in measured for member in members)
        for unit, members in search.workers.of_others().items()
        if unit.startswith("confirm")
    )


def _confirmed(search: Search) -> list[Trial]:
    return [trial for trial in search.trials if trial.stage == "confirm"]
