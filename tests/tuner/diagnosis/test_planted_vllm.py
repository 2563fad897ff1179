"""Pages that a real vLLM gave while a cause was planted in it, and after its lever was pulled."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from storage.sources import RecordedSource
from tuner.diagnosis import Diagnosis, asked_quantiles, collect, diagnose
from tuner.diagnosis.thresholds import Thresholds
from tuner.slo import parse_slos

FOLDER = Path(__file__).parents[3] / "fixtures" / "planted-vllm"
FILES = sorted(FOLDER.glob("*.json.gz"))


def recorded(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))
    return found


def judged(case: dict[str, Any], side: str) -> Diagnosis:
    """settings: what vLLM does not export, as --set tells it."""
    seen = case[side]
    source = RecordedSource([(at_s, text) for at_s, text in seen["pages"]])
    slos = parse_slos([case["slo"]])
    signals = collect(
        source, window_s=case["window_s"], known=seen["settings"], at_s=source.now_s,
        quantiles=asked_quantiles(slos.clauses), target="recorded",
    )  # fmt: skip
    return diagnose(signals, slos, thresholds=Thresholds(case["thresholds"]))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name.removesuffix(".json.gz"))
def test_what_was_planted_is_named_first_and_gone_when_mended(file: Path) -> None:
    case = recorded(file)
    ill = judged(case, "planted")
    assert ill.causes, ill.headline
    assert ill.causes[0].key == case["node"], ill.headline
    assert ill.causes[0].levers[0].title == case["lever"]
    well = judged(case, "mended")
    assert not well.node(case["node"]).firing, well.headline


@pytest.mark.parametrize("name", ["kv-starved", "interference", "prefix-thrash"])
def test_what_needs_no_setting_is_named_without_any(name: str) -> None:
    case = untold(name)
    assert judged(case, "planted").causes[0].key == case["node"]


def test_places_that_are_always_taken_while_others_wait_are_a_cap() -> None:
    found = judged(untold("overload"), "planted")
    assert found.causes[0].key == "3a.seq_cap", found.headline
    assert "as at a cap of 2, which is not told" in found.causes[0].summary


def untold(name: str) -> dict[str, Any]:
    """A recording whose settings nobody has told."""
    case = recorded(FOLDER / f"{name}.json.gz")
    return {**case, "planted": {**case["planted"], "settings": {}}}


def test_there_are_recordings() -> None:
    assert len(FILES) >= 4
