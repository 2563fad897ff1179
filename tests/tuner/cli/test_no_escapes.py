"""Nothing that a server, a file or another machine said writes to the terminal."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from storage import open_database
from tests.tuner.exchange.recorded import made
from tuner.cli.common import ProgressLine
from tuner.cli.main import main
from tuner.diagnosis import render
from tuner.diagnosis.model import Diagnosis, NodeResult, State
from tuner.exchange.run import store

EVIL = "m\x1b[2J\x07"


@pytest.fixture
def database(tmp_path: Path) -> str:
    path = str(tmp_path / "d.db")
    run = replace(made(), model=EVIL, workload=f"prompt=8,output=4,rate=1{EVIL}")
    with open_database(path) as opened:
        for _ in range(2):
            store(opened, run)
    return path


@pytest.mark.parametrize(
    "words", [["compare", "1", "2"], ["rejudge", "1", "--slo", "ttft_p95<1s"], ["runs"]]
)
def test_what_a_run_holds(
    words: list[str], database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--database", database]) in (0, 1)
    told = capsys.readouterr()
    assert not {"\x1b", "\x07"} & {*told.out, *told.err}


def test_what_a_file_of_queries_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "rules.json"
    group = {"name": EVIL, "rules": [{"record": f"a:{EVIL}", "expr": f'vllm:nope{{a="{EVIL}"}}'}]}
    rules.write_text(json.dumps({"groups": [group]}))
    assert main(["lint", str(rules)]) == 1
    told = capsys.readouterr()
    assert "vllm:nope" in told.out
    assert not {"\x1b", "\x07"} & {*told.out, *told.err}


def test_what_a_diagnosis_names() -> None:
    node = NodeResult(
        "0", "Trust", State.CRITICAL, EVIL, evidence=((EVIL, EVIL),), queries=(EVIL,),
        how_to_get=EVIL,
    )  # fmt: skip
    found = Diagnosis(0.0, 60.0, EVIL, "vllm", "traffic", EVIL, (node,))
    assert not {"\x1b", "\x07"} & {*render(found, verbose=True)}
    assert "\x1b[1;31mcritical" in render(found, colour=True)


def test_what_a_server_gives_as_a_reason() -> None:
    stream = io.StringIO()
    line = ProgressLine(stream=stream, interval_s=0.0)
    line.update(EVIL)
    line.note(EVIL)
    assert stream.getvalue() == "m\ufffd[2J\ufffd\n" * 2
