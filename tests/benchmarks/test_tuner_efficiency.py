"""The contestants on a surface whose truth is known, and how they are scored."""

from __future__ import annotations

import math
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from benchmarks.efficiency import rivals
from benchmarks.efficiency.course import Contestant, Course, Task
from benchmarks.efficiency.ours import from_anywhere, slotune
from benchmarks.efficiency.score import score, summary
from benchmarks.efficiency.surface import write
from benchmarks.efficiency.table import goals, table
from benchmarks.efficiency.truth import Truth
from tests.benchmarks.made_surface import OUT_OF_MEMORY, made_surface
from tuner.search.objective import Objective
from tuner.search.trials import Config

BEST: Config = {"max_num_seqs": 8, "chunk_size": 256}
SLOW: Config = {"max_num_seqs": 1, "chunk_size": 256}
TASK = Task(made_surface(), made_surface().slos, Objective(), budget_s=130.0, trials=10)
TRUTH = Truth(TASK.surface, TASK.slos, Objective())


def test_the_truth_of_the_made_surface() -> None:
    assert TRUTH.best[0] == BEST
    assert TRUTH.feasible(BEST)
    assert not TRUTH.feasible(SLOW)
    assert not TRUTH.feasible(OUT_OF_MEMORY)
    assert TRUTH.share(BEST) == 1.0
    assert 0.3 < TRUTH.share({"max_num_seqs": 2, "chunk_size": 256}) < 0.5
    assert [TRUTH.share(config) for config in (SLOW, OUT_OF_MEMORY, None)] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "contestant",
    [partial(slotune, "tpe"), partial(from_anywhere, "tpe"), rivals.grid, rivals.random_search,
     rivals.tpe_penalised, rivals.tpe_filtered],
)  # fmt: skip
def test_a_contestant_is_the_same_under_the_same_seed(contestant: Contestant) -> None:
    first, again = contestant(TASK, 1), contestant(TASK, 1)
    assert first == again
    assert first.spent_s > 10
    assert first.claims


def test_the_tuner_claims_what_is_true_within_its_budget() -> None:
    course = slotune("tpe", TASK, 0)
    assert TRUTH.share(course.winner) > 0.95
    assert course.spent_s < TASK.budget_s + 15
    assert course.ended_early > 0


def test_the_grid_measures_every_point_once() -> None:
    course = rivals.grid(TASK, 0)
    points = len(TASK.surface.points)
    assert course.measurements == points
    assert course.winner is not None
    assert course.spent_s == pytest.approx(TASK.surface.grid_s, rel=0.05)


def test_a_course_is_scored_by_the_truth() -> None:
    course = Course(spent_s=90.0)
    course.claim(10.0, SLOW)
    course.claim(30.0, {"max_num_seqs": 2, "chunk_size": 256})
    course.claim(60.0, BEST)
    found = score(course, TRUTH, 0, early_s=45.0)
    assert (found.share, found.enough_s, found.claimed, found.false) == (1.0, 60.0, True, False)
    assert found.share_early is not None
    assert 0.3 < found.share_early < 0.5
    course.claim(80.0, SLOW)
    found = score(course, TRUTH, 0, early_s=20.0)
    assert (found.share, found.enough_s, found.false) == (0.0, 60.0, True)
    nothing = score(Course(spent_s=5.0), TRUTH, 0, early_s=20.0)
    assert (nothing.share, nothing.enough_s, nothing.claimed, nothing.false) == (
        0.0, None, False, False,
    )  # fmt: skip


def test_goals_say_what_was_met() -> None:
    right, wrong, rival = Course(spent_s=20.0), Course(spent_s=20.0), Course(spent_s=90.0)
    right.claim(20.0, BEST)
    wrong.claim(20.0, SLOW)
    rival.claim(80.0, BEST)
    ours = summary("ours", [score(c, TRUTH, 0, 20.0) for c in (right, right, wrong)])
    tpe = summary("TPE", [score(rival, TRUTH, 0, 20.0)])
    told = goals(ours, tpe, grid_s=128.0)
    assert [line.rpartition(" – ")[2] for line in told] == [
        "met", "met", "not met", "met", "met", "met",
    ]  # fmt: skip
    assert "2 of 3" in table([ours], 128.0)[-1]
    assert "at the tuner's time" in table([ours], 128.0)[0]
    assert "never" in table([summary("none", [score(wrong, TRUTH, 0, 20.0)])], 128.0)[-1]


def test_who_never_got_there_counts_in_the_median_of_the_time() -> None:
    right, wrong = Course(spent_s=20.0), Course(spent_s=20.0)
    right.claim(20.0, BEST)
    wrong.claim(20.0, SLOW)
    found = summary("ours", [score(c, TRUTH, 0, 20.0) for c in (right, wrong, wrong)])
    assert (found.enough, found.enough_s) == (1, (math.inf, 20.0, math.inf))
    assert "never (0.3–never), 1 of 3" in table([found], 128.0)[-1]


def test_vllms_procedure_costs_two_runs_of_each_pair_at_least() -> None:
    rates = [len(run.inside) / 8.0 for run in TASK.surface.runs if run.inside]
    points = len(TRUTH.pooled)
    most_s = points * (1100 / min(rates) + 5)
    assert points * (1100 / max(rates) + 5) < rivals.auto_tune_least_s(TASK) < most_s


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, as its workers are started from its main module."""
    script = Path(__file__).parents[2] / "benchmarks" / "tuner_efficiency.py"
    return subprocess.run(
        [sys.executable, str(script), *words], capture_output=True, text=True, timeout=240
    )


def test_the_command_prints_a_table(tmp_path: Path) -> None:
    path = tmp_path / "made.json.gz"
    write(TASK.surface, path)
    words = ["--surface", str(path), "--seeds", "2", "--trials", "5"]
    told = command(*words, "--only", "random search")
    assert told.returncode == 0, told.stderr
    assert "| random search |" in told.stdout
    assert "at the tuner's time" not in told.stdout  # there was no tuner
    assert "8 points meet the SLOs" in told.stdout
    refused = command(*words, "--slo", "ttft_p95<1us")
    assert refused.returncode == 2
    assert "no point of the surface meets" in refused.stderr
