"""Ctrl-C pressed three times at once: the end is as graceful as that of one, nothing is lost."""

from __future__ import annotations

import itertools
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from storage import open_database
from tests.tuner.cli.running import start, stop_when, stored
from tests.tuner.cli.test_optimize import FAST, ORIGINAL, engine
from tests.tuner.fake_server import FakeServer, answer
from tuner.cli import main as entry
from tuner.measure import Measurement, summarize


@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_is_kept_and_shown(processes: int, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with FakeServer(lambda _, body: answer(body, first_s=0.02)) as server:
        process = start("bench", server.url, "--duration", "5m", "--database", str(path),
                        "--processes", str(processes), cwd=tmp_path)  # fmt: skip
        out, err = stop_when(process, lambda: len(server.requests) > 60, signal.SIGINT, times=3)
    assert "Traceback" not in err
    assert process.returncode == 130
    assert "ended early: interrupted" in out
    assert "kept as run 1" in out
    with open_database(path, read_only=True) as database:
        (row,) = database.list_measurements()
        assert row.state == "aborted"
        assert len(database.load_records(row.id)["sent_s"]) >= 60


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP], ids=["ctrl_c", "hang_up"])
def test_a_study_is_kept_and_the_server_gets_its_settings_back(
    tmp_path: Path, number: signal.Signals
) -> None:
    path = tmp_path / "slotune.db"
    with engine() as server:
        process = start(
            "optimize", *FAST, "--url", server.url, "--budget", "50 trials", "--study", "s",
            cwd=tmp_path,
        )  # fmt: skip
        _, err = stop_when(
            process, lambda: len(stored(path, "s")) >= 4, number, times=3, apart_s=0.03
        )
        assert server.knobs == ORIGINAL
    assert "Traceback" not in err
    assert process.returncode == 130
    assert "go on with: tuner optimize --study s" in err
    with open_database(path, read_only=True) as database:
        study = database.get_study("s")
        assert study is not None
        assert study.state == "stopped"


def test_further_ones_do_not_break_off_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[str] = []

    def run(_: object) -> int:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)
            done.append("restored")
        return 0

    monkeypatch.setattr("tuner.cli.bench.run", run)
    assert entry(["bench"]) == 130
    assert done == ["restored"]
    assert capsys.readouterr().err == "tuner: interrupted\n"


def test_before_a_command_has_begun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pressed(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(sys.modules["tuner.cli.main"], "with_config", pressed)
    assert entry(["bench"]) == 130
    assert capsys.readouterr().err == "tuner: interrupted\n"


@pytest.mark.parametrize(
    "words",
    [
        ["optimize", "--knob", "max_num_seqs=4,8", "--budget", "9 trials"],
        ["sweep", "--knob", "concurrency=1,2,3,4"],
        ["verify", "--knob", "max_num_seqs=8"],
    ],
)
def test_a_load_of_a_study_that_was_measured_whole_is_kept(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pressed while the figures of its third one are computed."""
    calls = itertools.count(1)

    def pressed(*args: Any) -> Measurement:
        if next(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return summarize(*args)

    monkeypatch.setattr("tuner.measure.run.summarize", pressed)
    load = ["--workload", "prompt=16,output=2,concurrency=4", "--duration", "400ms"]
    path = tmp_path / "x.db"
    with engine() as server:
        command = [*words, *load, "--warmup", "0s", "--url", server.url, "--database", str(path)]
        assert entry(command) == 130
        assert server.knobs == ORIGINAL
    with open_database(path, read_only=True) as database:
        (study,) = database.list_studies()
        rows = database.list_measurements(study_id=study.id)
    assert study.state == "stopped"
    assert [row.state for row in rows] == ["ok"] * 3
    assert all(row.summary and not row.summary["ended_why"] for row in rows)
