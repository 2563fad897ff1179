"""Node 3e: what a kept run's clients saw against the server's own figure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage import Database, open_database
from tests.tuner.diagnosis.cases import SLOS, signals
from tuner.diagnosis import State, diagnose
from tuner.diagnosis.client_side import MAX_AGE_S, client_readings
from tuner.records import RequestRecord, to_columns
from tuner.server_side import ServerSide

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


def keep(database: Database, *, url: str = URL, server_count: float = COUNT) -> None:
    """Clients saw 900 ms, the server counted 100 ms."""
    server = ServerSide(
        prompt_tokens=8.0 * COUNT, generation_tokens=1.0 * COUNT, preemptions=0.0,
        prefix_hit_rate=None, finished=server_count, queue_mean_s=0.0, first_tokens=COUNT,
        ttft_mean_s=0.1,
    )  # fmt: skip
    database.add_measurement(
        stage="bench", config={"url": url}, started_at_s=NOW_S - 100, duration_s=60.0,
        summary={"window_s": [0.0, 60.0]}, server=server.as_dict(),
        records=to_columns([record(index, 0.9) for index in range(COUNT)]),
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
