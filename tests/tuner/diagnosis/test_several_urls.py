"""`tuner diagnose --url A --url B`: replicas as one, and a dead one told."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from storage.sources.base import SourceStatus
from tests.storage.sources.serving import Serving, serving
from tests.tuner.diagnosis.cases import SLOS, signals
from tests.tuner.diagnosis.test_two_replicas import engine
from tuner.cli.main import main
from tuner.diagnosis import State, diagnose

QUICK = ["--interval", "200ms", "--watch-for", "2s", "--quiet", "--slo", "ttft_p95<500ms"]
NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def servers() -> Iterator[list[Serving]]:
    began_s = time.time() - 1000
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                serving(lambda: engine(time.time() - began_s, 'engine="0",model_name="m"'))
            )
            for _ in range(2)
        ]


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the diagnosis, its nodes by key)."""
    main(["diagnose", *words, *QUICK, "--json", "--set", "max_num_seqs=64"])
    found = json.loads(capsys.readouterr().out)
    return found, {node["key"]: node for node in found["nodes"]}


def test_two_replicas(servers: list[Serving], capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (server.url for server in servers)
    found, nodes = told(capsys, "--url", first, "--url", second)
    assert found["target"] == f"{first}, {second}"
    assert nodes["0"]["state"] == "ok"
    assert nodes["3a.seq_cap"]["value"] == 1.0
    assert "128 of 128 run" in nodes["3a.seq_cap"]["summary"]
    assert nodes["7"]["value"] == pytest.approx(1.0, abs=0.1)


def test_a_dead_replica_is_told_and_the_other_judged(
    servers: list[Serving], capsys: pytest.CaptureFixture[str]
) -> None:
    _, nodes = told(capsys, "--url", servers[0].url, "--url", NOBODY)
    trust = nodes["0"]
    assert trust["state"] == "warning"
    assert "1 of 2 targets give no metrics (127.0.0.1:9: " in trust["summary"]
    assert "what follows is of the others" in trust["summary"]
    assert "64 of 64 run" in nodes["3a.seq_cap"]["summary"]


@pytest.mark.parametrize(
    ("second", "says"), [(NOBODY, "is given twice"), ("http://127.0.0.1:19", "gives no metrics")]
)
def test_what_cannot_be_watched_exits_2(
    second: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", "--url", NOBODY, "--url", second, "--quiet"]) == 2
    assert says in capsys.readouterr().err


def test_a_silent_target_fires_and_bars_nothing() -> None:
    status = SourceStatus(True, 1.0, 0.0, 5.0, targets=(("a", ""), ("b", "no answer in time")))
    look = signals(kv_usage=0.99, preemptions=9.0)
    diagnosis = diagnose(replace(look, status=status), SLOS)
    assert diagnosis.node("0").state is State.WARNING
    assert "b: no answer in time" in diagnosis.node("0").summary
    assert diagnosis.node("6").firing
