"""`tuner workload record`: a text from metrics, a trace from a log, and what neither can tell."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import generate_latest

from storage.sources import RecordedSource
from tests.tuner.fake_server import FakeServer
from tuner.cli import workload as command
from tuner.errors import UserError
from tuner.workload import parse_workload
from tuner.workload.lengths import Lengths
from tuner.workload.record_log import read_log
from tuner.workload.record_metrics import Recorded, record

BUCKETS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000]


class Engine:
    """vLLM's metrics of finished requests."""

    def __init__(self, *, prefix_cache: str = "vllm:prefix_cache") -> None:
        self.registry = CollectorRegistry()
        self.prompts = Histogram(
            "vllm:request_prompt_tokens", "x", buckets=BUCKETS, registry=self.registry
        )
        self.outputs = Histogram(
            "vllm:request_generation_tokens", "x", buckets=BUCKETS, registry=self.registry
        )
        self.done = Counter(
            "vllm:request_success", "x", ["finished_reason"], registry=self.registry
        )
        if prefix_cache:
            self.queries = Counter(f"{prefix_cache}_queries", "x", registry=self.registry)
            self.hits = Counter(f"{prefix_cache}_hits", "x", registry=self.registry)
        self.done.labels("length").inc(0)

    def serve(self, prompts: list[int], outputs: list[int], hit_share: float = 0.0) -> None:
        for prompt, output in zip(prompts, outputs, strict=True):
            self.prompts.observe(prompt)
            self.outputs.observe(output)
            self.done.labels("length").inc()
            if hit_share:
                self.queries.inc(prompt)
                self.hits.inc(prompt * hit_share)

    def text(self) -> str:
        return generate_latest(self.registry).decode()


def recorded(
    prompts: list[int],
    outputs: list[int],
    hit_share: float = 0.0,
    prefix_cache: str = "vllm:prefix_cache",
) -> Recorded:
    engine = Engine(prefix_cache=prefix_cache)
    before = engine.text()
    engine.serve(prompts, outputs, hit_share)
    return record(RecordedSource([(0.0, before), (100.0, engine.text())]), 100.0, "engine")


def drawn(text: str, count: int = 4000) -> list[int]:
    lengths = parse_workload(f"prompt={text},output=1,rate=1").prompt
    rng = np.random.default_rng(0)
    return [lengths.draw(rng) for _ in range(count)]


def test_a_lognormal_is_found_again() -> None:
    made = recorded(drawn("lognormal(300,0.9)"), drawn("lognormal(80,0.7)"), hit_share=0.25)
    workload = parse_workload(made.text)
    assert workload.prompt.kind == workload.output.kind == "lognormal"
    assert workload.prompt.a == pytest.approx(300, rel=0.15)
    assert workload.prompt.b == pytest.approx(0.9, rel=0.15)
    assert workload.prompt.mean == pytest.approx(np.mean(drawn("lognormal(300,0.9)")), rel=0.01)
    assert workload.arrivals.level == pytest.approx(40, rel=0.01)
    assert made.samples == 4000
    notes = "\n".join(made.notes)
    assert "25% of prompt tokens were found in the prefix cache" in notes
    assert "not in the text" in notes
    assert "which came together no histogram tells" in notes
    assert workload.shared_prefix == 0


def test_two_kinds_of_requests_keep_their_quantiles() -> None:
    prompts = [30] * 2000 + [3000] * 2000
    made = recorded(prompts, [15] * 4000)
    workload = parse_workload(made.text)
    assert workload.prompt.kind == "quantiles"
    assert workload.prompt.mean == pytest.approx(np.mean(prompts), rel=0.02)
    assert "no lognormal fits" in made.notes[0]


def test_one_bucket_tells_the_mean_alone() -> None:
    made = recorded([256] * 100, [64] * 100)
    workload = parse_workload(made.text)
    assert workload.prompt == Lengths("fixed", 256.0)
    assert workload.output == Lengths("fixed", 64.0)
    assert "nearly all lie in one bucket" in made.notes[0]


def test_longer_than_the_last_bucket_is_said() -> None:
    made = recorded([20000] * 50 + [300] * 50, [64] * 100)
    assert "those beyond the last bucket as its 10000 tokens" in made.notes[0]


def test_few_requests_and_no_prefix_counters_are_said() -> None:
    notes = "\n".join(recorded([256] * 5, [64] * 5, prefix_cache="").notes)
    assert "only 5 requests" in notes
    assert "nothing is known of them" in notes


def test_an_older_engines_names_are_read() -> None:
    made = recorded([256] * 40, [64] * 40, 0.25, prefix_cache="vllm:gpu_prefix_cache")
    assert "25% of prompt tokens were found in the prefix cache" in "\n".join(made.notes)


def test_no_traffic_is_no_workload() -> None:
    with pytest.raises(UserError, match="no request finished in the window"):
        recorded([], [])


def test_no_histograms_is_no_workload() -> None:
    source = RecordedSource([(0.0, "vllm:num_requests_running 1\n")])
    with pytest.raises(UserError, match="exports none of vllm:request_prompt_tokens"):
        record(source, 10.0, "engine")


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(["record", *words]))


def test_url_records_since_the_engines_start(capsys: pytest.CaptureFixture[str]) -> None:
    engine = Engine()
    engine.serve(drawn("lognormal(300,0.9)", 500), drawn("lognormal(80,0.7)", 500))
    start = f"process_start_time_seconds {time.time() - 1000!r}\n"
    with FakeServer(metrics=lambda: engine.text() + start) as server:
        assert run("--url", server.url, "--json") == 0
    made = json.loads(capsys.readouterr().out)
    workload = parse_workload(made["workload"])
    assert workload.arrivals.level == pytest.approx(0.5, rel=0.02)
    assert made["samples"] == 500
    assert made["window_s"] == pytest.approx(1000, abs=60)


def test_url_without_its_start_gives_no_rate(capsys: pytest.CaptureFixture[str]) -> None:
    engine = Engine()
    engine.serve([256] * 50, [64] * 50)
    with FakeServer(metrics=engine.text) as server:
        assert run("--url", server.url) == 0
    out = capsys.readouterr().out
    assert out.startswith("prompt=256,output=64\n\nfrom 50 finished requests since the engine's")
    assert "the rate is not known, the target does not say when it started" in out


def test_url_may_be_watched(capsys: pytest.CaptureFixture[str]) -> None:
    engine = Engine()
    engine.serve([256] * 100, [64] * 100)

    def metrics() -> str:
        engine.serve([256] * 10, [64] * 10)
        return engine.text()

    with FakeServer(metrics=metrics) as server:
        assert run("--url", server.url, "--window", "4s", "--quiet") == 0
    assert capsys.readouterr().out.startswith("prompt=256,output=64,rate=")


JSON_LOG = "\n".join(
    json.dumps({"startTime": at, "usage": {"prompt_tokens": prompt, "completion_tokens": output}})
    for at, prompt, output in (
        ("2026-01-01T00:00:03.25Z", 7, 6),
        ("2026-01-01T00:00:01Z", 5, 9),
        ("2026-01-01T00:00:02Z", 5, 0),
    )
)


def test_json_log_becomes_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "my log.jsonl"
    log.write_text(JSON_LOG)
    assert run("--proxy-log", str(log)) == 0
    out = capsys.readouterr().out
    assert "1 line left out: no output tokens, the request failed" in out
    workload = parse_workload(out.splitlines()[0])
    assert list(workload.arrivals.times(0, 9.0)) == [0, 2.25]
    assert [workload.lengths(0, i)[:2] for i in range(2)] == [(5, 9), (7, 6)]
    with pytest.raises(UserError, match="exists already"):
        run("--proxy-log", str(log))


ACCESS_LOG = """\
10.0.0.1 - - [10/Oct/2026:13:55:36 +0200] "POST /v1/chat/completions HTTP/1.1" 200 2326 "-" "x"
10.0.0.1 - - [10/Oct/2026:13:55:38 +0200] "GET /health HTTP/1.1" 200 2
10.0.0.1 - - [10/Oct/2026:13:55:39 +0200] "POST /v1/chat/completions HTTP/1.1" 503 23
not a request

10.0.0.1 - - [10/Oct/2026:11:55:40 +0000] "POST /v1/completions HTTP/1.1" 200 2326
"""


def test_access_log_gives_times_alone(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_text(ACCESS_LOG)
    log = read_log(str(path))
    assert log.times_s == [0, 4]
    assert log.prompt_tokens is None
    assert log.left_out == {
        "other paths": 1, "not answered with 2xx": 1, "no request or no time in them": 1,
    }  # fmt: skip
    assert run("--proxy-log", str(path), "--json") == 0
    workload = parse_workload(f"trace={path}.csv,prompt=30,output=4")
    assert list(workload.arrivals.times(0, 9.0)) == [0, 4]
    assert any("whole seconds" in note for note in log.notes)
    assert any("no prompt and output tokens" in note for note in log.notes)


def test_log_with_iso_times(tmp_path: Path) -> None:
    path = tmp_path / "envoy.log"
    path.write_text(
        '[2026-11-30T10:00:00.250Z] "POST /v1/chat/completions HTTP/1.1" 200 - 1 2 3\n'
        '[2026-11-30T10:00:01.750Z] "POST /v1/chat/completions HTTP/1.1" 200 - 1 2 3\n'
    )
    assert read_log(str(path)).times_s == [0, 1.5]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        (
            '{"prompt_tokens": 3, "completion_tokens": 4}\n',
            "no column of times; name it with --time",
        ),
        ('{"time": 3, "completion_tokens": 0}\n', "no request with output tokens"),
        ('1.1.1.1 - - [10/Oct/2026:13:55:36 +0200] "GET /x HTTP/1.1" 200 1\n', "no line is a req"),
        ("\0\1\2", "log"),
    ],
)
def test_log_faults(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "log"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_log(str(path))
    assert says in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        ("--url", "http://127.0.0.1:9", "--label", "job=x"),
        ("--url", "http://127.0.0.1:9", "--output", "x"),
        ("--prometheus", "http://127.0.0.1:9", "--window", "soon"),
        ("--prometheus", "http://127.0.0.1:9"),
        ("--prometheus", "http://127.0.0.1:9", "--label", "job"),
        ("--proxy-log", "/none", "--window", "5m"),
        ("--proxy-log", "/none"),
    ],
)
def test_command_faults(words: tuple[str, ...]) -> None:
    with pytest.raises(UserError):
        run(*words)


def test_nothing_is_drawn_where_nothing_was_seen() -> None:
    made = recorded([30] * 2000 + [3000] * 2000, [15] * 4000)
    prompts = drawn(made.text.split(",output")[0].removeprefix("prompt="), 1000)
    assert sum(60 < prompt < 1500 for prompt in prompts) <= 2
    assert sum(prompt <= 60 for prompt in prompts) == pytest.approx(500, abs=60)


def test_a_device_is_no_log() -> None:
    with pytest.raises(UserError, match="/dev/zero is a device or a pipe"):
        read_log("/dev/zero")
