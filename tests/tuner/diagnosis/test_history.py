"""`tuner diagnose` over a window longer than it watched, out of the history a dashboard kept."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from storage import open_database
from storage.history import History
from storage.sources.fetch import metrics_url
from tests.storage.sources.serving import serving
from tests.storage.sources.virtual import VirtualScrape
from tuner.cli.main import main

QUICK = ["--interval", "200ms", "--watch-for", "1s", "--quiet", "--json"]
TWO_HOURS_S = 7200.0


def page(at_s: float, began_s: float) -> str:
    age_s = at_s - began_s
    return (
        f"process_start_time_seconds {began_s}\n"
        "vllm:num_requests_running 3\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0.2\n"
        f"vllm:generation_tokens_total {100 * age_s}\nvllm:prompt_tokens_total {900 * age_s}\n"
        f'vllm:request_success_total{{finished_reason="stop"}} {2 * age_s}\n'
    )


@pytest.mark.parametrize("kept", [True, False])
def test_a_long_window_is_answered_from_what_was_kept(
    kept: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began_s = time.time() - TWO_HOURS_S - 600
    path = str(tmp_path / "slotune.db")
    open_database(path).close()
    with serving(lambda: page(time.time(), began_s)) as server:
        if kept:
            scrape = VirtualScrape(
                lambda: History(open_database(path), metrics_url(server.url)), interval_s=30.0
            )
            scrape.now_s = began_s
            scrape.watch(time.time() - 30, lambda at_s: page(at_s, began_s))
            scrape.close()
        main(["diagnose", "--url", server.url, "--window", "2h", "--database", path, *QUICK])
    found = json.loads(capsys.readouterr().out)
    if not kept:
        assert found["window_s"] < 60  # as long as it watched
        return
    assert found["window_s"] == pytest.approx(TWO_HOURS_S, rel=0.01)
    (node,) = (node for node in found["nodes"] if node["key"] == "5")
    assert node["value"] == pytest.approx(100, rel=0.05)
