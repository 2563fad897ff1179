"""How a measurement ends before its time, and that what was measured until then is kept."""

from __future__ import annotations

import contextlib
import itertools
import math
import signal
import time
from typing import Any

import pytest

from tests.tuner.fake_server import HANG, FakeServer, Reply, answer, steps, text
from tests.tuner.measure.benching import bench
from tuner.measure import Measurement, MeasurementInterrupted, Sending
from tuner.measure import run as module
from tuner.measure.progress import Progress
from tuner.slo import judge, parse_slos


def test_open_loop_ends_with_its_last_request() -> None:
    with FakeServer() as server:
        began_s = time.monotonic()
        made = bench(server, "prompt=8,output=4,rate=100", max_requests=5, duration_s=120)
    assert time.monotonic() - began_s < 60
    assert made.counts["ok"] == 5


@pytest.mark.parametrize("ending", ["requests", "caller"])
def test_what_was_sent_to_a_server_that_hung_counts(ending: str) -> None:
    """Also where sending ended before its time: ten answers are not the whole run."""

    def script(index: int, body: dict[str, Any]) -> Reply:
        return answer(body) if index < 10 else steps(HANG)

    ends: dict[str, dict[str, Any]] = {
        "requests": {"max_requests": 40},
        "caller": {"should_stop": lambda load, _: len(load.records) >= 40},
    }
    with FakeServer(script) as server:
        made = bench(server, "prompt=8,output=4,rate=20,arrivals=constant", duration_s=30,
                     sending=Sending(drain_s=0.2), **ends[ending])  # fmt: skip
        found = judge(parse_slos(["ttft_p50<10ms"]), made)
    assert made.counts["ok"] == 10
    assert made.counts["censored"] >= 30
    assert made.counts["warmup"] == 0
    assert found.state == "fail"


def test_hanging_requests_are_censored_with_what_was_seen() -> None:
    def script(index: int, body: dict[str, Any]) -> Reply:
        return steps(HANG) if index % 2 else answer(body)

    with FakeServer(script) as server:
        made = bench(
            server, "prompt=8,output=4,rate=20", sending=Sending(drain_s=0.5), slo="e2e_p50<200ms"
        )
        found = judge(parse_slos(["e2e_p50<200ms"]), made)
    assert made.counts["censored"] >= 5
    assert made.counts["censored"] + made.counts["ok"] == made.counts["sent"]
    assert found.state != "pass"
    assert found.clauses[0].estimate.high == math.inf
    cut = [record for record in made.records if record.state == "censored"]
    assert all(record.end_s >= 1.5 for record in cut)  # the window and its drain
    assert server.hung_up == made.counts["censored"]


def test_stop_on_evidence_and_progress() -> None:
    seen = []
    with FakeServer() as server:
        made = bench(
            server, duration_s=60, on_progress=seen.append,
            should_stop=lambda load, window_start_s: len(load.records) > 20,
        )  # fmt: skip
    assert made.duration_s < 30
    assert made.counts["ok"] > 20
    assert seen[-1].completed > 0
    assert seen[0].total_s == 60


def test_interrupt_closes_every_connection() -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with FakeServer(lambda _, __: steps(text("a"), HANG)) as server:
        with pytest.raises(KeyboardInterrupt):
            bench(server, duration_s=60, on_progress=interrupt)
        for _ in range(100):
            if server.hung_up == 2:
                break
            time.sleep(0.02)
        assert server.hung_up == 2


def test_ctrl_c_waits_for_no_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[bool] = []

    class Watched:
        def result(self, _: float, *, wait: bool = True) -> None:
            waited.append(wait)

    def ctrl_c(progress: Progress) -> None:
        if progress.completed:
            raise KeyboardInterrupt

    monkeypatch.setattr("tuner.measure.run.watching", lambda *_: contextlib.nullcontext(Watched()))
    with FakeServer() as server:
        with pytest.raises(MeasurementInterrupted) as stopped:
            bench(server, duration_s=170, on_progress=ctrl_c)
        bench(server, max_requests=2)
    assert stopped.value.made.counts["ok"] > 0
    assert waited == [False, True]


def test_fault_in_a_callback_is_raised() -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError

    with FakeServer() as server, pytest.raises(ZeroDivisionError):
        bench(server, duration_s=170, on_progress=broken)


def test_ctrl_c_after_the_load_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the figures are computed, or the server is asked for its own."""
    summarize = module.summarize
    calls = itertools.count()

    def interrupted_once(*args: Any) -> Measurement:
        if next(calls) == 0:
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)  # pressed twice
        return summarize(*args)

    monkeypatch.setattr(module, "summarize", interrupted_once)
    with FakeServer() as server, pytest.raises(MeasurementInterrupted) as stopped:
        bench(server, max_requests=5)
    assert stopped.value.made.counts["ok"] == 5
    assert stopped.value.made.ended_why == ("interrupted after the load, which was measured whole")
