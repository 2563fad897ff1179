"""The name of a study that `tuner optimize` was given none for."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from storage import open_database
from tests.tuner.fake_engine import FakeEngine
from tests.tuner.report.stored_studies import store
from tuner.cli.main import main

ORIGINAL = {"max_num_seqs": 16, "chunk_size": 2048, "gpu_memory_utilization": 0.9}


@pytest.mark.timeout(200)
def test_optimize_with_a_page_does_not_go_on_with_a_study_begun_in_the_same_second(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = SimpleNamespace(strftime=lambda *_: "optimize-now", gmtime=time.gmtime)
    monkeypatch.setattr("tuner.cli.invocation.time", at_once)
    database = str(tmp_path / "s.db")
    store(tmp_path / "s.db", [], name="optimize-now", state="running")
    with FakeEngine(knobs=dict(ORIGINAL)) as server:
        words = ["--url", server.url, "--database", database, "--budget", "5 trials"]
        assert main(["optimize", *words, "--html", str(tmp_path / "x.html")]) == 2
    assert "a study named 'optimize-now' exists" in capsys.readouterr().err
    with open_database(database, read_only=True) as opened:
        (study,) = opened.list_studies()
        assert opened.list_measurements(study_id=study.id) == []
