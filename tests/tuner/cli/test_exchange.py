"""runs, export, import, rejudge and compare from the command line, on runs of a fake server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from storage import open_database
from tests.tuner.exchange.recorded import fixture, made
from tests.tuner.fake_server import FakeServer
from tests.tuner.report.stored_studies import measured
from tests.tuner.report.stored_studies import store as store_study
from tests.tuner.runs import good, running
from tests.tuner.search.synthetic import DEFAULTS
from tuner.cli.main import main
from tuner.exchange.run import store

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Run 1 has a TTFT of about 50 ms, run 2 of 200 ms, run 3 is run 1 under another seed."""
    path = str(tmp_path / "s.db")
    fast, slow = ([good(i, at_s=i / 10, ttft_s=ttft_s + i % 7 / 500) for i in range(90)]
                  for ttft_s in (0.05, 0.2))  # fmt: skip
    with open_database(path) as opened:
        for records in (fast, slow, fast):
            store(opened, made(records, slo="ttft_p95<100ms"))
    return path


def told(capsys: Capture, *words: str, code: int = 0) -> str:
    assert main([*words]) == code
    return capsys.readouterr().out


def told_json(capsys: Capture, *words: str, code: int = 0) -> Any:
    return json.loads(told(capsys, *words, "--json", code=code))


def test_a_measured_run_is_listed_shown_and_exported(tmp_path: Path, capsys: Capture) -> None:
    path = str(tmp_path / "s.db")
    with FakeServer() as server:
        bench = ["bench", server.url, "--workload", "prompt=8,output=4,concurrency=2", "--warmup",
                 "0s", "--max-requests", "30", "--duration", "20s", "--database", path]  # fmt: skip
        assert main([*bench, "--quiet"]) == 0
    capsys.readouterr()
    listed = told(capsys, "runs", "--database", path)
    assert "bench" in listed
    assert "prompt=8,output=4,concurrency=2" in listed
    (as_json,) = told_json(capsys, "runs", "--database", path)
    assert as_json["run"] == 1
    assert as_json["counts"]["ok"] == 30
    shown = told(capsys, "runs", "1", "--database", path)
    assert "95 % interval" in shown
    assert "ttft_p95" in shown
    lines = told(capsys, "export", "1", "--database", path).splitlines()
    assert len(lines) == 31
    for name in ("a.parquet", "a.html", "a.jsonl"):
        assert main(["export", "1", "--database", path, "--output", str(tmp_path / name)]) == 0
    assert len(pd.read_parquet(tmp_path / "a.parquet")) == 30
    assert (tmp_path / "a.html").read_text().startswith("<!DOCTYPE html>")
    report = json.loads(told(capsys, "export", "1", "--database", path, "--format", "guidellm"))
    assert len(report["benchmarks"][0]["requests"]["successful"]) == 30
    assert not list(tmp_path.glob(".*.part"))


def test_import_keeps_and_judges(tmp_path: Path, capsys: Capture) -> None:
    path = str(tmp_path / "s.db")
    out = told(capsys, "import", str(fixture("vllm-0.32-bench-closed.json")), "--slo",
               "e2e_p50<1m", "--database", path)  # fmt: skip
    assert "kept as run 1" in out
    assert "imported from vllm bench serve" in out
    assert "✔ e2e_p50<1m: met" in out
    listed = told(capsys, "runs", "--database", path)
    assert "imported (vllm bench serve)" in listed
    (run,) = told_json(capsys, "import", str(fixture("guidellm-0.8-constant.json")), "--database",
                       path)  # fmt: skip
    assert run["run"] == 2
    assert run["summary"]["source"]["format"] == "guidellm"


def test_export_and_import_give_the_same_run(
    database: str, tmp_path: Path, capsys: Capture
) -> None:
    copy = str(tmp_path / "copy.db")
    for form in ("jsonl", "parquet"):
        file = str(tmp_path / f"x.{form}")
        assert main(["export", "1", "--database", database, "--output", file]) == 0
        assert main(["import", file, "--database", copy, "--quiet"]) == 0
    capsys.readouterr()
    first, second = told_json(capsys, "runs", "--database", copy)
    (original, *_) = told_json(capsys, "runs", "--database", database)
    for run in (first, second):
        assert run["figures"] == original["figures"]
        assert run["verdict"] == original["verdict"] == "pass"
        assert run["started_at_s"] == original["started_at_s"]


def test_rejudge_changes_nothing_that_is_stored(database: str, capsys: Capture) -> None:
    before = told_json(capsys, "runs", "--database", database)
    out = told(capsys, "rejudge", "1", "2", "--slo", "ttft_p95<150ms", "--database", database,
               code=1)  # fmt: skip
    assert "run 1" in out
    assert "✔" in out
    assert "✘" in out
    assert "2 runs: 1 met, 1 missed, 0 undecided" in out
    as_json = told_json(capsys, "rejudge", "1", "--slo", "ttft_p95<150ms", "--slo",
                        "output_tps>1", "--database", database)  # fmt: skip
    assert [c["state"] for c in as_json["runs"][0]["verdict"]["clauses"]] == ["pass", "pass"]
    assert as_json["runs"][0]["stored_verdict"] == "pass"
    assert told_json(capsys, "runs", "--database", database) == before


def test_a_run_in_which_nothing_ended_has_no_data(tmp_path: Path, capsys: Capture) -> None:
    path = str(tmp_path / "s.db")
    with open_database(path) as opened:
        store(opened, made([running(i, i / 10) for i in range(21)], slo="ttft_p95<100ms"))
    out = told(capsys, "rejudge", "1", "--slo", "tpot_p95<50ms", "--database", path)
    assert "? no data" in out
    assert "tpot_p95<50ms: no data: 21 unfinished requests had shown no tpot" in out
    assert "1 run: 0 met, 0 missed, 1 undecided" in out


def test_compare_says_what_is_worse(database: str, tmp_path: Path, capsys: Capture) -> None:
    page = tmp_path / "c.html"
    out = told(capsys, "compare", "1", "2", "--database", database, "--html", str(page), code=1)
    assert "B is worse in ttft_p95" in out
    assert "paired by request" in out
    assert any(line.startswith("  output_tps, total_tps, rps: ") for line in out.splitlines())
    assert "▼ worse" in page.read_text()
    back = told(capsys, "compare", "2", "1", "--database", database)
    better, others = back.splitlines()[-1].split(" and not shown to be worse in ")
    assert better.startswith("B is better in ttft_p95")
    assert "ttft_p95" not in others
    same = told_json(capsys, "compare", "1", "3", "--database", database, "--slo",
                     "ttft_p95<100ms")  # fmt: skip
    assert same["worse"] == []
    assert same["figures"]["ttft_p95"]["ratio"] == pytest.approx(1.0)
    assert same["deciding"] == ["ttft_p95", "output_tps"]


def test_compare_doubts_what_is_not_comparable(database: str, capsys: Capture) -> None:
    out = told(capsys, "compare", "1", str(fixture("guidellm-0.8-constant.json")), "--database",
               database, code=1)  # fmt: skip
    assert "warning: another model" in out
    assert "warning: another workload" in out
    assert "warning: other seeds" not in out
    assert "measured by slotune against guidellm" in out
    assert "itl not compared: GuideLLM" in out
    assert "itl_p95" not in out.split("warning: itl")[0]


def study_under(path: str, name: str, loads: Sequence[str]) -> None:
    slos = "ttft_p95<500ms"
    outcomes = [
        measured(DEFAULTS, stage="baseline", seed=seed, at_s=20.0 * seed, load=load,
                 ttft_s=0.1 * (1 + place), slos=slos)
        for seed in range(2) for place, load in enumerate(loads)
    ]  # fmt: skip
    store_study(Path(path), outcomes, name=name, loads=loads, slos=slos)


SHORT, LONG = "prompt=64,output=8,rate=10", "prompt=128,output=8,rate=5"


def test_several_loads_are_compared_each_for_itself(tmp_path: Path, capsys: Capture) -> None:
    path = str(tmp_path / "loads.db")
    study_under(path, "two", [SHORT, LONG])
    study_under(path, "one", [SHORT])
    study_under(path, "three", [SHORT, LONG])
    study_under(path, "other", ["prompt=9,output=8,rate=5"])
    found = told_json(capsys, "compare", "two:baseline", "three:baseline", "--database", path)
    assert [one["load"] for one in found["loads"]] == [SHORT, LONG]
    first, second = (one["figures"]["ttft_p50"]["a"]["value"] for one in found["loads"])
    assert second == pytest.approx(2 * first, rel=0.05)  # not one percentile of both
    text = told(capsys, "compare", "two:baseline", "three:baseline", "--database", path)
    assert text.startswith(f"load {SHORT}\nA: ")
    assert f"\n\nload {LONG}\nA: " in text
    single = told(capsys, "compare", "two:baseline", "one:baseline", "--database", path)
    assert "another workload" not in single
    assert single.endswith(f"not compared: load {LONG}, under which only one side was measured\n")
    assert single.count(LONG) == 1
    words = ["compare", "two:baseline", "other:baseline", "--database", path]
    assert main(words) == 2
    assert "no load is common to both" in capsys.readouterr().err
    page = ["--html", str(tmp_path / "c.html")]
    assert main(["compare", "two:baseline", "three:baseline", "--database", path, *page]) == 2
    assert "--html shows one load" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["export", "9"], "there is no run 9"),
        (["export", "1", "--format", "parquet"], "give --output FILE"),
        (["export", "1", "--output", "/nowhere/x.jsonl"], "/nowhere/x.jsonl cannot be written"),
        (["export", "1", "--format", "html", "--output", "/nowhere/x"], "cannot be written"),
        (["import", "missing.json"], "cannot be read"),
        (["rejudge", "1", "--slo", "ttft_p95<500"], "unit"),
        (["rejudge", "1", "--slo", "rps>1", "--price-per-hour", "0"], "more than 0"),
        (["rejudge", "nothing", "--slo", "rps>1"], "is no run"),
        (["compare", "1", "x:best"], "no study named 'x'"),
        (["compare", "1", "2", "--html", "/nowhere/c.html"], "cannot be written"),
        (["runs", "--study", "x"], "no study named 'x'"),
        (["runs", "--last", "-1"], "--last must be 0 or more"),
        (["runs", "7"], "there is no run 7"),
    ],
)
def test_faults_are_one_sentence(
    words: list[str], says: str, database: str, capsys: Capture
) -> None:
    assert main([*words, "--database", database]) == 2
    message = capsys.readouterr().err
    assert says in message
    assert "Traceback" not in message


def test_there_is_no_database(tmp_path: Path, capsys: Capture) -> None:
    missing = str(tmp_path / "none.db")
    for words in (["runs"], ["export", "1"], ["rejudge", "s", "--slo", "rps>1"]):
        assert main([*words, "--database", missing]) == 2
        assert capsys.readouterr().err.count("\n") <= 1
    assert not Path(missing).exists()
