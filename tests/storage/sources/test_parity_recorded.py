"""Recorded expositions, asked of the scraper's arithmetic and of a Prometheus that holds the same
samples: equal to a float's last digits over resets, gaps, restarts, renamed metrics, replicas.

Prometheus is asked question by question, and all at once, as `collect` does.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from storage.sources import RecordedSource
from storage.sources.base import Agg, MetricSource, Outcome, RangeKind, Reading, Wanted
from storage.sources.prometheus import PrometheusSource
from tests.storage.sources.backfill import Pages, serving_prometheus

START_S = 1_700_000_000.0
INTERVAL_S = 5.0
SPAN_S = 1200.0
OFF_BEAT_S = 1.3
"""Questions are asked between two samples."""

AT_S = (205.0, 455.0, 655.0, SPAN_S)
WINDOWS_S = (20.0, 60.0, 300.0, 900.0)
FIXTURES = Path(__file__).parents[3] / "fixtures"
EXACT = 1e-6
"""Unix times hold 0.2 µs in a float, where Prometheus counts whole milliseconds."""


def counters(age_s: float, since_s: float = 0.0, labels: str = 'engine="0"') -> str:
    """Counters and a histogram that began at since_s."""
    grown = 7.0 * (age_s - since_s) + 40 * ((age_s - since_s) // 100)
    shares = {"0.1": 0.2, "0.5": 0.6, "1.0": 0.9, "+Inf": 1.0}
    buckets = [
        f'vllm:latency_seconds_bucket{{{labels},le="{le}"}} {grown * share}'
        for le, share in shares.items()
    ]
    return "\n".join(
        [
            *buckets,
            f"vllm:latency_seconds_sum{{{labels}}} {grown * 0.4 + (age_s // 60)}",
            f"vllm:latency_seconds_count{{{labels}}} {grown}",
            f'vllm:done_total{{{labels},finished_reason="stop"}} {grown}',
            f'vllm:done_total{{{labels},finished_reason="abort"}} {grown // 9}',
            f"vllm:num_requests_waiting{{{labels}}} {(age_s * 3) % 17}",
            "",
        ]
    )


def resets(age_s: float) -> str:
    """Four times, the last one soon outgrown."""
    since_s = max(at_s for at_s in (0.0, 190.0, 410.0, 600.0, 1150.0) if at_s <= age_s)
    return counters(age_s, since_s)


def gap(age_s: float) -> str | None:
    """Not watched for two minutes and a half, and once for a single scrape."""
    return None if 300 <= age_s < 450 or age_s == 1000 else counters(age_s)


def restart(age_s: float) -> str | None:
    """Down for forty seconds; the process that comes back began anew."""
    if 600 <= age_s < 640:
        return None
    since_s = 0.0 if age_s < 600 else 630.0
    return counters(age_s, since_s) + f"process_start_time_seconds {START_S + since_s}\n"


def renamed(age_s: float) -> str:
    old = "vllm:gpu_cache_usage_perc" if age_s < 600 else "vllm:kv_cache_usage_perc"
    page = counters(age_s)
    if age_s >= 600:
        page = page.replace("vllm:latency", "vllm:inter_token_latency")
    return f"{page}{old} {0.4 + (age_s % 50) / 100}\n"


def replicas(age_s: float) -> str:
    """Three, of which one is reset and one came later; two processes tell of the second's queue."""
    pages = [counters(age_s), counters(age_s, 0 if age_s < 500 else 500, 'engine="1"')]
    pages.append(f'vllm:num_requests_waiting{{engine="1",pid="9"}} {age_s % 23}\n')
    if age_s >= 350:
        pages.append(counters(age_s, 350, 'engine="2"'))
    return "".join(pages)


def as_recorded(age_s: float) -> str:
    """A vLLM that stands idle, is starved of KV, and has finished."""
    name = "idle" if age_s < 200 else "kv-starved" if age_s < 600 else "after-load"
    return (FIXTURES / f"vllm-0.32-cpu-{name}.txt").read_text()


SCRIPTS: dict[str, Callable[[float], str | None]] = {
    "resets": resets, "gap": gap, "restart": restart, "renamed": renamed, "replicas": replicas,
    "vllm": as_recorded,
}  # fmt: skip
SCRIPTED = (
    "vllm:latency_seconds", "vllm:done_total", "finished_reason", "vllm:num_requests_waiting",
)  # fmt: skip
NAMES: dict[str, tuple[str, str, str, str]] = dict.fromkeys(SCRIPTS, SCRIPTED) | {
    "vllm": ("vllm:time_to_first_token_seconds", "vllm:request_success_total", "finished_reason",
             "vllm:num_requests_waiting"),
}  # fmt: skip
"""Histogram, counter, its label and gauge that are asked about."""


def pages_of(script: Callable[[float], str | None]) -> Pages:
    ages_s = (INTERVAL_S * i for i in range(int(SPAN_S / INTERVAL_S) + 1))
    made = ((START_S + age_s, script(age_s)) for age_s in ages_s)
    return [(at_s, page) for at_s, page in made if page is not None]


RECORDINGS = {name: pages_of(script) for name, script in SCRIPTS.items()}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        pytest.skip("prometheus is not installed: parity was not tested")
    with serving_prometheus(RECORDINGS, tmp_path_factory.mktemp("recorded")) as url:
        yield url


ASKED = ("one by one", "at once")


@pytest.fixture(
    params=[(name, age_s, how) for name in SCRIPTS for age_s in AT_S for how in ASKED], ids=str
)
def both(
    request: pytest.FixtureRequest, prometheus: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, MetricSource, MetricSource, float]]:
    """(script, scraper's arithmetic, Prometheus, now)."""
    name, age_s, how = request.param
    now_s = START_S + age_s + OFF_BEAT_S
    seen = [(at_s, page) for at_s, page in RECORDINGS[name] if at_s <= now_s]
    mine = RecordedSource(seen, now_s=now_s, scrape_interval_s=INTERVAL_S)
    theirs = PrometheusSource(prometheus, scrape_interval_s=INTERVAL_S, labels={"instance": name})
    monkeypatch.setattr("time.time", lambda: now_s)
    yield name, mine, theirs if how == ASKED[0] else gathered(theirs, name), now_s
    theirs.close()


def gathered(source: MetricSource, name: str) -> MetricSource:
    """All that is asked about, read at once."""
    histogram, counter, _, gauge = NAMES[name]
    names = {counter, gauge, *(f"{histogram}_{end}" for end in ("bucket", "sum", "count"))}
    return source.at_once(Wanted(frozenset(names), max(WINDOWS_S)))


def same(mine: Reading, theirs: Reading) -> None:
    """Also where neither has a figure, and for the same reason."""
    assert mine.outcome is theirs.outcome, (mine, theirs)
    assert mine.bound == theirs.bound
    if mine.ok:
        assert mine.value == pytest.approx(theirs.value, rel=EXACT), (mine, theirs)
        assert mine.samples == theirs.samples
        assert mine.window_s == theirs.window_s


def test_windows(both: tuple[str, MetricSource, MetricSource, float]) -> None:
    name, mine, theirs, _ = both
    histogram, counter, by, _ = NAMES[name]
    for window_s in WINDOWS_S:
        same(mine.rate(counter, window_s), theirs.rate(counter, window_s))
        same(mine.increase(counter, window_s), theirs.increase(counter, window_s))
        same(mine.mean(histogram, window_s), theirs.mean(histogram, window_s))
        for q in (0.1, 0.5, 0.95):
            same(mine.quantile(histogram, q, window_s), theirs.quantile(histogram, q, window_s))
        for label in (by, "engine"):
            ours = mine.breakdown(counter, label, window_s)
            other = theirs.breakdown(counter, label, window_s)
            assert ours.keys() == other.keys()
            for key in ours:
                same(ours[key], other[key])


def test_gauges(both: tuple[str, MetricSource, MetricSource, float]) -> None:
    name, mine, theirs, _ = both
    gauge = NAMES[name][3]
    aggs: tuple[Agg, ...] = ("max", "sum", "min")
    for agg in aggs:
        assert mine.gauge(gauge, agg=agg).value == theirs.gauge(gauge, agg=agg).value
    for by in ("engine", "instance,engine"):
        ours, other = mine.breakdown(gauge, by), theirs.breakdown(gauge, by)
        values_ = [sorted(r.value or 0.0 for r in parts.values()) for parts in (ours, other)]
        assert values_[0] == values_[1]
        assert by != "engine" or ours.keys() == other.keys()


def test_ranges(both: tuple[str, MetricSource, MetricSource, float]) -> None:
    name, mine, theirs, now_s = both
    histogram, counter, _, gauge = NAMES[name]
    kinds: tuple[tuple[RangeKind, str], ...] = (
        ("rate", counter), ("mean", histogram), ("quantile", histogram),
    )  # fmt: skip
    for kind, metric in kinds:
        ours, other = (
            source.range(kind, metric, start_s=now_s - 150, end_s=now_s, step_s=25.0, window_s=60.0)
            for source in (mine, theirs)
        )
        assert [at_s for at_s, _ in ours] == [at_s for at_s, _ in other]
        assert values(ours) == pytest.approx(values(other), rel=EXACT), kind
    aggs: tuple[Agg, ...] = ("max", "sum")
    for agg in aggs:
        ours, other = (
            source.range("gauge", gauge, start_s=now_s - 150, end_s=now_s, step_s=5.0, agg=agg)
            for source in (mine, theirs)
        )
        assert values(ours) == values(other), agg


def values(points: Sequence[tuple[float, float | None]]) -> list[float]:
    """−1 where there is none."""
    return [-1.0 if value is None else value for _, value in points]


def test_the_scripts_hold_what_they_are_for() -> None:
    """A script that no longer resets, pauses or renames would prove nothing."""
    stops = {
        name: [
            parse(page, 'vllm:done_total{engine="0",finished_reason="stop"}')
            for _, page in RECORDINGS[name]
        ]
        for name in ("resets", "restart")
    }
    assert sum(b < a for a, b in pairwise(stops["resets"])) == 4
    assert sum(b < a for a, b in pairwise(stops["restart"])) == 1
    times_s = [at_s for at_s, _ in RECORDINGS["gap"]]
    assert max(b - a for a, b in pairwise(times_s)) == 155.0
    assert "kv_cache" in RECORDINGS["renamed"][-1][1]
    assert "kv_cache" not in RECORDINGS["renamed"][0][1]
    assert RECORDINGS["replicas"][-1][1].count("num_requests_waiting") == 4


def parse(page: str, key: str) -> float:
    [line] = [line for line in page.splitlines() if line.startswith(key)]
    return float(line.rpartition(" ")[2])


def test_a_renamed_metric_is_known_by_its_new_name_alone(
    prometheus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = START_S + SPAN_S + OFF_BEAT_S
    monkeypatch.setattr("time.time", lambda: now_s)
    theirs = PrometheusSource(prometheus, scrape_interval_s=5.0, labels={"instance": "renamed"})
    mine = RecordedSource(RECORDINGS["renamed"], now_s=now_s, scrape_interval_s=INTERVAL_S)
    for source in (mine, theirs):
        assert source.gauge("vllm:gpu_cache_usage_perc").outcome is Outcome.STALE
        assert source.gauge("vllm:kv_cache_usage_perc").outcome is Outcome.VALUE
    same(mine.mean("vllm:inter_token_latency_seconds", 900.0),
         theirs.mean("vllm:inter_token_latency_seconds", 900.0))  # fmt: skip
    theirs.close()


@pytest.mark.parametrize("name", ["resets", "gap"])
def test_how_far_back_a_prometheus_reaches(
    name: str, prometheus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also over a gap: what was counted in it the counters tell."""
    now_s = START_S + SPAN_S + OFF_BEAT_S
    monkeypatch.setattr("time.time", lambda: now_s)
    source = PrometheusSource(prometheus, scrape_interval_s=INTERVAL_S, labels={"instance": name})
    for window_s in (3600.0, 6 * 3600.0, 30 * 86_400.0):
        watched_s = source.over(window_s).status().watched_s
        assert watched_s == pytest.approx(SPAN_S + OFF_BEAT_S, abs=INTERVAL_S)
    assert source.over(SPAN_S - INTERVAL_S).status().watched_s is None  # the window, and more
    if name == "resets":  # a look trusts nothing before a gap of the last quarter of an hour
        look = source.at_once(Wanted(frozenset({"vllm:done_total"}), 3600.0))
        assert look.status().watched_s == pytest.approx(SPAN_S + OFF_BEAT_S, abs=INTERVAL_S)
    source.close()
