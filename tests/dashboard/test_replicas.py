"""`dashboard serve --url A --url B`: replicas of one target, judged as one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dashboard import connect, settings
from dashboard.cli import _parser, _settings
from dashboard.live import Watched, chart_points, take
from dashboard.settings import Settings
from storage import open_database
from storage.history import History
from storage.sources import RecordedSource
from tests.storage.conftest import wait_until
from tests.storage.sources.serving import serving
from tests.tuner.diagnosis.test_two_replicas import engine, two


@pytest.fixture
def configured() -> Iterator[None]:
    yield
    settings.configure(Settings())


def told(*urls: str) -> Settings:
    words = [word for url in urls for word in ("--url", url)]
    return _settings(_parser().parse_args(["serve", "--refresh", "0.5", *words]))


def test_one_address_is_a_target_and_several_are_its_replicas() -> None:
    assert (told().target, told().url, told().urls) == ("", None, ())
    one = told("http://a:1/v1")
    assert (one.target, one.url, one.urls) == ("http://a:1", "http://a:1", ())
    two = told("http://a:1", "http://b:2")
    assert (two.target, two.url) == ("http://a:1, http://b:2", None)
    assert two.urls == ("http://a:1", "http://b:2")


def test_a_label_of_the_server_narrows_what_is_scraped() -> None:
    given = ["serve", "--url", "http://gw/a", "--label", "model_name=m"]
    narrowed = _settings(_parser().parse_args(given))
    assert narrowed.labels == (("model_name", "m"),)
    given = [*given, "--url", "http://gw/b", "--label", "instance=gw/a"]
    narrowed = _settings(_parser().parse_args(given))
    assert narrowed.urls == ("http://gw/a", "http://gw/b")
    assert dict(narrowed.labels)["instance"] == "gw/a"


@pytest.mark.usefixtures("configured")
def test_both_are_judged_and_a_dead_one_is_named() -> None:
    began_s = time.time() - 1000
    labels = 'engine="0",model_name="m"'
    with serving(lambda: engine(time.time() - began_s, labels)) as first:
        settings.configure(told(first.url, "http://127.0.0.1:9"))
        try:
            evaluator = connect.evaluator()
            assert evaluator is not None
            found = evaluator.latest()
        finally:
            connect._source.clear()
            connect._evaluator.clear()
    assert found.target == f"{first.url}, http://127.0.0.1:9"
    assert "1 of 2 targets give no metrics (127.0.0.1:9: " in found.node("0").summary
    assert "trusted data" not in found.node("1").missing  # the other one is judged


def test_a_chart_shows_the_requests_of_all_replicas() -> None:
    now_s = time.time()
    pages = [(now_s - 30 + 5.0 * i, two(1000 + 5.0 * i)) for i in range(7)]
    watched = Watched(RecordedSource(pages))
    for signal, level in (("running", 128), ("waiting", 12), ("kv_usage", 0.4)):
        points = chart_points(watched, signal, span_s=20.0, window_s=20.0)
        assert [value for _, value in points][-1] == level, signal


@pytest.mark.parametrize(
    ("caps", "cap"), [((64, 8), 72), ((64, 64), 128), ((64, None), 128), ((None, None), None)]
)
def test_the_cap_shown_is_that_of_all_replicas(
    caps: tuple[int | None, ...], cap: float | None
) -> None:
    told = "".join(
        f'slotune:scheduler_config_info{{engine="{engine}",max_num_seqs="{value}"}} 1\n'
        for engine, value in enumerate(caps)
        if value is not None
    )
    pages = [(1000.0 + 5 * i, two(1000 + 5.0 * i) + told) for i in range(13)]
    snapshot = take(RecordedSource(pages), 60.0)
    assert snapshot.running.value == 128
    assert snapshot.identity.max_num_seqs == cap


def ranked(age_s: float) -> str:
    """Two ranks of one server, a cap and a pool of each."""
    return "".join(
        engine(age_s, f'engine="0",dp_rank="{rank}",model_name="m"')
        + f'slotune:scheduler_config_info{{dp_rank="{rank}",engine="0",max_num_seqs="64"}} 1\n'
        + f'vllm:cache_config_info{{dp_rank="{rank}",engine="0",num_gpu_blocks="{blocks}",'
        + 'block_size="16"} 1\n'
        for rank, blocks in (("0", 100), ("1", 50))
    )


def test_ranks_of_one_server_are_as_many_engines() -> None:
    pages = [(1000.0 + 5 * i, ranked(1000 + 5.0 * i)) for i in range(13)]
    identity = take(RecordedSource(pages), 60.0).identity
    assert (identity.max_num_seqs, identity.kv_tokens) == (128, 2400)


def test_the_pool_shown_is_that_of_all_vllm_replicas() -> None:
    """vLLM tells each engine's pool, and no cap."""
    pool = 'vllm:cache_config_info{{engine="{}",num_gpu_blocks="{}",block_size="16"}} 1\n'
    told = pool.format(0, 1000) + pool.format(1, 500)
    pages = [(1000.0 + 5 * i, two(1000 + 5.0 * i) + told) for i in range(13)]
    identity = take(RecordedSource(pages), 60.0).identity
    assert (identity.max_num_seqs, identity.kv_tokens) == (None, 24_000)


@pytest.mark.usefixtures("configured")
def test_the_history_of_each_is_kept(tmp_path: Path) -> None:
    page = "process_start_time_seconds 1\nvllm:num_requests_running 1\n"
    with serving(page) as first, serving(page) as second:
        chosen = replace(told(first.url, second.url), database=str(tmp_path / "slotune.db"))
        settings.configure(chosen)
        source = connect.metric_source()
        assert source is not None
        for server in (first, second):
            wait_until(lambda server=server: server.asked > 0, "a scrape of each")  # type: ignore[misc]
        wait_until(lambda: len(source.status().targets) == 2, "both")
        connect._source.clear()
        source.close()
    with open_database(str(tmp_path / "slotune-history.db"), read_only=True) as kept:
        for server in (first, second):
            assert History(kept, f"{server.url}/metrics").read(60, 0.0)
