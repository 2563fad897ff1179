"""Pages of each release, scraped and out of a Prometheus that holds them: the same signals, and
the same diagnosis."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from storage.sources import RecordedSource
from storage.sources.prometheus import PrometheusSource
from tests.storage.sources.backfill import Pages, serving_prometheus
from tests.tuner.diagnosis.cases import Clause, Slos
from tests.tuner.diagnosis.engine_pages import RELEASES, Release
from tuner.diagnosis import collect, diagnose
from tuner.diagnosis.registry import BREAKDOWNS, SPECS

SLOS = Slos((Clause("ttft", 0.5), Clause("tpot", 0.5)))
START_S = 1_700_000_000.0
INTERVAL_S = 5.0
WINDOW_S = 60.0
OFF_BEAT_S = 1.3

MOMENTS = {"before": 60.0, "kv-starved": 160.0, "after-load": 280.0}
"""Until when (seconds) a page is served; what is looked at lies a little before."""

CAUSES = {"before": [], "kv-starved": ["3a.kv"], "after-load": []}


def pages_of(release: Release) -> Pages:
    """Nothing served, the load begins, is starved of KV, and ends."""
    first = "idle" if release.counts_from_the_start else "unserved"
    script = ((60.0, first), (120.0, release.before), (160.0, "kv-starved"), (280.0, "after-load"))
    ages_s = [INTERVAL_S * i for i in range(int(script[-1][0] / INTERVAL_S))]
    return [
        (START_S + age_s, release.page(next(name for until_s, name in script if age_s < until_s)))
        for age_s in ages_s
    ]


RECORDINGS = {name: pages_of(release) for name, release in RELEASES.items()}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        pytest.skip("prometheus is not installed: parity was not tested")
    with serving_prometheus(RECORDINGS, tmp_path_factory.mktemp("releases")) as url:
        yield url


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", RELEASES)
def test_both_sources_tell_the_same(
    name: str, moment: str, prometheus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = START_S + MOMENTS[moment] - INTERVAL_S + OFF_BEAT_S
    monkeypatch.setattr("time.time", lambda: now_s)
    seen = [(at_s, page) for at_s, page in RECORDINGS[name] if at_s <= now_s]
    scraped = RecordedSource(seen, now_s=now_s, scrape_interval_s=INTERVAL_S)
    asked = PrometheusSource(prometheus, scrape_interval_s=INTERVAL_S, labels={"instance": name})
    mine, theirs = (collect(source, window_s=WINDOW_S, at_s=now_s) for source in (scraped, asked))
    asked.close()
    assert mine.dialect == theirs.dialect == RELEASES[name].dialect
    assert mine.config == theirs.config
    assert mine.models == theirs.models
    for signal in (spec.name for spec in SPECS):
        ours, other = mine[signal], theirs[signal]
        assert (ours.outcome, ours.bound) == (other.outcome, other.bound), (signal, ours, other)
        if ours.ok:
            assert ours.value == pytest.approx(other.value, rel=1e-6), (signal, ours, other)
    for split in (spec.name for spec in BREAKDOWNS):
        assert mine.of(split) == pytest.approx(theirs.of(split), rel=1e-6), split
    judged = [diagnose(signals, SLOS) for signals in (mine, theirs)]
    states = [{node.key: node.state for node in one.nodes} for one in judged]
    assert states[0] == states[1]
    assert [cause.key for cause in judged[0].causes] == CAUSES[moment]
    assert judged[1].traffic == ("no_traffic" if not CAUSES[moment] else "traffic")
