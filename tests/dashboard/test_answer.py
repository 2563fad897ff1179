"""What the page says a study has answered, from what the tuner stored."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dashboard.answer import Answer, answer_of
from dashboard.history import parse_objective
from storage import Study

FLAGS = {"vllm serve": "vllm serve m --max-num-seqs 8"}
BASELINE = {"config": {"max_num_seqs": 8}, "figures": {}, "verdict": {}}


def told(**result: Any) -> Answer:
    blank = dict.fromkeys(field.name for field in dataclasses.fields(Study))
    study = Study(**(blank | {"id": 1, "name": "s", "result": {"flags": FLAGS, **result}}))
    return answer_of(study, (), parse_objective("maximize output_tps"))


@pytest.mark.parametrize(
    ("result", "recommended"),
    [
        ({"answer": "keep_baseline", "baseline": BASELINE}, True),
        ({"answer": "undecided", "baseline": BASELINE, "best": BASELINE}, True),
        ({"answer": "undecided", "baseline": BASELINE, "best": {}}, False),
        ({"answer": "none_feasible", "baseline": BASELINE}, False),
    ],
)
def test_commands_are_those_of_a_recommendation(result: dict[str, Any], recommended: bool) -> None:
    assert told(**result).flags == (FLAGS if recommended else {})


def test_commands_of_a_candidate_that_is_not_shown_to_meet_the_slos_say_so() -> None:
    best = BASELINE | {"verdict": {"state": "inconclusive", "clauses": []}}
    assert told(answer="undecided", baseline=BASELINE, best=best).doubt.startswith("not confirmed")
    assert told(answer="undecided", baseline=BASELINE, best=BASELINE).doubt == ""


def test_only_a_baseline_is_undecided() -> None:
    found = told(answer="undecided", reason="only the baseline has a result", baseline=BASELINE)
    assert (found.title, found.tone) == ("Undecided", "warn")
    assert found.reason == "only the baseline has a result"


def test_a_gain_has_the_interval_it_was_decided_by_and_no_exponent() -> None:
    gain = {"ratio": 12_345.6, "low": 1_000.4, "high": 99_999.0, "pairs": 3, "outcome": "improved",
            "confidence": 0.99}  # fmt: skip
    assert told(answer="improved", gain=gain).gain == (
        "output_tps 12346 × baseline (99 % interval 1000 to 99999, 3 interleaved pairs): confirmed"
    )
