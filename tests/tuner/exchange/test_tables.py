"""Our JSON lines and Parquet: what is written is read back, and others can read it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.tuner.exchange.recorded import fixture, made
from tests.tuner.runs import failed, good, running
from tuner.errors import UserError
from tuner.exchange.read import read_file
from tuner.exchange.run import Run
from tuner.exchange.tables import header, write_jsonl, write_parquet

MIXED = [good(0), failed(1, at_s=1.0), running(2, 2.0, first_token_s=2.5), running(3, 3.0),
         good(4, at_s=20.0, output=1)]  # fmt: skip


def exported(run: Run, tmp_path: Path, form: str) -> Path:
    path = tmp_path / f"run.{form}"
    if form == "parquet":
        write_parquet(run, path)
    else:
        with path.open("wb") as out:
            write_jsonl(run, out)
    return path


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_round_trip_keeps_every_column_and_the_header(form: str, tmp_path: Path) -> None:
    run = made(MIXED)
    (back,) = read_file(exported(run, tmp_path, form))
    assert repr(back.records) == repr(run.records)
    assert json.dumps(header(back)) == json.dumps(header(run))
    assert back.figures.keys() == run.figures.keys()


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_imported_run_keeps_its_source(form: str, tmp_path: Path) -> None:
    (run,) = read_file(fixture("guidellm-0.8-constant.json"))
    (back,) = read_file(exported(run, tmp_path, form))
    assert back.source == run.source
    assert "itl" in back.unknown


def test_parquet_is_a_plain_table_for_pandas(tmp_path: Path) -> None:
    table = pd.read_parquet(exported(made(MIXED), tmp_path, "parquet"))
    assert list(table.state) == ["ok", "failed", "censored", "censored", "ok"]
    assert table.ttft_s[0] == pytest.approx(0.05)
    assert table.ttft_s.isna().tolist() == [False, True, True, True, False]
    assert table.in_window.tolist() == [True, True, True, True, False]
    assert [len(times) for times in table.chunk_times_s] == [4, 0, 1, 0, 1]


def test_json_lines_hold_one_request_each() -> None:
    out = io.BytesIO()
    write_jsonl(made(MIXED), out)
    head, *rows = [json.loads(line) for line in out.getvalue().splitlines()]
    assert head["run"]["window_s"] == [0.0, 10.0]
    assert head["run"]["verdict"]["clauses"][0]["clause"] == "ttft_p95<1s"
    assert len(rows) == 5
    assert rows[0]["chunk_times_s"] == pytest.approx([0.05, 0.06, 0.07, 0.08])
    assert rows[0]["finish_reason"] == "length"
    assert rows[1]["first_token_s"] is None
    assert rows[1]["error"] == "HTTP 503"
    assert rows[0]["e2e_s"] == pytest.approx(0.08)


def test_clear_sentence_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"pip install 'slotune\[parquet\]'"):
        write_parquet(made(), tmp_path / "x.parquet")


def lines(tmp_path: Path, *changes: tuple[int, str]) -> Path:
    """An export with some lines replaced."""
    path = exported(made(MIXED), tmp_path, "jsonl")
    content = path.read_text().splitlines()
    for number, text in changes:
        content[number] = text
    path.write_text("\n".join(content))
    return path


@pytest.mark.parametrize(
    ("number", "text", "says"),
    [
        (0, '{"slotune_requests": 99, "run": {}}', "format version 99"),
        (0, '{"slotune_requests": 1, "run": {}}', "header is damaged"),
        (0, '{"slotune_requests": 1}', "header is damaged"),
        (2, "{broken", "line 3 is no JSON"),
        (2, "{}", "not every line has the column"),
        (1, '{"index": 0}', "lacks the columns|holds no request"),
    ],
)
def test_damaged_files_are_refused(number: int, text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says):
        read_file(lines(tmp_path, (number, text)))


def test_parquet_of_others_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pd.DataFrame({"a": [1]}).to_parquet(path)
    with pytest.raises(UserError, match="none that `tuner export` has written"):
        read_file(path)
    path.write_bytes(b"PAR1 and then nothing")
    with pytest.raises(UserError, match="no readable Parquet"):
        read_file(path)
