"""`tuner diagnose` over a window longer than it watched, out of the history a dashboard kept."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from storage import open_database
from storage.history import History
from storage.location import history_beside
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


def remembered(path: str, url: str, began_s: float) -> None:
    """What a dashboard has kept of a server since it began."""
    scrape = VirtualScrape(
        lambda: History(open_database(history_beside(path)), metrics_url(url)), interval_s=30.0
    )
    scrape.now_s = began_s
    scrape.watch(time.time() - 30, lambda at_s: page(at_s, began_s))
    scrape.close()


@pytest.mark.parametrize(("kept", "runs"), [(True, True), (True, False), (False, True)])
def test_a_long_window_is_answered_from_what_was_kept(
    kept: bool, runs: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside a database of runs, or where a dashboard kept a history and nothing else is."""
    began_s = time.time() - TWO_HOURS_S - 600
    path = str(tmp_path / "slotune.db")
    if runs:
        open_database(path).close()
    with serving(lambda: page(time.time(), began_s)) as server:
        if kept:
            remembered(path, server.url, began_s)
        main(["diagnose", "--url", server.url, "--window", "2h", "--database", path, *QUICK])
    out, err = capsys.readouterr()
    found = json.loads(out)
    if not kept:
        assert found["window_s"] < 60  # as long as it watched
        assert "slotune-history.db; `dashboard serve --url" in err
        return
    assert found["window_s"] == pytest.approx(TWO_HOURS_S, rel=0.01)
    (node,) = (node for node in found["nodes"] if node["key"] == "5")
    assert node["value"] == pytest.approx(100, rel=0.05)


def test_a_long_window_over_several_servers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began_s, path = time.time() - TWO_HOURS_S - 600, str(tmp_path / "slotune.db")
    body = lambda: page(time.time(), began_s)  # noqa: E731
    with serving(body) as one, serving(body) as other:
        for server in (one, other):
            remembered(path, server.url, began_s)
        urls = ["--url", one.url, "--url", other.url]
        main(["diagnose", *urls, "--window", "2h", "--database", path, *QUICK])
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert err == ""
    assert found["window_s"] == pytest.approx(TWO_HOURS_S, rel=0.01)
    (node,) = (node for node in found["nodes"] if node["key"] == "5")
    assert node["value"] == pytest.approx(200, rel=0.05)


def test_a_database_that_is_not_there_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(lambda: page(time.time(), time.time() - 600)) as server:
        path = str(tmp_path / "none.db")
        assert main(["diagnose", "--url", server.url, "--database", path, *QUICK]) == 2
    assert "none.db does not exist" in capsys.readouterr().err


def test_burns_are_printed_with_what_was_watched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began_s = time.time() - TWO_HOURS_S
    path = str(tmp_path / "slotune.db")
    with serving(lambda: page(time.time(), began_s)) as server:
        remembered(path, server.url, began_s)
        words = ["--database", path, "--slo", "error_rate<1%", "--burn"]
        main(["diagnose", "--url", server.url, *words, *QUICK[:-1]])
        text = capsys.readouterr().out
        main(["diagnose", "--url", server.url, *words, *QUICK])
        [budget] = json.loads(capsys.readouterr().out)["error_budgets"]["budgets"]
    assert "14.4× over 1 h and 5 min: no alert: burns 0× and 0×" in text
    assert re.search(r"6× over 6 h and 30 min: watched (1\.9\d?|2) h of 6 h", text)
    assert budget["over"]["bad_share"] == 0.0
    assert budget["burns"][0]["long"]["events"] == pytest.approx(7200, rel=0.05)
    assert budget["burns"][1]["long"]["seen"] == "not_watched_long_enough"


def test_burns_need_an_slo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "--url", "http://127.0.0.1:9", "--burn"]) == 2
    assert "--burn needs the SLOs" in capsys.readouterr().err
