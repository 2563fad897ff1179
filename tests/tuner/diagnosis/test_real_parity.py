"""The embedded scraper and a real Prometheus tell the same of one running engine under load.

Both watch before the load begins and after it has ended, so that neither misses growth that the
other saw: what remains is when within an interval each of them scraped.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from storage.sources import open_source
from storage.sources.base import MetricSource, Reading
from tests.storage.conftest import wait_until
from tests.storage.sources.real_prometheus import prometheus_of
from tests.tuner.diagnosis.real_engine import Load
from tuner.budget.live import Seen, read_budgets
from tuner.diagnosis import Signals, collect
from tuner.diagnosis.registry import BREAKDOWNS, SPECS
from tuner.slo import parse_slos

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SCRAPE_S = 1.0
STILL_S = 4.0
LOAD_S = 15.0
TRIES = 4


@dataclass(frozen=True)
class Watched:
    """What both tell over one window with the whole load in it; tolerance: of a scrape's phase."""

    scraped: Signals
    asked: Signals
    sources: tuple[MetricSource, MetricSource]

    @property
    def tolerance(self) -> float:
        return 2 * SCRAPE_S / self.scraped.window_s


def settled(source: MetricSource) -> bool:
    return (source.status().watched_s or 0.0) > STILL_S


def under_load(engine: str, sources: tuple[MetricSource, MetricSource]) -> Watched | None:
    """None where either missed a scrape meanwhile, as on a busy machine, and rightly tells less."""
    began_s = time.monotonic()
    with Load(engine, clients=4, prompt_tokens=60, output_tokens=40).offered():
        time.sleep(LOAD_S)
    time.sleep(STILL_S)
    window_s = time.monotonic() - began_s + STILL_S / 2
    scraped, asked = (collect(source, window_s=window_s) for source in sources)
    whole = scraped.window_s == asked.window_s == window_s
    return Watched(scraped, asked, sources) if whole else None


@pytest.fixture(scope="module")
def watched(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed: parity was not tested")
    with prometheus_of(engine, tmp_path_factory.mktemp("prometheus")) as url:
        scraped = open_source(url=engine, scrape_interval_s=SCRAPE_S)
        asked = open_source(prometheus=url, scrape_interval_s=SCRAPE_S, labels={"job": "engine"})
        try:
            for _ in range(TRIES):
                for source in (scraped, asked):
                    wait_until(partial(settled, source), "the engine to be watched")
                if (found := under_load(engine, (scraped, asked))) is not None:
                    break
            assert found is not None, f"a scrape was missed in each of {TRIES} tries"
            yield found
        finally:
            scraped.close()
            asked.close()


GROWS_WHEN_STILL_S = {"idle_s": 2 * SCRAPE_S}
"""Of the one counter that goes on after the load: when the windows' last scrapes were."""


def same(name: str, mine: Reading, theirs: Reading, tolerance: float) -> None:
    assert mine.outcome is theirs.outcome, (name, mine, theirs)
    assert mine.bound == theirs.bound
    if mine.ok:
        said = (name, mine, theirs)
        apart = GROWS_WHEN_STILL_S.get(name, 1e-9)
        if mine.bucket is not None and theirs.bucket is not None:
            # Near an edge a scrape's phase moves a quantile into the bucket beside it.
            edges = zip(mine.bucket, theirs.bucket, strict=True)
            low, high = next(edges), next(edges)
            assert max(low) <= min(high), said
            return
        assert mine.value == pytest.approx(theirs.value, rel=tolerance, abs=apart), said


def test_every_signal_agrees(watched: Watched) -> None:
    scraped, asked = watched.scraped, watched.asked
    assert scraped.dialect == asked.dialect == "slotune"
    measured = 0
    for spec in SPECS:
        same(spec.name, scraped[spec.name], asked[spec.name], watched.tolerance)
        measured += scraped[spec.name].ok
    assert measured > 30
    assert (scraped.value("finished") or 0) > 10


def test_every_breakdown_agrees(watched: Watched) -> None:
    scraped, asked = watched.scraped, watched.asked
    for spec in BREAKDOWNS:
        mine, theirs = scraped.breakdowns[spec.name], asked.breakdowns[spec.name]
        assert mine.keys() == theirs.keys(), spec.name
        for key in mine:
            same(f"{spec.name} {key}", mine[key], theirs[key], watched.tolerance)


def test_what_is_told_of_the_engine_agrees(watched: Watched) -> None:
    scraped, asked = watched.scraped, watched.asked
    assert scraped.config == asked.config
    assert scraped.models == asked.models == ("tiny",)
    assert scraped.status.process_start_s == asked.status.process_start_s


def test_error_budgets_agree(watched: Watched) -> None:
    """Over what was watched; no burn window is: neither source may say otherwise."""
    slos = parse_slos(["ttft_p95<100ms", "error_rate<1%"])
    mine, theirs = (read_budgets(source, slos) for source in watched.sources)
    assert len(mine.found) == len(theirs.found) == 2
    for ours, other in zip(mine.found, theirs.found, strict=True):
        assert ours.over.seen is other.over.seen is Seen.VALUE
        assert ours.over.value == pytest.approx(other.over.value, abs=0.02)
        assert {burn.long.seen for burn in (*ours.burns, *other.burns)} == {Seen.SHORT}
