"""A study is gone on with by the command that made it, at a server like its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import Study, open_database
from tuner.cli.main import main

Capture = pytest.CaptureFixture[str]
NOWHERE = "http://127.0.0.1:9"


def made(path: Path, **fields: object) -> Study:
    with open_database(path) as database:
        return database.create_study("s", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "fields", "told"),
    [
        (
            "optimize",
            {"space": {"axes": [], "load_knobs": ["rate=1:2"]}, "budget": {"points": 3}},
            "study 's' is of tuner sweep: go on with tuner sweep --study s, or give",
        ),
        ("optimize", {"space": {"axes": ["x"]}, "budget": {"pairs": 3}}, "is a verification"),
        ("sweep", {"space": {"axes": ["x"]}, "budget": {"pairs": 3}}, "is a verification"),
        (
            "sweep",
            {"space": {"axes": [], "objectives": ["maximize output_tps"]}, "budget": {}},
            "study 's' is of tuner optimize: go on with tuner optimize --study s, or give",
        ),
    ],
)
def test_by_another_command(
    command: str, fields: dict[str, object], told: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "x.db"
    before = made(path, **fields)
    assert main([command, "--study", "s", "--url", NOWHERE, "--database", str(path)]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1
    with open_database(path, read_only=True) as database:
        assert database.get_study("s") == before
