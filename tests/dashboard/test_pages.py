"""Overview and diagnosis in every state they can be in."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from dashboard import settings
from dashboard.settings import Settings
from storage.sources import RecordedSource
from storage.sources.base import Outcome, SourceStatus
from tests.dashboard.fake_source import FakeSource
from tests.dashboard.pages import Draw, Show, diagnosis, overview, text_of

ROOT = Path(__file__).parents[2]


def test_the_app_starts_on_the_overview(show: Show) -> None:
    app = AppTest.from_file(str(ROOT / "dashboard" / "app.py"), default_timeout=30).run()
    assert "No target" in text_of(app)


@pytest.mark.parametrize("page", [overview, diagnosis])
def test_without_a_target_the_page_says_how_to_give_one(
    show: Show, page: Callable[[], None]
) -> None:
    text = show(page)
    assert "No target" in text
    assert "dashboard serve --url" in text


def test_overview_under_traffic(show: Show) -> None:
    text = show(overview, FakeSource())
    for words in (
        "slotune", "smollm2-135m", "12 seq of 16", "46.3 % now · of 65,536 tok", "812 tok/s",
        "9.25 req/s last 1 min · n=555 requests · read 60 times",
        "n=48,732 tokens · read 60 times", "n=138,684 looked-up tokens", "no limit binds 55 %",
        "seq_cap 31.0 %", "TTFT", "210 ms",
        "ttft_p95<500ms", "missed", "Not judged from live metrics: output_tps>100",
    ):  # fmt: skip
        assert words in text
    assert "no traffic" not in text
    assert " samples" not in text
    assert re.search(r"555 ttft_p95<500ms [\d.–]+ % \([\d.]+ … [\d.]+\) missed", text)


def test_overview_without_traffic_shows_zero_and_no_traffic_apart(show: Show) -> None:
    text = show(overview, FakeSource(Outcome.NO_TRAFFIC))
    assert "Running 0 seq" in text
    assert "Generated tokens no traffic" in text
    assert "no traffic: no step ran" in text
    assert "missed" not in text


def test_overview_of_a_silent_target(show: Show) -> None:
    text = show(overview, FakeSource(Outcome.UNREACHABLE, reason="connection refused"))
    assert "down" in text
    assert "The target does not answer connection refused" in text
    assert "Running unreachable" in text
    assert " 0 " not in text.split("The target does not answer")[1].split("Last 5 min")[0]


@pytest.mark.parametrize("kind", ["url", "prometheus"])
@pytest.mark.parametrize("page", [overview, diagnosis])
def test_nothing_listens_there(page: Callable[[], None], kind: str, tmp_path: Path) -> None:
    """The real sources against a closed port: said at once, not after a time-out per figure."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        st.cache_resource.clear()
        settings.configure(Settings(database=str(tmp_path / "no.db"), **{kind: address}))
        try:
            app = AppTest.from_function(page, default_timeout=60).run()
            text = text_of(app)
        finally:
            settings.configure(Settings())
            st.cache_resource.clear()
    assert "does not answer" in text or "refused" in text
    assert not re.search(r"Running 0|green-badge", text)
    assert "?." not in text
    assert "metrics of" not in text  # no engine answers that could be told by them
    labels = [expander.label for expander in app.expander]
    assert not any("refused" in label for label in labels)


def test_overview_names_a_missing_metric(show: Show) -> None:
    source = FakeSource(without=frozenset({"vllm:num_preemptions_total"}))
    text = show(overview, source)
    assert "Preemptions no data vllm:num_preemptions_total is not exported" in text


def test_overview_of_stale_data(show: Show) -> None:
    assert "Running stale" in show(overview, FakeSource(Outcome.STALE))


def recorded(*names: str, sized_by_share: bool = False) -> RecordedSource:
    """sized_by_share: as if gpu_memory_utilization had set the KV pool, and no size."""
    pages = [(ROOT / "fixtures" / f"vllm-0.32-cpu-{name}.txt").read_text() for name in names]
    if sized_by_share:
        sizes = r'(num_gpu_blocks_override|kv_cache_memory_bytes)="[^"]*"'
        pages = [re.sub(sizes, r'\1="None"', page) for page in pages]
    began_s = 1_796_010_200.0
    return RecordedSource([(began_s + 15 * i, page) for i, page in enumerate(pages)])


@pytest.fixture
def then(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recording's end is now, so that its data is fresh."""
    monkeypatch.setattr("time.time", lambda: 1_796_010_230.0)


@pytest.mark.usefixtures("then")
def test_diagnosis_of_a_recorded_vllm_starved_of_kv(show: Show) -> None:
    source = recorded("idle", "kv-starved", "kv-starved")
    text = show(diagnosis, source)
    assert "0 Trust" in text
    assert "traffic yes" in text
    assert "7 Uneven replicas" in text
    assert "can't tell" in text
    assert "Missing:" in text
    assert "--set max_num_seqs=N" in text
    assert "max(vllm:kv_cache_usage_perc)" in text


@pytest.mark.usefixtures("then")
def test_diagnosis_fires_on_the_second_look_and_shows_how_to_prove_it(
    show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.evaluator.BEAT_S", 0.0)
    source = recorded("idle", "kv-starved", "kv-starved", sized_by_share=True)
    st.cache_resource.clear()
    show(diagnosis, source)
    app = AppTest.from_function(diagnosis, default_timeout=30).run()
    text = text_of(app)
    assert "KV-bound" in text
    assert "raising max_num_seqs" in text  # what will not help
    assert "tuner sweep --target vllm --model MODEL --knob gpu_memory_utilization=0.92,0.95" in text
    assert "MODEL: what is served here" in text
    assert "--slo 'ttft_p95<500ms'" in text


@pytest.mark.usefixtures("then")
def test_diagnosis_without_traffic(show: Show) -> None:
    text = show(diagnosis, recorded("idle", "idle", "idle"))
    assert "No traffic in the window" in text
    assert "traffic none in the window" in text
    assert "critical" not in text


def test_diagnosis_of_a_silent_target_is_never_ok(show: Show) -> None:
    text = show(diagnosis, FakeSource(Outcome.UNREACHABLE, reason="connection refused"))
    assert "not judged" in text
    assert not re.search(r"green-badge\[ok\]", text)


@dataclass
class Dying(FakeSource):
    """Does not answer from its second look on."""

    looks: int = 0

    def status(self) -> SourceStatus:
        self.looks += 1
        return replace(super().status(), up=self.looks < 2)


def test_a_page_drawn_anew_shows_the_same_look_and_takes_none(
    draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.evaluator.BEAT_S", 600.0)
    source = Dying()
    app = draw(diagnosis, source)
    first = text_of(app)
    assert text_of(app.run()) == first
    assert "metrics of" in first
    assert source.looks == 1


@pytest.mark.usefixtures("then")
def test_what_fires_only_on_the_next_look_has_a_badge_of_its_own(show: Show) -> None:
    text = show(diagnosis, recorded("idle", "kv-starved", "kv-starved"))
    assert re.search(r"Nothing fires yet: \d+ nodes on watch", text)
    assert re.search(r":orange-badge\[on watch\] \*\*3 TTFT\*\* seen once, not yet confirmed", text)
    on_watch, counted = len(re.findall(r"badge\[on watch\]", text)), r"\b{} on watch"
    assert re.search(counted.format(on_watch), text)
    assert not re.search(r"green-badge\[ok\] \*\*[^*]+\*\* seen once", text)
