"""`tuner bench` from the command line: table, JSON, storage, and what Ctrl-C keeps."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from storage import Measurement, open_database
from storage.errors import StorageError
from tests.tuner.cli.running import start, stop_when
from tests.tuner.fake_server import HANG, FakeServer, Reply, answer, refusal, steps, text
from tuner.cli.main import main
from tuner.errors import UserError
from tuner.records import from_columns

QUICK = ["--workload", "prompt=8,output=4,concurrency=2", "--warmup", "0s", "--max-requests", "70",
         "--duration", "20s"]  # fmt: skip


def test_table_and_stored_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "s.db")
    with FakeServer() as server:
        code = main(["bench", server.url, *QUICK, "--slo", "ttft_p95<30s", "--database", path])
    shown = capsys.readouterr()
    assert code == 0
    assert "95 % interval" in shown.out
    assert "✔ ttft_p95<30s: met, measured" in shown.out
    assert "verdict: met" in shown.out
    database = open_database(path, read_only=True)
    (stored,) = database.list_measurements(stage="bench")
    records = from_columns(database.load_records(stored.id))
    database.close()
    assert stored.state == "ok"
    assert len(records) == 70
    assert all(record.ok and len(record.chunk_times_s) == 4 for record in records)


def test_json_of_a_failed_slo(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeServer() as server:
        code = main(["bench", "--url", server.url, *QUICK, "--slo", "ttft_p95<1ns", "--json",
                     "--quiet", "--no-store", "--price-per-hour", "2"])  # fmt: skip
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert code == 1
    assert shown.err == ""
    assert found["verdict"]["state"] == "fail"
    assert found["figures"]["cost_per_mtok"]["value"] > 0
    assert found["counts"]["ok"] + found["counts"]["warmup"] == 70


def test_refusing_server_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeServer(lambda _, __: refusal()) as server:
        code = main(["bench", server.url, *QUICK, "--no-store"])
    shown = capsys.readouterr()
    assert code == 1
    assert "verdict: missed: every request failed" in shown.out
    assert "HTTP 503" in shown.out


def test_hanging_server_is_no_pass(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.measure.cautions.LAG_LIMIT_S", 60.0)  # a busy machine is no reason
    with FakeServer(lambda _, __: steps(HANG)) as server:
        options = ["--workload", "prompt=8,output=4,concurrency=2", "--warmup", "0s"]
        assert main(["bench", server.url, *options, "--duration", "1s", "--no-store"]) == 0
    assert "verdict: undecided: no request ended" in capsys.readouterr().out


def test_result_is_shown_though_it_cannot_be_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> int:
        raise StorageError("the disk is full")

    monkeypatch.setattr("tuner.cli.run_bench.store", full)
    with FakeServer() as server:
        code = main(["bench", server.url, *QUICK, "--database", str(tmp_path / "s.db")])
    shown = capsys.readouterr()
    assert code == 2
    assert "ttft_p95" in shown.out
    assert "the disk is full" in shown.err


def test_ctrl_c_closes_connections_and_exits_130(tmp_path: Path) -> None:
    with FakeServer(lambda _, __: steps(text("a"), HANG)) as server:
        process = start("bench", server.url, "--no-store", "--duration", "5m", cwd=tmp_path)
        _, err = stop_when(process, lambda: len(server.requests) == 16, signal.SIGINT)
        for _ in range(200):
            if server.hung_up == 16:
                break
            time.sleep(0.05)
        assert server.hung_up == 16
    assert process.returncode == 130
    assert "Traceback" not in err


def test_ctrl_c_keeps_and_shows_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with FakeServer(lambda _, body: answer(body, first_s=0.02)) as server:
        process = start("bench", server.url, "--duration", "5m", "--database", str(path),
                        cwd=tmp_path)  # fmt: skip
        out, _ = stop_when(process, lambda: len(server.requests) > 60, signal.SIGINT)
    assert process.returncode == 130
    assert "ended early: interrupted" in out
    assert "kept as run 1" in out
    database = open_database(str(path), read_only=True)
    (stored,) = database.list_measurements(stage="bench")
    records = from_columns(database.load_records(stored.id))
    database.close()
    assert stored.state == "aborted"
    assert stored.failure_reason == "interrupted"
    command = (stored.summary or {})["provenance"]["command"]
    assert command == f"tuner bench {server.url} --duration 5m --database {path}"
    assert sum(record.ok for record in records) >= 40


def test_same_content_sends_the_same_prompts_and_fresh_content_does_not() -> None:
    def prompts(*options: str) -> list[Any]:
        with FakeServer() as server:
            load = ["--workload", "prompt=8,output=2,concurrency=1", "--max-requests", "3"]
            main(["bench", server.url, *load, "--warmup", "0s", "--no-store", "--quiet", *options])
            return [body["prompt"] for body in server.requests]

    assert prompts("--same-content") == prompts("--same-content")
    assert prompts() != prompts()


def test_extra_body_html_and_crosscheck(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "run.html"
    tokens_done = {"n": 0}

    def metrics() -> str:
        return f"vllm:generation_tokens_total {tokens_done['n']}\n"

    def script(_: int, body: dict[str, Any]) -> Reply:
        tokens_done["n"] += 2 * body["max_tokens"]
        return answer(body)

    with FakeServer(script, metrics=metrics) as server:
        main(["bench", server.url, *QUICK, "--extra-body", '{"top_p": 0.5}', "--no-store",
              "--html", str(page)])  # fmt: skip
        assert all(body["top_p"] == 0.5 for body in server.requests)
    shown = capsys.readouterr().out
    assert "output tokens -50.0%" in shown
    assert "note: output tokens: client 280 tok, server 560 tok" in shown
    assert page.read_text().startswith("<!DOCTYPE html>")


def stored_run(path: Path) -> Measurement:
    with open_database(str(path), read_only=True) as database:
        (stored,) = database.list_measurements(stage="bench")
    return stored


@pytest.mark.parametrize(
    ("fault", "code"), [(KeyboardInterrupt(), 130), (UserError("it has gone"), 2)]
)
def test_the_load_is_kept_when_the_quality_check_ends_badly(
    fault: BaseException,
    code: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise fault

    monkeypatch.setattr("tuner.quality.quality_estimate", broken)
    task, path = tmp_path / "task.jsonl", tmp_path / "s.db"
    task.write_text('{"prompt": "2 + 2 =", "target": "4"}\n')
    with FakeServer() as server:
        options = ["--quality", str(task), "--database", str(path)]
        assert main(["bench", server.url, *QUICK, *options]) == code
    shown = capsys.readouterr().out
    assert "ttft_p95" in shown
    assert "quality check" in shown
    stored = stored_run(path)
    assert stored.state == "aborted"
    assert "quality check" in (stored.failure_reason or "")


def test_a_run_that_ended_when_it_was_decided_has_no_reason_of_failure(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    load = ["--workload", "prompt=8,output=4,concurrency=4", "--warmup", "0s", "--duration", "60s"]
    with FakeServer(lambda _, body: answer(body, first_s=0.01)) as server:
        main(["bench", server.url, *load, "--slo", "error_rate<50%", "--until-decided", "--quiet",
              "--database", str(path)])  # fmt: skip
    stored = stored_run(path)
    assert stored.state == "ok"
    assert "decided" in (stored.summary or {})["ended_why"]
    assert not stored.failure_reason
