"""`tuner diagnose` against a server that answers with recorded expositions."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tuner.cli.main import main

FIXTURES = Path(__file__).parents[3] / "fixtures"


class Pages:
    """What /metrics answers: the last page for ever, the ones before it once each."""

    def __init__(self, *pages: str) -> None:
        self.pages = list(pages)

    def next(self) -> bytes:
        return (self.pages.pop(0) if len(self.pages) > 1 else self.pages[0]).encode()


@pytest.fixture
def serve() -> Iterator[object]:
    servers: list[ThreadingHTTPServer] = []

    def start(*pages: str) -> str:
        answers = Pages(*pages)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = self.path == "/metrics"
                body = answers.next() if found else b"{}"
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def page(name: str) -> str:
    return (FIXTURES / f"vllm-0.32-cpu-{name}.txt").read_text()


QUICK = ["--interval", "200ms", "--watch-for", "2s", "--quiet"]


def starving() -> tuple[str, ...]:
    """Idle long enough that the window surely begins before the load."""
    return page("idle"), page("idle"), page("idle"), page("kv-starved")


def test_starved_server_is_critical_and_names_kv(serve, capsys, tmp_path) -> None:  # type: ignore[no-untyped-def]
    database = tmp_path / "found.db"
    url = serve(*starving())
    code = main(["diagnose", "--url", url, *QUICK, "--slo", "ttft_p95<500ms", "--json",
                 "--store", str(database)])  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    assert code == 4
    assert found["headline"].startswith("KV-bound")

    from storage import open_database

    stored = open_database(str(database), read_only=True)
    try:
        assert {finding.node for finding in stored.list_findings()} >= {"3a.kv", "6"}
    finally:
        stored.close()


def test_idle_server_exits_0(serve, capsys) -> None:  # type: ignore[no-untyped-def]
    assert main(["diagnose", "--url", serve(page("idle")), *QUICK]) == 0
    assert "No traffic" in capsys.readouterr().out


def of_two_models(text: str) -> str:
    """The same page, with another model's series beside each of its own."""
    lines = text.splitlines()
    return "\n".join(lines + [line.replace('"smollm2"', '"other"') for line in lines
                              if 'model_name="smollm2"' in line]) + "\n"  # fmt: skip


def test_two_models_are_a_warning_and_one_of_them_is_judged(serve, capsys) -> None:  # type: ignore[no-untyped-def]
    pages = [of_two_models(text) for text in starving()]
    mixed = ["diagnose", "--url", serve(*pages), *QUICK, "--slo", "ttft_p95<500ms"]
    assert main(mixed) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "2 models mixed: other, smollm2" in told
    assert "--label model_name=other" in told
    one = ["diagnose", "--url", serve(*pages), *QUICK, "--slo", "ttft_p95<500ms", "--json",
           "--label", "model_name=smollm2"]  # fmt: skip
    assert main(one) == 4
    found = json.loads(capsys.readouterr().out)
    assert found["headline"].startswith("KV-bound")
    assert found["config"]["num_kv_blocks"] == "40"  # of the process: under no model's label


def test_a_label_that_no_series_has_is_refused(serve, capsys) -> None:  # type: ignore[no-untyped-def]
    url = serve(page("idle"))
    assert main(["diagnose", "--url", url, *QUICK, "--label", "model_name=gpt"]) == 2
    assert "no engine's series there has the label model_name=gpt" in capsys.readouterr().err


def test_settings_are_taken(serve, capsys) -> None:  # type: ignore[no-untyped-def]
    url = serve(*starving())
    main(["diagnose", "--url", url, *QUICK, "--json", "--set", "max_num_seqs=13"])
    nodes = {n["key"]: n for n in json.loads(capsys.readouterr().out)["nodes"]}
    assert nodes["3a.seq_cap"]["value"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--url", "http://127.0.0.1:9"], "no metrics"),
        (["--url", "nonsense"], "nonsense"),
        (["--url", "http://127.0.0.1:9", "--set", "max_num_seqs"], "KNOB=VALUE"),
        (["--url", "http://127.0.0.1:9", "--set", "foo=1"], "--set foo: the diagnosis knows no"),
        (["--url", "http://127.0.0.1:9", "--set", "max_num_seq=8"], "did you mean max_num_seqs?"),
        (["--url", "http://127.0.0.1:9", "--set", "max_num_seqs=nan"], "a whole number above 0"),
        (["--url", "http://127.0.0.1:9", "--set", "max_num_seqs=-5"], "a whole number above 0"),
        (["--url", "http://127.0.0.1:9", "--label", "job=a"], "--label job: Prometheus adds that"),
        (["--url", "http://127.0.0.1:9", "--slo", "ttft_p95"], "ttft_p95"),
        (["--url", "http://127.0.0.1:9", "--thresholds", "/none.toml"], "cannot be read"),
    ],
)
def test_bad_input_exits_2_with_one_sentence(  # type: ignore[no-untyped-def]
    arguments: list[str], says: str, capsys
) -> None:
    assert main(["diagnose", *arguments, "--quiet"]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert "Traceback" not in err


@pytest.mark.parametrize("flag", ["--database", "--store"])
@pytest.mark.parametrize("path", [__file__, "/no/such/folder/x.db"])
def test_a_database_is_looked_at_before_the_server(flag: str, path: str, capsys) -> None:  # type: ignore[no-untyped-def]
    assert main(["diagnose", "--url", "http://127.0.0.1:9", flag, path, "--quiet"]) == 2
    assert f"the database {path} cannot be opened" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["--url", "a", "--prometheus", "b"],
                                       ["--url", "a", "--window", "soon"]])  # fmt: skip
def test_argument_faults_exit_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["diagnose", *arguments])
    assert left.value.code == 2


def test_page_of_no_engine_is_refused(serve, capsys) -> None:  # type: ignore[no-untyped-def]
    url = serve("# TYPE up gauge\nup 1\n")
    assert main(["diagnose", "--url", url, *QUICK]) == 2
    assert "exports no slotune" in capsys.readouterr().err
