"""A study's bundle: what was written comes back, and what is no bundle is told in one sentence."""

from __future__ import annotations

import gzip
import json
import math
import typing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storage.errors import StorageError
from storage.rows import StudyState
from tests.tuner.exchange.edits import Edit, drop, put, refusal, written
from tests.tuner.report.stored_studies import DEFAULTS, broken, by_hand, loaded, measured, store
from tests.tuner.runs import failed, good, running
from tuner.errors import UserError
from tuner.exchange import bundle
from tuner.exchange.bundle import StoredStudy, read_bundle, write_bundle
from tuner.exchange.run import from_stored
from tuner.report.html.study_page import render_study_html
from tuner.report.study import study_report


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StoredStudy:
    """With requests that failed or still ran, and a measurement without records."""
    mixed = [*(good(i, at_s=i / 8, ttft_s=0.1 + i / 7e3) for i in range(60)), failed(60, at_s=7.6),
             running(61, 7.9), running(62, 7.95, first_token_s=8.1)]  # fmt: skip
    outcomes = [
        measured(DEFAULTS, stage="baseline", records=mixed),
        measured(DEFAULTS, stage="baseline", seed=1, at_s=20),
        broken(DEFAULTS | {"chunk_size": 64, "--flag": "fp8"}, "out of memory", at_s=40),
    ]
    path = tmp_path_factory.mktemp("bundle") / "s.db"
    store(path, outcomes)
    return loaded(path)


@pytest.fixture
def document(study: StoredStudy, tmp_path: Path) -> dict[str, Any]:
    write_bundle(study, tmp_path / "whole.json", packed=False)
    found: dict[str, Any] = json.loads((tmp_path / "whole.json").read_text())
    return found


def same(a: Any, b: Any) -> bool:
    if hasattr(a, "__len__") and not isinstance(a, str):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and math.isnan(a):
        return math.isnan(b)
    return bool(a == b)


@pytest.mark.parametrize("packed", [False, True])
def test_reads_back_bit_for_bit(study: StoredStudy, tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "any-name"
    write_bundle(study, path, packed=packed)
    assert path.read_bytes().startswith(b"\x1f\x8b") == packed
    again = read_bundle(path)
    assert again.study == study.study
    assert again.measurements == study.measurements
    for row in study.measurements[:2]:
        before, after = study.load_records(row.id), again.load_records(row.id)
        assert before.keys() == after.keys()
        assert all(same(before[name], after[name]) for name in before)
    with pytest.raises(StorageError, match="has no request records"):
        again.load_records(study.measurements[2].id)


def test_the_page_is_the_same_without_the_database(tmp_path: Path) -> None:
    store(tmp_path / "s.db", by_hand())
    stored = loaded(tmp_path / "s.db")
    write_bundle(stored, tmp_path / "b.json.gz", packed=True)
    pages = [
        render_study_html(study_report(one))
        for one in (stored, read_bundle(tmp_path / "b.json.gz"))
    ]
    bodies = [page[: page.index(" · page made")] for page in pages]
    assert bodies[0] == bodies[1]
    assert "A better configuration is confirmed" in bodies[0]


def test_holds_what_was_asked_measured_and_with_what(document: dict[str, Any]) -> None:
    assert document["slotune_study"] == 2
    assert {"slotune", "python", "platform", "processor", "memory"} <= document["versions"].keys()
    assert "torch" not in document["versions"]
    asked = document["study"]
    assert asked["target"]["model"] == "m"
    assert asked["slos"] == "ttft_p95<500ms"
    assert asked["space"]["objectives"] == ["maximize output_tps"]
    assert asked["budget"]["text"] == "20 trials"
    assert asked["seed"] == 0
    first, _, last = document["measurements"]
    assert first["config"] == DEFAULTS
    assert first["verdict"]["clauses"][0]["clause"] == "ttft_p95<500ms"
    assert first["records"]["first_token_s"][60] is None
    assert len(first["records"]["chunk_times_s"][0]) == 4
    assert (last["state"], last["records"]) == ("failed", None)
    assert last["failure_reason"].startswith("out of memory")


def test_torch_is_named_where_the_target_told_it(study: StoredStudy) -> None:
    target = (study.study.target or {}) | {"torch": "2.9.0+cpu"}
    told = replace(study, study=replace(study.study, target=target))
    assert bundle.versions(told)["torch"] == "2.9.0+cpu"


def test_a_run_of_a_study_keeps_the_command_and_the_machine(study: StoredStudy) -> None:
    first = study.measurements[0]
    assert first.summary is not None
    told = replace(first, summary=first.summary | {"provenance": {"python": "3.11.2"}})
    run = from_stored(told, study.load_records(first.id), replace(study.study, command="tuner x"))
    assert run.summary["provenance"] == {"command": "tuner x", "python": "3.11.2"}


def test_the_machine_is_the_one_that_measured(study: StoredStudy) -> None:
    elsewhere = {"slotune": "0.0.1", "python": "3.11.2", "processor": "4 × another"}
    first, *others = study.measurements
    assert first.summary is not None
    moved = replace(first, summary=first.summary | {"provenance": elsewhere})
    told = replace(study, measurements=(moved, *others))
    assert bundle.versions(told) == elsewhere
    here = bundle.versions(study)["processor"]
    page = render_study_html(study_report(told))
    assert "4 × another, slotune 0.0.1, python 3.11.2" in page
    assert here in page  # of the others


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_what_is_cut_short_is_told(
    study: StoredStudy, tmp_path: Path, packed: bool, share: float
) -> None:
    path = tmp_path / "b"
    write_bundle(study, path, packed=packed)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    assert "cut short" in refusal(path)


def test_what_is_damaged_inside_the_packing_is_told(study: StoredStudy, tmp_path: Path) -> None:
    path = tmp_path / "b.json.gz"
    write_bundle(study, path, packed=True)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))
    assert "damaged" in refusal(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("no json", "no JSON"),
        ("[" * 5000, "no JSON"),
        ("[]", "no bundle"),
        ('{"benchmarks": []}', "no bundle"),
        ('{"slotune_requests": 1}', "no bundle"),
        ('{"slotune_study": 3}', "format 3, of a newer slotune; this one reads up to 2"),
        ('{"slotune_study": "1"}', "damaged"),
        ('{"slotune_study": true}', "damaged"),
        ('{"slotune_study": 1}', "the study is damaged: it is no object"),
    ],
)
def test_what_is_foreign_or_newer_is_told(text: str, why: str, tmp_path: Path) -> None:
    assert why in refusal(written(text, tmp_path))


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (drop("study", "name"), "the study is damaged: it has no 'name'"),
        (put("study", "slos", value=5), "'slos' is 5"),
        (put("study", "target", value={"original_config": {"a": [1]}}), "more than settings"),
        (put("study", "state", value="asleep"), "the study is damaged: 'state' is 'asleep'"),
        (put("study", "space", value={"axes": [{}]}), "axes, objectives or constraints"),
        (put("study", "space", value={"constraints": 5}), "axes, objectives or constraints"),
        (put("study", "space", value={"fixed": [1]}), "what it held fixed is no object"),
        (put("study", "budget", value={"window_s": "long"}), "its window_s is 'long'"),
        (put("study", "result", value={"ruled_out": {"a": "x"}}), "ruled out is no count"),
        (drop("measurements"), "no list of measurements"),
        (put("measurements", 1, value=7), "measurement 2 is damaged: it is no object"),
        (put("measurements", 0, "state", value="fine"), "measurement 1 is damaged: 'state'"),
        (put("measurements", 0, "started_at_s", value="noon"), "'started_at_s' is 'noon'"),
        (put("measurements", 1, "id", value=1), "the id of another one"),
        (put("measurements", 0, "config", value={"a": {}}), "more than settings"),
        (put("measurements", 0, "config", value={"a": 1e300}), "more than settings"),
        (put("measurements", 0, "summary", value={}), "its summary cannot be read"),
        (put("measurements", 0, "records", value=[]), "its records are no object"),
        (drop("measurements", 0, "records", "end_s"), "its records lack the columns end_s"),
        (put("measurements", 0, "records", "end_s", value=[1.0]), "columns of different length"),
        (put("measurements", 0, "records", "end_s", 3, value="x"), "its records are damaged"),
        (put("measurements", 0, "records", "output_tokens", 3, value=-1), "output_tokens"),
    ],
)
def test_a_damaged_part_is_named(
    edit: Edit, why: str, document: dict[str, Any], tmp_path: Path
) -> None:
    edit(document)
    assert why in refusal(written(document, tmp_path))


@pytest.mark.parametrize("state", typing.get_args(StudyState))
def test_every_state_of_a_study_reads_back(
    state: str, document: dict[str, Any], tmp_path: Path
) -> None:
    document["study"]["state"] = state
    assert read_bundle(written(document, tmp_path)).study.state == state


def test_no_more_is_unpacked_than_a_bundle_may_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "MOST_BYTES", 3 * 2**20)
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb") as file:
        for _ in range(64):
            file.write(b" " * 2**20)
    assert path.stat().st_size < 2**20
    assert "unpacks to more than 3 MiB, the most a bundle may hold" in refusal(path)


def test_a_study_too_large_for_a_bundle_is_not_written(
    study: StoredStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "MOST_BYTES", 1000)
    with pytest.raises(UserError, match="holds more than 0 MiB of records"):
        write_bundle(study, tmp_path / "b.json", packed=False)


def test_folders_and_missing_files_are_told(tmp_path: Path) -> None:
    assert "is a folder" in refusal(tmp_path)
    assert "No such file" in refusal(tmp_path / "none.json")
