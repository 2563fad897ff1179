"""What the reports of a study say at its end, and what they must not say."""

from __future__ import annotations

import dataclasses
from typing import Any

from storage import Study
from tests.tuner.search.synthetic import DEFAULTS, FakeTarget, Surface, goal_of, search_on
from tuner.report.flags import Served
from tuner.report.optimize import report_lines, result_dict
from tuner.report.studies import study_lines, study_list_lines
from tuner.search.budget import parse_budget
from tuner.search.candidates import closest
from tuner.search.decide import Decision, decide
from tuner.search.trial import Outcome, run_trial

GOAL = goal_of("ttft_p95<500ms")
SMALL = DEFAULTS | {"chunk_size": 256}


def nothing_met() -> list[Outcome]:
    surface = Surface(FakeTarget(), ttft=lambda c: 0.7 if c == SMALL else 0.9)
    lab = search_on(surface, budget=parse_budget("9 trials")).lab
    outcomes = [run_trial(lab, DEFAULTS, stage="baseline", seed=seed) for seed in (0, 1)]
    outcomes.append(run_trial(lab, SMALL, stage="search", seed=2))
    confirmed = [(config, seed) for seed in (100, 101) for config in (DEFAULTS, SMALL)]
    return outcomes + [run_trial(lab, c, stage="confirm", seed=seed) for c, seed in confirmed]


def decision(outcomes: list[Outcome]) -> Decision:
    return decide(outcomes, DEFAULTS, GOAL)


def report(outcomes: list[Outcome], found: Decision | None = None) -> str:
    return "\n".join(
        report_lines(
            found or decision(outcomes),
            GOAL,
            served=Served("m", "slotune"),
            load="load X",
            study="s",
            resume="tuner optimize",
            outcomes=outcomes,
            nearest=closest(outcomes),
        )
    )


def study(result: dict[str, Any] | None) -> Study:
    fields: dict[str, Any] = {field.name: None for field in dataclasses.fields(Study)}
    return Study(**fields | {"name": "s", "state": "done", "created_at_s": 0.0, "result": result})


def test_where_nothing_met_no_gain_is_told_and_the_nearest_has_figures() -> None:
    text = report(nothing_met())
    assert "No configuration met the SLOs: measured were the baseline and 1 other config" in text
    assert "load X" in text
    assert "× baseline" not in text
    assert "engine serve" not in text
    nearest = text.partition("closest to the SLOs in one measurement: ")[2].splitlines()
    assert "chunk_size=256" in nearest[0]
    assert nearest[1].startswith("  ttft_p95 ")
    assert " n=" in nearest[1]


def test_commands_of_a_candidate_that_is_not_shown_to_meet_the_slos_say_so() -> None:
    outcomes = nothing_met()
    found = decision(outcomes)
    verdict = dataclasses.replace(found.baseline.verdict, state="inconclusive")
    best = dataclasses.replace(found.baseline, verdict=verdict)
    doubtful = dataclasses.replace(found, answer="undecided", best_config=SMALL, best=best)
    assert "  the best candidate (not confirmed: it is not shown to" in report(outcomes, doubtful)
    stored = result_dict(
        doubtful, GOAL, served=Served("m", "slotune"), outcomes=outcomes, nearest=None
    )
    text = "\n".join(study_lines(study(stored), []))
    assert "commands that start the best configuration (not confirmed: it is not" in text


def test_the_baseline_is_not_called_closest_to_itself() -> None:
    alone = nothing_met()[:2]
    assert "closest" not in report(alone)
    assert "7 measurements" in report(nothing_met())


def test_a_stored_study_recommends_no_commands_where_nothing_met() -> None:
    outcomes = nothing_met()
    stored = result_dict(
        decision(outcomes), GOAL, served=Served("m", "slotune"), outcomes=outcomes,
        nearest=closest(outcomes),
    )  # fmt: skip
    text = "\n".join(study_lines(study(stored), []))
    assert stored["flags"]
    assert "engine serve" not in text
    assert "No configuration met the SLOs" in text
    assert "No configuration met the SLOs" in study_list_lines([study(stored)])[1]
    kept = "\n".join(study_lines(study(stored | {"answer": "keep_baseline"}), []))
    assert "commands that start the baseline configuration" in kept
    assert "engine serve" in kept
    assert "MODEL: the hub id or the path" in kept
    open_ = "\n".join(study_lines(study(stored | {"answer": "undecided"}), []))
    assert "engine serve" not in open_  # nothing is recommended yet
