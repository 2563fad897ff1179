"""Baseline, single-variable points, then what the sampler proposes.

What is done is seen in the ledger, what others are doing in claims and in the sampler's history, so
that any number of workers share the work and none is done twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from tuner.errors import UserError
from tuner.search.budget import BASELINES
from tuner.search.candidates import nearly, ranked, sweep_points
from tuner.search.goal import is_complete
from tuner.search.noise import PATIENCE, exhausted
from tuner.search.proposals import Proposal
from tuner.search.session import (
    FAILURE_LIMIT,
    POLL_S,
    Search,
    failing,
    measure,
    out_of_time,
)
from tuner.search.trial import Outcome
from tuner.search.trials import Config, Trial, explored
from tuner.targets.order import grouped

EXPLORE_SEEDS = BASELINES + 1
"""Seeds of explored trials start here: beyond every baseline's."""


def measure_baseline(search: Search) -> None:
    """Twice, under two seeds: the second shows the noise. A search for the capacity whose time is
    over is content with what it has of them."""
    if why := search.arithmetic.why_not(search.baseline):
        raise UserError(f"the baseline cannot work: {why}")
    while True:
        with search.workers.turn():
            search.catch_up()
            attempt = _next_attempt(search)
            if attempt is None and _enough_baselines(search):
                return
        if out_of_time(search) and any(t.ok and t.stage == "baseline" for t in search.trials):
            return
        if attempt is None:
            search.wait(POLL_S)
            continue
        trial = measure(search, search.baseline, "baseline", search.seed + attempt)
        if trial.failed and trial.failed_part is not None:
            raise baseline_failed(trial.failed_part)
        if not is_complete(search.goal, trial):
            continue
        with search.workers.turn():
            search.proposer.learn(trial)
            search.workers.finish(f"baseline {attempt}")


LONGER = "a larger --budget or --duration, a smaller --workload, or --calibrate"


def baseline_failed(part: Outcome, longer: str = LONGER) -> UserError:
    """With the reason and the end of the server's log. longer: what to change where no request
    fell into the window, which was too short for this load."""
    tail = f"\nend of the server's log:\n{part.log_tail}" if part.log_tail else ""
    advice = ""
    if part.measurement is not None and not part.measurement.in_window:
        advice = f"; a request takes longer than this window: {longer}"
    return UserError(f"the baseline failed: {part.failure_reason}{advice}{tail}")


def _baselines(search: Search) -> list[Trial]:
    trials = [t for t in search.trials if t.stage == "baseline"]
    return [trial for trial in trials if is_complete(search.goal, trial)]


def _next_attempt(search: Search) -> int | None:
    """Claimed for us; None when enough are measured or being measured."""
    complete = _baselines(search)
    others = [unit for unit in search.workers.of_others() if unit.startswith("baseline")]
    if sum(trial.ok for trial in complete) + len(others) >= BASELINES:
        return None
    used = {trial.seed - search.seed for trial in complete}
    for attempt in range(BASELINES + 1):
        member = [search.seed + attempt, search.baseline]
        if attempt not in used and search.workers.claim(f"baseline {attempt}", [member]):
            return attempt
    return None


def _enough_baselines(search: Search) -> bool:
    """False while others are still at it. Raises UserError where none can be had."""
    complete = _baselines(search)
    usable = [trial for trial in complete if trial.ok]
    if any(unit.startswith("baseline") for unit in search.workers.of_others()):
        return len(usable) >= BASELINES
    if not usable:
        raise UserError(f"the baseline could not be measured: {complete[-1].failure_reason}")
    return True


def explore(search: Search) -> None:
    """Until the confirmation's share of the budget is left, or no gain is plausible any more."""
    while True:
        with search.workers.turn():
            search.catch_up()
            proposal = _next_point(search)
        if proposal is None:
            return
        number = proposal.asked if proposal.asked is not None else proposal.number
        trial = measure(
            search,
            proposal.config,
            "sweep" if proposal.swept else "search",
            search.seed + EXPLORE_SEEDS + number,
            number,
        )
        search.proposer.tell(proposal, trial)


def _next_point(search: Search) -> Proposal | None:
    trials = search.trials
    found = explored(trials)
    confirming = any(trial.stage == "confirm" for trial in trials)
    enough = confirming and len(found) >= search.plan.search  # a larger budget searches on
    if enough or search.left() <= reserve(search):
        return search.proposer.ask_begun()  # it counts already, and is finished
    if search.proposer.given >= FAILURE_LIMIT and failing(trials):
        search.events.note(
            f"the last {FAILURE_LIMIT} trials failed; search ended: {trials[-1].failure_reason}"
        )
        return None
    searched = search.proposer.measured >= PATIENCE  # within these ranges, for this objective
    if searched and (why := exhausted(search.goal, found, trials)):
        search.events.note(why)
        return None
    if not found:
        count = max(2, search.plan.search // 2)
        points = sweep_points(search.space, search.baseline, count, search.levers())
        search.proposer.enqueue(_by_start(search, points))
    proposal = search.proposer.ask()
    if proposal is None:
        search.events.note("search ended: every configuration of the space has been measured")
    return proposal


def _by_start(search: Search, points: Sequence[Config]) -> list[Config]:
    """Those of one restart group one after the other, in the order of each group's first."""
    knobs = search.lab.target.knobs()
    steps = grouped([(point, None) for point in points], knobs, present=False)
    return [dict(point) for point, _ in steps]


def reserve(search: Search) -> int:
    """Trials to keep for the confirmation; few while nothing is worth confirming."""
    trials = search.trials
    found = explored(trials)
    if not ranked(search.goal, found, trials) and nearly(search.goal, found, trials) is None:
        return 1
    affordable = max(2, int(0.6 * (search.pace.left() + len(found))))
    spent = sum(trial.stage == "confirm" for trial in trials)
    return max(2, min(search.plan.confirm_slots, affordable) - spent)
