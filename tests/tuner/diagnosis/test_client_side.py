"""Node 3e: what a kept run's clients saw against the server's own figure."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage import Database, open_database
from storage.sources.base import Outcome
from tests.storage.sources.serving import serving
from tests.tuner.diagnosis.cases import SLOS, signals
from tuner.diagnosis import NodeResult, State, diagnose
from tuner.diagnosis.client_side import MAX_AGE_S, client_readings, pooled_client_readings
from tuner.endpoint import Endpoint
from tuner.measure import Measurement
from tuner.records import RequestRecord, to_columns
from tuner.server_side import ServerSide
from tuner.slo import parse_slos
from tuner.verify.watch import seen_while
from tuner.workload import parse_workload

URL = "http://127.0.0.1:8123"
NOW_S = 1_800_000_000.0
COUNT = 40


def record(index: int, ttft_s: float) -> RequestRecord:
    made = RequestRecord(index=index, scheduled_s=float(index), session=index)
    made.sent_s, made.state = float(index), "ok"
    made.first_token_s = made.sent_s + ttft_s
    made.chunk_times_s, made.chunk_tokens = [made.first_token_s], [1]
    made.output_tokens, made.prompt_tokens = 1, 8
    return made


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(str(tmp_path / "runs.db"))
    yield opened
    opened.close()


def keep(
    database: Database, *, url: str = URL, server_count: float | None = None,
    requests: int = COUNT, seen_s: float = 0.9,
) -> None:  # fmt: skip
    """Clients saw 900 ms, the server counted 100 ms."""
    database.add_measurement(
        stage="bench", config={"url": url}, started_at_s=NOW_S - 100, duration_s=60.0,
        summary={"window_s": [0.0, 60.0]}, server=server_of(server_count, requests).as_dict(),
        records=to_columns([record(index, seen_s) for index in range(requests)]),
    )  # fmt: skip


def server_of(count: float | None = None, requests: int = COUNT) -> ServerSide:
    """That counted 100 ms."""
    return ServerSide(
        prompt_tokens=8.0 * requests, generation_tokens=1.0 * requests, preemptions=0.0,
        prefix_hit_rate=None, finished=requests if count is None else count, queue_mean_s=0.0,
        first_tokens=requests, ttft_mean_s=0.1,
    )  # fmt: skip


def node(database: Database, at_s: float = NOW_S) -> Any:
    base = signals()
    client = client_readings(database, URL, at_s)
    object.__setattr__(base, "readings", {**base.readings, **client})
    return diagnose(base, SLOS).node("3e")


def test_slow_clients_of_a_fast_server_are_told(database: Database) -> None:
    keep(database)
    found = node(database)
    assert found.state is State.WARNING
    assert found.value == pytest.approx(9.0)
    assert "900 ms" in found.summary
    assert "100 ms" in found.summary


@pytest.mark.parametrize(
    ("kept", "at_s", "why"),
    [
        ({"url": "http://127.0.0.1:9999"}, NOW_S, "no run of this server"),
        ({}, NOW_S + MAX_AGE_S, "min old"),
        ({"server_count": 3.0 * COUNT}, NOW_S, "cannot be compared"),
    ],
)
def test_a_run_that_cannot_speak_for_now_is_not_used(
    database: Database, kept: dict[str, Any], at_s: float, why: str
) -> None:
    keep(database, **kept)
    found = node(database, at_s)
    assert found.state is State.CANT_TELL
    assert why in found.summary
    assert "tuner bench" in found.how_to_get


OTHER = "http://127.0.0.1:8124"


def test_of_several_servers_each_ones_newest_load_counts_by_its_requests(
    database: Database,
) -> None:
    keep(database)
    keep(database, url=OTHER, requests=10, seen_s=0.4)
    seen = pooled_client_readings(database, [URL, OTHER], NOW_S)["client_ttft"]
    assert seen.value == pytest.approx((40 * 0.9 + 10 * 0.4) / 50)
    assert seen.samples == 50
    assert "run 1" in seen.query
    assert "run 2" in seen.query
    assert pooled_client_readings(database, [URL], NOW_S) == client_readings(database, URL, NOW_S)


def test_a_replica_that_no_load_was_sent_to_is_named(database: Database) -> None:
    keep(database)
    seen = pooled_client_readings(database, [OTHER, URL], NOW_S)
    assert seen["client_ttft"].value == pytest.approx(0.9)
    assert seen["client_ttft"].query.endswith(f"(none of {OTHER})")
    nothing = pooled_client_readings(database, [OTHER, "http://h:1"], NOW_S)["client_ttft"]
    assert nothing.outcome is Outcome.NO_DATA
    assert "no run of this server" in nothing.reason


def studied(database: Database, url: str = URL) -> None:
    """A trial of a study of that server."""
    study = database.create_study("a study", target={"kind": "slotune", "url": url})
    database.add_measurement(
        study_id=study.id, stage="baseline", config={"max_num_seqs": 8},
        started_at_s=time.time() - 60, duration_s=50.0, summary={"window_s": [0.0, 40.0]},
        server=server_of().as_dict(), records=to_columns([record(i, 0.9) for i in range(COUNT)]),
    )  # fmt: skip


def test_what_a_study_has_just_measured_of_the_server_tells_too(database: Database) -> None:
    studied(database)
    seen = client_readings(database, URL, time.time())
    assert (seen["client_ttft"].value, seen["client_server_ttft"].value) == (
        pytest.approx(0.9), 0.1,
    )  # fmt: skip
    assert (seen["client_ttft"].samples, seen["client_ttft"].window_s) == (COUNT, 40.0)
    late = client_readings(database, URL, time.time() + MAX_AGE_S + 10)
    other = client_readings(database, "http://127.0.0.1:9999", time.time())
    for none in (late, other):
        assert none["client_ttft"].outcome is Outcome.NO_DATA
        assert "no run of this server" in none["client_ttft"].reason


PAGE = (
    "vllm:num_requests_running 3\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0.2\n"
    'vllm:time_to_first_token_seconds_bucket{le="0.5"} 10\n'
    'vllm:time_to_first_token_seconds_bucket{le="+Inf"} 10\n'
    "vllm:time_to_first_token_seconds_sum 1\nvllm:time_to_first_token_seconds_count 10\n"
)


def load(server_count: float = COUNT) -> Measurement:
    return Measurement(
        Endpoint(URL, "m"), parse_workload("prompt=8,output=1,concurrency=1"), 0, (3.0, 40.0),
        NOW_S, [record(index, 0.9) for index in range(COUNT)], 0.0,
        server=server_of(server_count),
    )  # fmt: skip


def told_by(made: Measurement) -> NodeResult:
    with serving(PAGE) as server:
        _, seen = seen_while(server.url, {}, parse_slos(["ttft_p95<500ms"]), lambda: made)
    assert seen is not None
    return seen.diagnosis.node("3e")


def test_the_load_that_a_diagnosis_is_made_under_tells_what_its_clients_saw() -> None:
    found = told_by(load())
    assert found.state is State.WARNING
    assert found.value == pytest.approx(9.0)
    assert (found.samples, found.counted) == (COUNT, "requests")
    assert dict(found.evidence) == {
        "client − server": "800 ms",
        "clients": f"cross-check of the load just sent, {COUNT} requests in 40 s",
    }


def test_a_load_beside_other_clients_is_not_compared() -> None:
    found = told_by(load(server_count=3.0 * COUNT))
    assert found.state is State.CANT_TELL
    assert "the load just sent cannot be compared: other clients" in found.summary
