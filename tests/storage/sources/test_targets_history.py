"""Several targets' histories as one: kept of each by its own address, answered over all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from storage import open_database
from storage.history import History
from storage.location import history_beside
from storage.sources import open_source
from storage.sources.base import MetricSource
from storage.sources.fetch import metrics_url
from storage.sources.longterm import HistorySource
from storage.sources.targets import ScrapedTargets, instance_of
from tests.storage.conftest import wait_until
from tests.storage.sources.serving import Serving, serving
from tests.storage.sources.virtual import VirtualScrape

TOKENS, RUNNING = "vllm:generation_tokens_total", "vllm:num_requests_running"
HOUR_S = 3600.0
AGE_S = 2 * HOUR_S + 600
DEVICE = 'DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0"} 0.7\n'
NOBODY = "http://127.0.0.1:9"


def page(at_s: float, began_s: float, rate: float) -> str:
    """So many tokens a second; for ten seconds of each quarter of an hour more requests run."""
    running = 40 if at_s % 900 < 10 else 2
    return (
        f"process_start_time_seconds {began_s}\n"
        f'{RUNNING}{{engine="0"}} {running}\n'
        f'{TOKENS}{{engine="0",instance="inner"}} {rate * (at_s - began_s)}\n'
    )


def remembered(path: Path, url: str, began_s: float, rate: float, since_s: float = 0.0) -> None:
    """What a dashboard that watches the target alone has kept of it, from since_s on."""
    scrape = VirtualScrape(
        lambda: History(open_database(history_beside(str(path))), metrics_url(url)), interval_s=5.0
    )
    scrape.now_s = max(began_s, since_s)
    scrape.watch(time.time() - 30, lambda at_s: page(at_s, began_s, rate))
    scrape.close()


@pytest.fixture
def servers() -> Iterator[list[Serving]]:
    """100 tokens a second on the first, 300 on the second."""
    began_s = time.time() - AGE_S
    with ExitStack() as stack:
        yield [
            stack.enter_context(serving(lambda rate=rate: page(time.time(), began_s, rate)))
            for rate in (100.0, 300.0)
        ]


@pytest.fixture
def opened() -> Iterator[Callable[..., ScrapedTargets]]:
    sources: list[MetricSource] = []

    def start(path: Path, *urls: str, keep: bool = False, **labels: str) -> ScrapedTargets:
        source = open_source(
            url=urls, scrape_interval_s=0.2, database=str(path), keep=keep, labels=labels
        )
        assert isinstance(source, ScrapedTargets)
        sources.append(source)
        wait_until(lambda: source.status().up, "the first scrape")
        return source

    yield start
    for source in sources:
        source.close()


def test_long_windows_are_of_all_of_them_and_tell_them_apart(
    servers: list[Serving], opened: Callable[..., ScrapedTargets], tmp_path: Path
) -> None:
    path, began_s = tmp_path / "slotune.db", time.time() - AGE_S
    for server, rate in zip(servers, (100.0, 300.0), strict=True):
        remembered(path, server.url, began_s, rate)
    first, second = (instance_of(server.url) for server in servers)
    source = opened(path, *(server.url for server in servers))
    kept = source.over(2 * HOUR_S)
    assert isinstance(kept, HistorySource)
    assert kept.status().watched_s == pytest.approx(2 * HOUR_S, abs=70)
    assert dict(kept.status().targets) == {first: "", second: ""}
    assert kept.rate(TOKENS, 2 * HOUR_S).value == pytest.approx(400, rel=0.01)
    by = {name: r.value for name, r in kept.breakdown(TOKENS, "instance", 2 * HOUR_S).items()}
    assert by == {first: pytest.approx(7.2e5, rel=0.01), second: pytest.approx(2.16e6, rel=0.01)}
    mine = kept.rate(TOKENS, 2 * HOUR_S, {"instance": second})
    assert mine.value == pytest.approx(300, rel=0.01)
    assert list(kept.breakdown(TOKENS, "exported_instance", HOUR_S)) == ["inner"]
    assert kept.gauge(RUNNING, agg="sum").ok  # as it stands now, of both
    assert set(kept.breakdown(RUNNING, "instance")) == {first, second}
    end_s = time.time()
    shown = {
        kind: kept.range(kind, RUNNING, start_s=end_s - HOUR_S, end_s=end_s - 60, step_s=60.0,
                         window_s=60.0, agg="sum")
        for kind in ("gauge", "peak")
    }  # fmt: skip
    assert {value for _, value in shown["gauge"]} == {4.0}
    assert max(value for _, value in shown["peak"] if value is not None) == 80.0
    assert source.over(60.0) is source
    assert kept.rate("vllm:no_such_total", HOUR_S).value is None


def test_one_label_narrows_what_is_kept_too(
    servers: list[Serving], opened: Callable[..., ScrapedTargets], tmp_path: Path
) -> None:
    path, began_s = tmp_path / "slotune.db", time.time() - AGE_S
    for server, rate in zip(servers, (100.0, 300.0), strict=True):
        remembered(path, server.url, began_s, rate)
    wanted = instance_of(servers[1].url)
    source = opened(path, *(server.url for server in servers), instance=wanted)
    assert source.over(HOUR_S).rate(TOKENS, HOUR_S).value == pytest.approx(300, rel=0.01)


def test_a_window_reaches_no_further_back_than_each_was_watched(
    servers: list[Serving], opened: Callable[..., ScrapedTargets], tmp_path: Path
) -> None:
    """Else it would hold the growth of the first alone, as if the second had done nothing."""
    path, now_s = tmp_path / "slotune.db", time.time()
    remembered(path, servers[0].url, now_s - AGE_S, 100.0)
    source = opened(path, *(server.url for server in servers))
    assert source.over(2 * HOUR_S) is source  # nothing was kept of the second
    remembered(path, servers[1].url, now_s - AGE_S, 300.0, since_s=now_s - 1800)
    again = opened(path, *(server.url for server in servers))
    kept = again.over(2 * HOUR_S)
    watched_s = kept.status().watched_s or 0.0
    assert watched_s == pytest.approx(1800, abs=70)
    assert kept.rate(TOKENS, watched_s).value == pytest.approx(400, rel=0.05)


def test_one_that_gives_nothing_takes_no_history_from_the_others(
    servers: list[Serving], opened: Callable[..., ScrapedTargets], tmp_path: Path
) -> None:
    """A dead replica is named; a page of the devices holds nothing that is kept."""
    path = tmp_path / "slotune.db"
    remembered(path, servers[0].url, time.time() - AGE_S, 100.0)
    with serving(DEVICE) as devices:
        source = opened(path, servers[0].url, NOBODY, devices.url)
        kept = source.over(2 * HOUR_S)
        assert kept.rate(TOKENS, 2 * HOUR_S).value == pytest.approx(100, rel=0.01)
        assert "connection refused" in dict(kept.status().targets)["127.0.0.1:9"]


def test_each_is_kept_by_its_own_address_and_found_again(
    servers: list[Serving], opened: Callable[..., ScrapedTargets], tmp_path: Path
) -> None:
    path = tmp_path / "slotune.db"
    with serving(DEVICE) as devices:
        source = opened(path, *(server.url for server in (*servers, devices)), keep=True)
        for server in servers:
            wait_until(lambda server=server: server.asked > 1, "scrapes of each")  # type: ignore[misc]
        source.close()
    with open_database(history_beside(str(path)), read_only=True) as database:
        for server in servers:
            [point] = History(database, metrics_url(server.url)).read(60, 0.0)
            assert any(key.startswith(TOKENS) for key in point.layout.keys)
        assert History(database, metrics_url(devices.url)).read(60, 0.0) == []


def test_what_keeps_all_of_them_from_being_kept_is_told_once(
    servers: list[Serving], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none" / "slotune.db"
    source = open_source(
        url=[server.url for server in servers], scrape_interval_s=0.2, database=str(path)
    )
    wait_until(lambda: source.status().up, "the first scrape")
    assert source.over(HOUR_S) is source
    source.close()
    assert capsys.readouterr().err.count("metrics are not kept beyond 15 min") == 1
