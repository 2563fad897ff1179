"""What a reader should know before trusting an answer: each check when it is fine, and when not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tuner.report.stored_studies import AXES, by_hand, measured, report_of, store
from tests.tuner.search.synthetic import DEFAULTS, LOAD
from tuner.report.study_health import Check, checks
from tuner.report.study_text import study_report_lines
from tuner.search.trial import Outcome

EDGES, MISSED = "optimum inside the ranges", "configurations that miss the SLOs"
NOISE, DRIFT, CLIENT = "noise between runs", "baseline steady over the study", "load generator"


def check(
    folder: Path, name: str, outcomes: Sequence[Outcome], axes: Sequence[str] = tuple(AXES),
    load: str = LOAD,
) -> Check:  # fmt: skip
    store(folder / "s.db", outcomes, axes=axes, loads=(load,))
    report = report_of(folder / "s.db")
    (found,) = [one for one in checks(report) if one.name == name]
    assert found.text in "\n".join(study_report_lines(report))
    return found


def baselines(*counts: int) -> list[Outcome]:
    """Runs of the baseline with so many requests answered in each."""
    return [
        measured(DEFAULTS, stage="baseline", seed=seed, at_s=20.0 * seed, count=count)
        for seed, count in enumerate(counts)
    ]


@pytest.mark.parametrize(
    ("axis", "told"),
    [
        ("chunk_size=256:8192:log", "chunk_size=256 is the lower end of chunk_size=256:8192:log"),
        ("chunk_size=64,128,256", "chunk_size=256 is the upper end of chunk_size=64,128,256"),
    ],
)
def test_an_optimum_at_an_end_of_its_range(tmp_path: Path, axis: str, told: str) -> None:
    found = check(tmp_path, EDGES, by_hand(), [axis, "max_num_seqs=1:256:log"])
    assert found.state == "look"
    assert found.text == f"{told}: a wider --knob range may hold a better one"


@pytest.mark.parametrize(("clients", "state"), [(8, "fine"), (9, "look")])
def test_a_cap_of_as_many_as_there_are_clients_has_no_wider_range(
    tmp_path: Path, clients: int, state: str
) -> None:
    load = f"prompt=64,output=8,concurrency={clients}"
    sides = [(DEFAULTS, 0.8), (DEFAULTS | {"max_num_seqs": 8, "chunk_size": 256}, 0.2)]
    outcomes = [
        measured(config, stage=stage, seed=seed, at_s=seed, ttft_s=ttft_s, load=load)
        for seed, stage in ((0, "baseline"), (1, "search"), (100, "confirm"), (101, "confirm"))
        for config, ttft_s in sides
        if (config == DEFAULTS) == (stage == "baseline") or stage == "confirm"
    ]
    axes = ["chunk_size=64:8192:log", "max_num_seqs=1:8:log"]
    assert check(tmp_path, EDGES, outcomes, axes, load).state == state


def test_an_optimum_between_the_ends(tmp_path: Path) -> None:
    axes = ["chunk_size=64:8192:log", "max_num_seqs=1:256:log"]
    assert check(tmp_path, EDGES, by_hand(), axes).state == "fine"


def test_without_an_optimum_nothing_is_said_of_its_place(tmp_path: Path) -> None:
    assert check(tmp_path, EDGES, baselines(60, 60)).state == "unknown"


@pytest.mark.parametrize(
    ("more", "state", "told"),
    [
        (0, "fine", "1 of 2 (50%) missed"),
        (3, "fine", "4 of 5 (80%) missed"),
        (4, "look", "5 of 6 (83%) missed"),
    ],
)
def test_a_search_in_which_most_configurations_miss(
    tmp_path: Path, more: int, state: str, told: str
) -> None:
    late = [
        measured(DEFAULTS | {"chunk_size": 3000 + i}, seed=20 + i, at_s=200.0 + 20 * i, ttft_s=0.9)
        for i in range(more)
    ]
    found = check(tmp_path, MISSED, [*by_hand(), *late])
    assert found.state == state
    assert found.text.startswith(told)


@pytest.mark.parametrize(
    ("counts", "noise", "drift"),
    [
        ((60, 62), "fine", "fine"),
        ((60, 76), "look", "fine"),
        ((60, 80), "look", "look"),
        ((60,), "unknown", "unknown"),
    ],
)
def test_runs_of_the_baseline_that_differ(
    tmp_path: Path, counts: tuple[int, ...], noise: str, drift: str
) -> None:
    """By 3 %, 27 %, 33 %; and one alone."""
    store(tmp_path / "s.db", baselines(*counts))
    found = {one.name: one for one in checks(report_of(tmp_path / "s.db"))}
    assert found[NOISE].state == noise
    assert found[DRIFT].state == drift
    if len(counts) > 1:
        assert "from 1 repetition" in found[NOISE].text
        assert "2 runs: first 24 tok/s, last " in found[DRIFT].text


def test_measurements_that_the_load_generator_spoilt(tmp_path: Path) -> None:
    late = replace(
        measured(DEFAULTS, seed=30, at_s=200), state="invalid", failure_kind="transient",
        failure_reason="the load generator was late",
    )  # fmt: skip
    (tmp_path / "fine").mkdir()
    fine = check(tmp_path / "fine", CLIENT, by_hand())
    assert (fine.state, fine.text) == ("fine", "0 of 9 measurements spoilt by the load generator")
    found = check(tmp_path, CLIENT, [*by_hand(), late])
    assert found.state == "look"
    assert found.text == (
        "1 of 10 measurements spoilt by the load generator: 1 × the load generator was late"
    )
