"""`tuner bench` from the command line: table, JSON, storage, and one sentence for each fault."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from storage import open_database
from tests.tuner.fake_server import FakeServer, refusal
from tuner.cli.main import main
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
    assert "✔ ttft_p95<30s: pass" in shown.out
    assert "verdict: pass" in shown.out
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
    assert found["counts"]["ok"] == 70


def test_refusing_server_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeServer(lambda _, __: refusal()) as server:
        code = main(["bench", server.url, *QUICK, "--no-store"])
    shown = capsys.readouterr()
    assert code == 1
    assert "verdict: fail: every request failed" in shown.out
    assert "HTTP 503" in shown.out


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--slo", "ttft_p95<500"], "unit"),
        (["--slo", "ttft_p95"], "quotes"),
        (["--workload", "prompt=x,output=1"], "no length"),
        (["--duration", "soon"], "no duration"),
        (["--duration", "0s"], "more than 0"),
        (["--max-requests", "0"], "at least 1"),
        (["--price-per-hour", "-1"], "more than 0"),
        (["--model", "other"], "it serves: fake"),
        (["--database", "/nowhere/at/all/s.db"], "/nowhere"),
    ],
)
def test_faults_are_one_sentence(
    options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeServer() as server:
        assert main(["bench", server.url, *options]) == 2
        assert server.requests == []
    message = capsys.readouterr().err
    assert says in message
    assert "Traceback" not in message


def test_no_server_and_no_url(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench"]) == 2
    assert "no server given" in capsys.readouterr().err
    assert main(["bench", f"http://127.0.0.1:{free_port()}", "--no-store"]) == 2
    assert "nothing answers" in capsys.readouterr().err
