"""Every query that a diagnosis shows is PromQL, and Prometheus answers it with the same figure."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from storage.sources.prometheus import PrometheusSource
from tests.storage.sources.backfill import serving_prometheus
from tests.tuner.diagnosis.test_two_replicas import two
from tuner.diagnosis import Signals, collect

START_S = 1_700_000_000.0
PAGES = 140
INTERVAL_S = 5.0
NOW_S = START_S + (PAGES - 1) * INTERVAL_S + 1.3


def page(age_s: float) -> str:
    """The queue grows, and others wait half of the time."""
    text = two(age_s) + f"process_start_time_seconds {START_S - 1000}\n"
    waiting = 0 if age_s % 10 else 4 + age_s // 100
    return text.replace('"} 6\n', f'"}} {waiting}\n')


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusSource]:
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        pytest.skip("prometheus is not installed: no query was put to it")
    pages = [(START_S + INTERVAL_S * i, page(1000 + INTERVAL_S * i)) for i in range(PAGES)]
    with serving_prometheus({"two": pages}, tmp_path_factory.mktemp("two")) as url:
        source = PrometheusSource(url, scrape_interval_s=INTERVAL_S, labels={"instance": "two"})
        yield source
        source.close()


@pytest.fixture
def seen(asked: PrometheusSource, monkeypatch: pytest.MonkeyPatch) -> Signals:
    monkeypatch.setattr("time.time", lambda: NOW_S)
    return collect(asked, window_s=60.0, at_s=NOW_S)


def test_every_reading(asked: PrometheusSource, seen: Signals) -> None:
    told = {name: r for name, r in seen.readings.items() if r.ok and name != "waiting_growing_s"}
    assert len(told) > 25
    for name, reading in told.items():
        values = [value for _, value in asked.client.vector(reading.query, NOW_S)]
        # A subquery's steps lie at multiples of its step, ours end now: the ends may differ.
        apart = 2 * INTERVAL_S / 60 if "s:" in reading.query else 1e-6
        assert values == [pytest.approx(reading.value, rel=apart, abs=apart)], (name, reading.query)


def test_the_growth_of_the_queue_is_told_by_its_course(
    asked: PrometheusSource, seen: Signals
) -> None:
    query, params = seen["waiting_growing_s"].query, {"time": f"{NOW_S:.3f}"}
    [course] = asked.client.call(lambda connect: connect.custom_query(query, params=params))
    assert len(course["values"]) == pytest.approx(60, abs=1)


def test_every_part_of_a_breakdown(asked: PrometheusSource, seen: Signals) -> None:
    parts = {name: part for name, part in seen.breakdowns.items() if part}
    assert parts.keys() >= {"running_by_replica", "tokens_by_replica", "ttft_by_replica"}
    for name, found in parts.items():
        query = next(iter(found.values())).query
        values = sorted(value for _, value in asked.client.vector(query, NOW_S))
        mine = sorted(reading.value or 0.0 for reading in found.values() if reading.ok)
        assert values == pytest.approx(mine), (name, query)
