"""Findings and verifications in a study's bundle: they come back, and damaged ones are told."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.exchange.edits import Edit, drop, put, refusal, written
from tests.tuner.report.stored_studies import (
    CAUSE,
    NODES,
    VERIFIED,
    by_hand,
    diagnose_first,
    loaded,
    pairs,
    store,
    store_verification,
)
from tuner.exchange.bundle import read_bundle, write_bundle
from tuner.report.any_study import lines_of, page_of, report_of

FINDING = {
    "id": 1, "measurement_id": 1, "created_at_s": 1.0, "target": None, "node": "4.interference",
    "state": "critical", "confidence": None, "payload": {},
}  # fmt: skip
VERIFICATION = {"id": 1, "created_at_s": 1.0} | asdict(VERIFIED)


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    store(tmp_path / "d.db", by_hand())
    write_bundle(loaded(tmp_path / "d.db"), tmp_path / "whole.json", packed=False)
    found: dict[str, Any] = json.loads((tmp_path / "whole.json").read_text())
    return found


def test_findings_and_verifications_come_back(tmp_path: Path) -> None:
    store(tmp_path / "s.db", by_hand())
    diagnose_first(tmp_path / "s.db")
    store_verification(tmp_path / "s.db", pairs())
    stored = loaded(tmp_path / "s.db")
    write_bundle(stored, tmp_path / "b.json", packed=False)
    again = read_bundle(tmp_path / "b.json")
    assert len(stored.findings) == len(NODES)
    assert len(stored.verifications) == 1
    assert again.findings == stored.findings
    assert again.verifications == stored.verifications
    pages = [page_of(report_of(one)) for one in (stored, again)]
    bodies = [page[: page.index(" · page made")] for page in pages]
    assert bodies[0] == bodies[1]
    assert "Prefill interrupts decodes" in bodies[0]


def test_a_bundle_of_the_first_format_opens_and_says_what_it_lacks(
    document: dict[str, Any], tmp_path: Path
) -> None:
    old = {k: v for k, v in document.items() if k not in ("findings", "verifications")}
    again = read_bundle(written(old | {"slotune_study": 1}, tmp_path))
    assert (again.findings, again.verifications, again.format) == ((), (), 1)
    told = "its bundle has format 1, of an older slotune, which keeps neither the baseline's"
    assert told in "\n".join(lines_of(report_of(again)))


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (drop("findings"), "no list of findings"),
        (put("verifications", value={}), "no list of verifications"),
        (put("findings", value=[1]), "finding 1 is damaged: it is no object"),
        (put("findings", value=[FINDING | {"state": "ill"}]), "finding 1 is damaged: 'state'"),
        (put("findings", value=[FINDING]), "finding 1 is damaged: its node cannot be read"),
        (
            put("findings", value=[FINDING | {"payload": asdict(CAUSE) | {"summary": 5}}]),
            "finding 1 is damaged: its node holds what is none of its parts",
        ),
        (
            put("findings", value=[FINDING | {"payload": asdict(CAUSE) | {"evidence": [[1, 2]]}}]),
            "finding 1 is damaged: its node holds what is none of its parts",
        ),
        (put("verifications", value=[VERIFICATION | {"outcome": "?"}]), "'outcome' is '?'"),
        (put("verifications", value=[VERIFICATION | {"knob": "x"}]), "configurations have no 'x'"),
        (
            put("verifications", value=[VERIFICATION | {"realised": {"pairs": "two"}}]),
            "what was realised is no ratio",
        ),
        (
            put("verifications", value=[VERIFICATION | {"predicted": {"low": 1}}]),
            "its prediction is none",
        ),
        (
            put("verifications", value=[VERIFICATION | {"after": {"chunk_size": []}}]),
            "verification 1 is damaged: its configuration holds more than settings",
        ),
    ],
)
def test_a_damaged_part_is_named(
    edit: Edit, why: str, document: dict[str, Any], tmp_path: Path
) -> None:
    edit(document)
    assert why in refusal(written(document, tmp_path))
