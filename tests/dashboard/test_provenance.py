"""No figure without its unit, its window and what it was counted over, on whatever page it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.sources.base import Outcome
from tests.dashboard import seed
from tests.dashboard.fake_source import FakeSource
from tests.dashboard.pages import Draw, diagnosis, html_of, overview, studies

PAGES = (overview, diagnosis, studies)
TILE = re.compile(
    r'<div class="tile (?P<kind>\w+)" title="(?P<query>[^"]*)"><div class="label">(?P<label>[^<]*)'
    r'</div><div class="number">.*?</div><div class="note">(?P<note>[^<]*)</div>'
)
FIGURE = re.compile(r'<span class="fig (\w+)">([^<]*)(?:<span class="unit">([^<]*)</span>)?')
TILES = (
    "Running", "Waiting", "KV cache in use", "Requests finished", "Prompt tokens",
    "Generated tokens", "Prefix cache hits", "Preemptions",
)  # fmt: skip
NOW, COUNTED = r"now\b", r"last [\d.]+ \w+ · (?:n=|read )?[\d,]+ \w+"
"""A gauge's reading is of now; everything else has a window and a count."""


def drawn(draw: Draw, page: Callable[[], None], folder: Path, outcome: Outcome) -> str:
    seed.study(folder / "done.db")
    return html_of(draw(page, FakeSource(outcome), database="done.db"))


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_of_every_page_has_its_unit(
    draw: Draw, tmp_path: Path, page: Callable[[], None]
) -> None:
    html = drawn(draw, page, tmp_path, Outcome.VALUE)
    without = [text for kind, text, unit in FIGURE.findall(html)
               if kind in ("value", "zero") and not unit]  # fmt: skip
    assert without == []
    assert [found["label"] for found in TILE.finditer(html)] == (
        list(TILES) if page is overview else []
    )
    assert html.count('class="tile ') == len(TILE.findall(html))


def test_every_tile_says_over_what_it_was_taken(draw: Draw, tmp_path: Path) -> None:
    found = [*TILE.finditer(drawn(draw, overview, tmp_path, Outcome.VALUE))]
    gauges = {"Running", "Waiting", "KV cache in use"}
    for tile in found:
        wanted = NOW if tile["label"] in gauges else COUNTED
        assert re.match(wanted, tile["note"]), (tile["label"], tile["note"])
        assert tile["query"], tile["label"]
    assert len(found) == len(TILES)


@pytest.mark.parametrize("outcome", [Outcome.NO_DATA, Outcome.STALE, Outcome.UNREACHABLE])
def test_a_tile_without_a_figure_has_no_unit_and_no_count(
    draw: Draw, tmp_path: Path, outcome: Outcome
) -> None:
    found = [*TILE.finditer(drawn(draw, overview, tmp_path, outcome))]
    assert len(found) == len(TILES)
    for tile in found:
        assert tile["kind"] == outcome.value, tile["label"]
        assert 'class="unit"' not in tile.group(0)
        assert not re.search(r"\d", tile["note"]), (tile["label"], tile["note"])


def test_every_chart_has_its_unit_and_all_say_their_windows(draw: Draw, tmp_path: Path) -> None:
    html = drawn(draw, overview, tmp_path, Outcome.VALUE)
    charts = re.findall(r'<div class="charttitle"><b>([^<]+)</b><span>([^<]*)</span>', html)
    assert dict(charts) == {
        "Requests": "req", "KV cache in use": "%", "Token rate": "tok/s", "TTFT": "ms",
        "ITL": "ms", "Preemptions": "events/s",
    }  # fmt: skip
    assert re.search(r"<h2>Last 5 min</h2><span>rates and quantiles over a sliding \d+ s", html)
