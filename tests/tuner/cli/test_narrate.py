"""The status line of a study: what is called best so far."""

from __future__ import annotations

import io
import math
from dataclasses import replace

from tests.tuner.search.synthetic import DEFAULTS, FakeTarget, Surface, search_on
from tuner.cli.common import ProgressLine
from tuner.cli.narrate import Narrator
from tuner.measure.progress import Progress, Recent
from tuner.search.budget import parse_budget
from tuner.search.capacity import bracket_of
from tuner.search.objective import CAPACITY, Objective
from tuner.search.session import Search, measure
from tuner.search.trial import Outcome, run_trial
from tuner.slo import parse_slos

SLOS = parse_slos(["ttft_p95<500ms"])
SMALL = DEFAULTS | {"chunk_size": 256}
NONE = Recent(math.nan, math.nan, math.nan, 0)
RUNNING = Progress(1.0, 10.0, 0.0, 1, 1, 0, 0, 5.0, 1.0, 0.0, 0.0, NONE, NONE, NONE, NONE)


def outcome(ttft_s: float, config: dict[str, float], seed: int) -> Outcome:
    lab = search_on(
        Surface(FakeTarget(), ttft=lambda c: ttft_s), budget=parse_budget("9 trials")
    ).lab
    return run_trial(lab, dict(config), stage="search", seed=seed)


def test_a_configuration_that_misses_when_measured_again_is_no_longer_best() -> None:
    told = io.StringIO()
    narrator = Narrator(ProgressLine(stream=told, interval_s=0.0), Objective(), SLOS)

    def status() -> str:
        narrator.progress(RUNNING)
        return told.getvalue().splitlines()[-1]

    assert "no result yet" in status()
    narrator.done(outcome(0.2, SMALL, 0))
    assert "chunk_size=256" in status()
    assert "undecided" not in status()
    narrator.done(outcome(0.9, SMALL, 1))
    assert "none meets the SLOs yet" in status()
    narrator.done(outcome(0.3, DEFAULTS, 2))
    assert "best" in status()
    assert "chunk_size=2048" in status()


def test_a_best_that_is_not_shown_to_meet_the_slos_is_told_so() -> None:
    told = io.StringIO()
    narrator = Narrator(ProgressLine(stream=told, interval_s=0.0), Objective(), SLOS)
    made = outcome(0.2, SMALL, 0)
    assert made.verdict is not None
    doubtful = replace(made.verdict, state="inconclusive")
    narrator.done(replace(made, verdict=doubtful))
    narrator.progress(RUNNING)
    assert " tok/s (SLOs undecided) at max_num_seqs=" in told.getvalue().splitlines()[-1]


def test_a_study_that_goes_on_counts_its_measurements_on() -> None:
    told = io.StringIO()
    narrator = Narrator(ProgressLine(stream=told, interval_s=0.0), Objective(), SLOS)
    narrator.remember(outcome(0.2, SMALL, 0))
    narrator.done(outcome(0.3, DEFAULTS, 1))
    assert told.getvalue().splitlines()[-1].split()[:2] == ["2", "search"]


def narrated(search: Search) -> tuple[Narrator, io.StringIO]:
    told = io.StringIO()
    line = ProgressLine(stream=told, interval_s=0.0)
    narrator = Narrator(line, search.goal.objectives[0], search.goal.slos, search.goal)
    return narrator, told


def lines_of(search: Search) -> list[str]:
    """One for each measurement, and the status line after them."""
    narrator, told = narrated(search)
    for made in search.ledger.outcomes:
        narrator.done(made)
    narrator.progress(RUNNING)
    return told.getvalue().splitlines()


def test_under_several_loads_a_line_names_its_load_and_the_best_is_a_ratio() -> None:
    loads = ("prompt=64,output=8,rate=10", "prompt=900,output=8,rate=10")
    surface = Surface(
        FakeTarget(), ttft=lambda c, load: 0.2, by_load=True, noise=0.001,
        rate=lambda c, load: 8.0 if c == SMALL and load.prompt.mean > 500 else 20.0,
    )  # fmt: skip
    search = search_on(surface, budget=parse_budget("9 trials"), loads=loads)
    measure(search, DEFAULTS, "baseline", 0)
    measure(search, SMALL, "search", 9)
    *lines, status = lines_of(search)
    assert [load in line for line, load in zip(lines, loads * 2, strict=True)] == [True] * 4
    assert "best so far output_tps 1 × baseline (worst of 2 loads) at max_num_seqs=128" in status


def test_each_line_of_a_capacity_says_at_how_many_clients_and_the_best_is_a_capacity() -> None:
    surface = Surface(
        FakeTarget(), ttft=lambda c, load: 0.05 * load.arrivals.level, by_load=True, noise=0.001,
        rate=lambda c, load: 20.0,
    )  # fmt: skip
    search = search_on(
        surface, "ttft_p95<500ms", Objective(CAPACITY), budget=parse_budget("9 trials"),
        loads=("prompt=64,output=8,concurrency=4",),
    )  # fmt: skip
    trial = measure(search, DEFAULTS, "baseline", 0)
    *lines, status = lines_of(search)
    levels = [part.workload.arrivals.level for part in trial.parts if part.workload]
    assert all(f" at {n:g} client" in line for n, line in zip(levels, lines, strict=True))
    assert not all(part.meets_by_estimate for part in trial.parts)
    assert f"best so far {bracket_of(trial.parts).met:g} clients at " in status


def test_all_objectives_are_told() -> None:
    objectives = (Objective(), Objective("ttft_p95", "minimize"))
    search = search_on(Surface(FakeTarget()), "", *objectives, budget=parse_budget("9 trials"))
    measure(search, DEFAULTS, "baseline", 0)
    line, status = lines_of(search)
    assert "output_tps " in line
    assert "ttft_p95 " in line
    assert "ttft_p95 " in status


def test_the_time_left_is_told_while_a_trial_runs() -> None:
    search = search_on(Surface(FakeTarget()), budget=parse_budget("10 trials"))
    narrator, told = narrated(search)
    assert search.plan.slot_s == 13.5
    narrator.begin("baseline", DEFAULTS, search.pace)
    narrator.progress(RUNNING)
    assert told.getvalue().splitlines()[-1].endswith(" · about 2:15 left")
    for seed in range(2):
        measure(search, DEFAULTS, "baseline", seed)  # of 13 s each
    narrator.progress(RUNNING)
    assert told.getvalue().splitlines()[-1].endswith(" · about 1:44 left")
