"""Where a command may write: never over a database, what it reads or what it writes itself; and
what cannot be written is told before anything is measured."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from storage import open_database
from tests.tuner.exchange.recorded import fixture, made
from tests.tuner.fake_server import FakeServer
from tuner.cli.main import main
from tuner.cli.outputs import check_output
from tuner.errors import UserError
from tuner.exchange.run import store

Capture = pytest.CaptureFixture[str]
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def database(tmp_path: Path) -> str:
    path = str(tmp_path / "d.db")
    with open_database(path) as opened:
        store(opened, made())
        store(opened, made())
    return path


def refused(capsys: Capture, *words: str) -> str:
    assert main([*words]) == 2
    return capsys.readouterr().err


def commands(database: str, path: str) -> list[list[str]]:
    """Each command that writes a file, told to write this one."""
    kept = ["--database", database]
    return [
        ["export", "1", *kept, "--output", path],
        ["export-config", "s", *kept, "--output", path],
        ["compare", "1", "2", *kept, "--html", path],
        ["report", "s", *kept, "--html", path],
        ["report", "s", *kept, "--bundle", path],
        ["bench", NOWHERE, *kept, "--html", path],
        ["optimize", "--url", NOWHERE, "--slo", "ttft_p95<1s", *kept, "--html", path],
        ["rules", "--slo", "ttft_p95<500ms", "--grafana", path],
    ]


def test_no_command_replaces_a_database(database: str, tmp_path: Path, capsys: Capture) -> None:
    before = Path(database).read_bytes()
    link, hard = tmp_path / "link", tmp_path / "hard"
    link.symlink_to(database)
    hard.hardlink_to(database)
    beside = Path(f"{database}-wal")
    beside.write_bytes(b"")
    for path in (database, str(link), str(hard), str(beside)):
        for words in commands(database, path):
            told = refused(capsys, *words)
            assert f"{words[-2]} {path}: this file is " in told, words
            assert "database; name another" in told
    assert Path(database).read_bytes() == before
    assert beside.exists()


def test_a_database_that_is_still_to_be_made_is_none_to_write(tmp_path: Path) -> None:
    later = str(tmp_path / "later.db")
    for path in (later, f"{later}-wal"):
        with pytest.raises(UserError, match="the database"):
            check_output("--html", path, f"sqlite:///{later}")
    check_output("--html", f"{later}.html", later)
    assert list(tmp_path.iterdir()) == []


def test_no_command_replaces_what_it_reads(tmp_path: Path, capsys: Capture) -> None:
    read = tmp_path / "in.json"
    shutil.copy(fixture("guidellm-0.8-constant.json"), read)
    before = read.read_bytes()
    for words in (
        ["export", str(read), "--output", str(read)],
        ["export", f"{read}#1", "--output", str(read)],
        ["compare", str(fixture("guidellm-0.8-constant.json")), str(read), "--html", str(read)],
        ["bench", NOWHERE, "--quality", str(read), "--html", str(read)],
    ):
        assert "this file is one that this command reads" in refused(capsys, *words), words
    assert read.read_bytes() == before


def test_rules_do_not_write_over_their_own(tmp_path: Path, capsys: Capture) -> None:
    words = ["rules", "--slo", "ttft_p95<500ms", "--out", str(tmp_path / "ru")]
    told = refused(capsys, *words, "--grafana", str(tmp_path / "ru" / "slo.rules.yml"))
    assert "this file is one that this command reads or writes itself" in told
    assert list((tmp_path / "ru").iterdir()) == []
    assert main([*words, "--grafana", str(tmp_path / "ru" / "g.json")]) == 0
    assert len(list((tmp_path / "ru").iterdir())) == 3


def test_what_cannot_be_written_is_told_before_anything_is_measured(
    tmp_path: Path, capsys: Capture
) -> None:
    with FakeServer() as server:
        for path, why in (
            (str(tmp_path), "this is a folder"),
            ("/proc/x", ""),
            (str(tmp_path / ("x" * 300)), "File name too long"),
            (str(tmp_path / ("x" * 300) / "x"), "File name too long"),
            (str(tmp_path / "none" / "x"), "there is no folder of that name"),
        ):
            for words in (["bench", server.url], ["optimize", "--url", server.url]):
                assert f" cannot be written: {why}" in refused(capsys, *words, "--html", path)
        assert server.requests == []
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_a_place_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    check_output("--output", str(tmp_path / "pipe"))
    check_output("--output", "/dev/null")
