"""`dashboard serve` finds faults before it starts, in one sentence, with exit code 2."""

import socket
from importlib.metadata import version

import pytest

from dashboard.cli import main


@pytest.mark.parametrize("words", [["--slo", "\x1b[2Jx"], ["--database", "x" * 5_000]])
def test_what_is_told_fits_a_terminal(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "0", *words]) == 2
    told = capsys.readouterr().err
    assert "\x1b" not in told
    assert len(told) < 900


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--url", "ftp://host"], ["--url", "http://HOST:PORT"]),
        (["--url", "http://host:99999"], ["--url", "is not an address"]),
        (["--prometheus", "some words"], ["--prometheus", "http://HOST:PORT"]),
        (["--url", "http://a", "--prometheus", "http://b"], ["exclude each other"]),
        (["--url", "http://a", "--url", "http://a/v1"], ["--url", "given twice"]),
        (["--port", "70000"], ["--port 70000", "65535"]),
        (["--refresh", "0"], ["--refresh", "0.5 to 300"]),
        (["--host", "no.such.host.invalid"], ["--host", "no.such.host.invalid"]),
        (["--host", "a..b"], ["--host 'a..b' is not an address"]),
        (["--host", "a" * 300], ["--host", "is not an address"]),
        (["--set", "foo=1"], ["--set foo", "knows no such setting"]),
        (["--set", "max_num_seqs=nan"], ["--set max_num_seqs", "a whole number above 0"]),
        (["--url", "http://a", "--url", "https://a"], ["--url", "given twice"]),
        (["--url", "http://a", "--label", "job=vllm"], ["--label job", "Prometheus adds that one"]),
        (["--url", "http://a", "--label", "instance=a"], ["--label instance", "the server's own"]),
        (["--label", "a=b"], ["--label", "--prometheus or --url"]),
        (["--slo", "ttft_p95"], ["ttft_p95"]),
        (["--slo", "ttft_p95<500"], ["unit"]),
        (["--database", "mysql://host/db"], ["--database", "mysql", "postgresql://"]),
        (["--database", "/tmp"], ["--database", "/tmp is a directory"]),
        (["--database", "/no/such/folder/s.db"], ["/no/such/folder does not exist"]),
        (["--database", __file__], ["--database", "not an SQLite database"]),
        (["--database", "/dev/zero"], ["--database", "not an SQLite database"]),
        (["--database", "sqlite:///" + "a" * 5000], ["--database", "too long"]),
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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "COMMAND"),
        (["serve", "--port", "many"], "invalid int value: 'many'"),
        (["serve", "--datab", "x.db"], "--datab"),
        (["serve", "--slo"], "expected one argument"),
    ],
)
def test_a_wrong_flag_is_one_line_without_the_usage(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.startswith("dashboard")
    assert len(said.splitlines()) == 1


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"slotune {version('slotune')}\n"


def test_port_in_use_is_found_before_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", "--port", str(port)]) == 2
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err
