"""`dashboard serve` finds faults before it starts, in one sentence, with exit code 2."""

import socket

import pytest

from dashboard.cli import main


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--url", "localhost:8000"], ["--url", "http://host:port"]),
        (["--url", "ftp://host"], ["--url", "http://host:port"]),
        (["--url", "http://host:99999"], ["--url", "not a URL"]),
        (["--prometheus", "nonsense"], ["--prometheus", "http://host:port"]),
        (["--url", "http://a", "--prometheus", "http://b"], ["exclude each other"]),
        (["--port", "70000"], ["--port 70000", "65535"]),
        (["--refresh", "0"], ["--refresh", "0.5 to 300"]),
        (["--host", "no.such.host.invalid"], ["--host", "no.such.host.invalid"]),
        (["--slo", "ttft_p95"], ["ttft_p95"]),
        (["--slo", "ttft_p95<500"], ["unit"]),
        (["--database", "mysql://host/db"], ["--database", "mysql", "postgresql://"]),
    ],
)
def test_one_sentence_and_exit_code_2(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--port", "0", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("dashboard: ")
    assert "Traceback" not in said
    for word in words:
        assert word in said


def test_port_in_use_is_found_before_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", "--port", str(port)]) == 2
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err
