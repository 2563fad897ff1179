"""What a study's report says of its baseline's diagnosis and of what came of its advice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from storage import open_database
from tests.tuner.report.pages import text_of
from tests.tuner.report.stored_studies import (
    DEFAULTS,
    NODES,
    VERIFIED,
    by_hand,
    diagnose_first,
    loaded,
    pairs,
    report_of,
    store,
    store_verification,
)
from tuner.diagnosis import NodeResult, State
from tuner.report.any_study import dict_of, lines_of, page_of
from tuner.report.recorded import NOT_DIAGNOSED
from tuner.report.study import StudyReport


def diagnosed(path: Path, *, target: dict[str, str] | None = None) -> StudyReport:
    """A search whose baseline was diagnosed, and a verification beside it on such a server."""
    store(path, by_hand())
    diagnose_first(path)
    store_verification(path, pairs(), target=target)
    return report_of(path)


def test_each_cause_has_its_levers_and_what_came_of_them(tmp_path: Path) -> None:
    report = diagnosed(tmp_path / "s.db")
    for text in ("\n".join(lines_of(report)), text_of(page_of(report))):
        assert "Prefill interrupts decodes" in text
        assert "p99 of gaps is 5 × p50" in text
        assert "chunk_size=1024: output_tps 30 tok/s [" in text
        assert "n=75, 1 run, SLOs missed" in text
        assert text.count("chunk_size=256: output_tps 27.6 tok/s [") == 1
        assert "n=207, 3 runs, SLOs met" in text
        assert "verified chunk_size=2048 → 256 under prompt=64,output=8,rate=10: The advice" in text
        assert "ttft_p95 × 0.25 [0.24, 0.26] (98.8 % interval, 2 interleaved pairs" in text
        assert "not tried" in text  # more replicas
        assert "follows from 4.interference" in text
        assert "cannot tell of 5, which lack prefix_cache_queries" in text
        assert "chunk_size=8192" not in text.partition("what came of")[2].partition("hecks")[0]


def test_a_lever_that_was_never_turned_alone_is_told_as_that(tmp_path: Path) -> None:
    outcomes = by_hand()
    for outcome in outcomes:
        if outcome.config != DEFAULTS:
            outcome.config = outcome.config | {"max_num_seqs": 64}
    store(tmp_path / "s.db", outcomes)
    diagnose_first(tmp_path / "s.db")
    text = "\n".join(lines_of(report_of(tmp_path / "s.db")))
    told = "2 configurations turned it together with other knobs, the best among them"
    assert f"chunk_size down  not tried alone; {told}" in text


def test_json_holds_findings_advice_and_verifications(tmp_path: Path) -> None:
    found = json.loads(json.dumps(dict_of(diagnosed(tmp_path / "s.db"))))
    assert [node["key"] for node in found["findings"]] == ["4.interference", "3"]
    first = found["advice"][0]
    assert (first["node"], first["knob"], first["direction"]) == (
        "4.interference", "chunk_size", "down",
    )  # fmt: skip
    assert first["verifications"] == [found["verifications"][0]["id"]]
    assert found["verifications"][0]["outcome"] == "holds"


@pytest.mark.parametrize(
    "other", [{"model": "another"}, {"kind": "vllm"}, {"url": "http://elsewhere:1"}]
)
def test_what_was_verified_on_another_server_does_not_belong(
    tmp_path: Path, other: dict[str, str]
) -> None:
    report = diagnosed(tmp_path / "s.db", target=other)
    assert report.verifications == ()
    assert "verified" not in "\n".join(lines_of(report))


def test_what_the_diagnosis_does_not_propose_does_not_belong(tmp_path: Path) -> None:
    store(tmp_path / "s.db", by_hand())
    diagnose_first(tmp_path / "s.db")
    store_verification(tmp_path / "s.db", pairs(), replace(VERIFIED, direction="up"))
    assert report_of(tmp_path / "s.db").verifications == ()


def test_nothing_fires_and_not_diagnosed_are_two_things(tmp_path: Path) -> None:
    store(tmp_path / "a.db", by_hand())
    assert NOT_DIAGNOSED in "\n".join(lines_of(report_of(tmp_path / "a.db")))
    assert dict_of(report_of(tmp_path / "a.db"))["findings"] is None
    store(tmp_path / "b.db", by_hand())
    fine = [NodeResult("1", "Stall", State.OK, "fine"), replace(NODES[3])]
    diagnose_first(tmp_path / "b.db", fine)
    report = report_of(tmp_path / "b.db")
    assert "nothing fires: 1 of 2 nodes in order" in text_of(page_of(report))
    assert dict_of(report)["findings"] == []


def test_nodes_that_do_not_apply_are_not_called_in_order(tmp_path: Path) -> None:
    store(tmp_path / "s.db", by_hand())
    nodes = [
        NodeResult("1", "Stall", State.OK, "fine"),
        NodeResult("2", "Other", State.NOT_APPLICABLE, "one replica"),
        NodeResult("3", "Third", State.NOT_APPLICABLE, "one replica"),
    ]
    diagnose_first(tmp_path / "s.db", nodes)
    said = text_of(page_of(report_of(tmp_path / "s.db")))
    assert "nothing fires: 1 of 3 nodes in order, 2 not applicable" in said


def test_findings_of_another_studys_measurement_are_not_its_own(tmp_path: Path) -> None:
    store(tmp_path / "s.db", by_hand())
    store_verification(tmp_path / "s.db", pairs())
    diagnose_first(tmp_path / "s.db", name="v")
    with open_database(tmp_path / "s.db") as database:
        database.add_findings([])
    assert loaded(tmp_path / "s.db").findings == ()
    assert [found.node for found in loaded(tmp_path / "s.db", "v").findings] == [
        node.key for node in NODES
    ]
