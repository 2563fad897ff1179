"""`tuner bench` from the command line: one sentence for each fault."""

from __future__ import annotations

import resource
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.fake_server import HANG, FakeServer, Reply, steps
from tuner.cli.main import main


def test_too_few_open_files_are_no_fault_of_the_server(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.load.generator.allow_connections", lambda: None)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = len(list(Path("/proc/self/fd").iterdir()))

    def script(_: int, __: dict[str, Any]) -> Reply:
        return steps(HANG)

    with FakeServer(script) as server:
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken + 40, hard))
        try:
            code = main(["bench", server.url, "--workload", "prompt=8,output=4,concurrency=400",
                         "--no-store", "--duration", "60s"])  # fmt: skip
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert code == 2
    assert "ulimit -n" in capsys.readouterr().err


def test_other_web_page_and_wrong_key(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeServer(models_page=b"<html>hello</html>") as server:
        assert main(["bench", server.url, "--no-store"]) == 2
    assert "is not an OpenAI-compatible list of models" in capsys.readouterr().err
    with FakeServer(api_key="secret") as server:
        assert main(["bench", server.url, "--no-store", "--api-key", "guess"]) == 2
        assert server.requests == []
    assert "give --api-key" in capsys.readouterr().err


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
        (["--api-key", "two\nlines"], "--api-key"),
        (["--url", "http://127.0.0.1:9"], "two servers given"),
        (["--target", "slotune"], "starts a server, but"),
        (["--processes", "0"], "--processes must be 1 to 256"),
        (["--extra-body", "[1]"], "must be a JSON object"),
        (["--extra-body", "{"], "is no JSON"),
        (["--extra-body", '{"x": NaN}'], "is no JSON"),
        (["--extra-body", '{"x": 1e999}'], "is no JSON"),
        (["--extra-body", '{"x": "\\ud800"}'], "is no JSON"),
        (["--extra-body", "[" * 100_000], "is no JSON"),
        (["--slo", "accuracy>0.5"], "--quality FILE"),
        (["--slo", "cost_per_mtok<1"], "give --price-per-hour"),
        (["--prometheus", "http://127.0.0.1:9"], "--prometheus http://127.0.0.1:9: "),
        (["--token-timeout", "soon"], "no duration"),
        (["--until-decided"], "needs an --slo"),
        (["--html", "/nowhere/at/all.html"], "there is no folder"),
        (["--label", "job=vllm"], "give that too"),
        (["--prometheus", "http://h:1", "--label", "job"], "NAME=VALUE"),
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
    assert len(message) < 400


def test_a_negative_seed_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeServer() as server, pytest.raises(SystemExit) as ended:
        main(["bench", server.url, "--seed", "-1"])
    assert ended.value.code == 2
    assert "--seed" in capsys.readouterr().err


def test_a_server_that_cannot_score_is_told_before_the_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = tmp_path / "task.jsonl"
    task.write_text('{"question": "2 + 2 =", "choices": [" 4", " 5"], "answer": 0}\n')
    with FakeServer() as server:
        assert main(["bench", server.url, "--no-store", "--quality", str(task)]) == 2
        assert server.requests == []
    assert "echo and logprobs" in capsys.readouterr().err


def test_no_server_and_no_url(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench"]) == 2
    assert "no server given" in capsys.readouterr().err
    assert main(["bench", f"http://127.0.0.1:{free_port()}", "--no-store"]) == 2
    assert "nothing answers" in capsys.readouterr().err
