"""A study is gone on with by the command that made it, at a server like its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from storage import Study, open_database
from tests.tuner.fake_engine import FakeEngine
from tuner.cli.main import main
from tuner.workload import parse_workload

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
            "study 's' was made by tuner sweep: go on with tuner sweep --study s, or give",
        ),
        ("optimize", {"space": {"axes": ["x"]}, "budget": {"pairs": 3}}, "is a verification"),
        ("sweep", {"space": {"axes": ["x"]}, "budget": {"pairs": 3}}, "is a verification"),
        ("sweep", {"command": "tuner verify --knob chunk_size=512"}, "is a verification"),
        (
            "sweep",
            {"space": {"axes": [], "objectives": ["maximize output_tps"]}, "budget": {}},
            "study 's' was made by tuner optimize: go on with tuner optimize --study s, or give",
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


class Named(FakeEngine):
    """An engine that tells its model."""

    def __init__(self, model: str) -> None:
        super().__init__(knobs=ORIGINAL | {"max_num_seqs": 16})
        self.model = model

    def _info(self) -> dict[str, Any]:
        return super()._info() | {"model": self.model}


ORIGINAL = {"max_num_seqs": 8, "chunk_size": 512, "gpu_memory_utilization": 0.9}
LOAD = parse_workload("prompt=16,output=4,concurrency=2").as_dict()
OF = {
    "sweep": {
        "space": {"axes": [], "load_knobs": ["concurrency=1,2"]},
        "budget": {"points": 2, "repeat": 1, "window_s": 0.5, "warmup_s": 0.0},
    },
    "optimize": {
        "space": {"axes": ["max_num_seqs=8,16"], "objectives": ["maximize output_tps"]},
        "budget": {"text": "5 trials"},
    },
}


@pytest.mark.parametrize("command", ["sweep", "optimize"])
@pytest.mark.parametrize(
    ("begun", "told"),
    [
        ({"kind": "slotune", "model": "one"}, "model 'one', and this is 'two'; give another"),
        ({"kind": "vllm", "model": "two"}, "kind of target 'vllm', and this is 'slotune'"),
    ],
)
def test_at_a_server_of_another_kind_or_model(
    command: str, begun: dict[str, str], told: str, tmp_path: Path, capsys: Capture
) -> None:
    """Such a one may have been started where the first one was."""
    path = tmp_path / "x.db"
    with Named("two") as server:
        target = begun | {"url": server.url, "original_config": ORIGINAL}
        before = made(path, target=target, workload=LOAD, **OF[command])
        assert main([command, "--study", "s", "--url", server.url, "--database", str(path)]) == 2
        assert server.applied == []
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1
    with open_database(path, read_only=True) as database:
        assert database.get_study("s") == before


@pytest.mark.parametrize("started_here", [False, True])
def test_another_url_of_the_same_kind_and_model_is_told(
    started_here: bool, tmp_path: Path, capsys: Capture
) -> None:
    """It keeps its own settings, also where the first server was one that the tuner started."""
    path = tmp_path / "x.db"
    with Named("one") as server:
        own = dict(server.knobs)
        target = {"kind": "slotune", "model": "one", "url": NOWHERE, "original_config": ORIGINAL,
                  "started_here": started_here}  # fmt: skip
        made(path, target=target, workload=LOAD, **OF["sweep"])
        assert main(["sweep", "--study", "s", "--url", server.url, "--database", str(path)]) == 0
        assert server.knobs == own
        assert ORIGINAL in server.applied
    said = capsys.readouterr().err
    assert f"study s was begun at {NOWHERE}, and goes on at {server.url}" in said
