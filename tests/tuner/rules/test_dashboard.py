"""The deployed dashboard: each panel's unit is that of its queries, and each window is named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

BOARD = json.loads((Path(__file__).parents[3] / "deploy/grafana/slotune.json").read_text())
PANELS: dict[str, dict[str, Any]] = {p["title"]: p for p in BOARD["panels"] if p["type"] != "row"}

UNITS = {
    "Attainment over 14d": "percentunit",
    "Error budget left of 14d": "percentunit",
    "Bad events, 5 min and 1 h": "percentunit",
    "TTFT": "s",
    "Inter-token latency": "s",
    "Where TTFT goes": "s",
    "Requests": "suffix:req",
    "Tokens": "suffix:tok/s",
    "Ended by reason": "suffix:req/s",
    "KV cache used": "percentunit",
    "Preemptions and refusals": "suffix:events/s",
    "Steps by binding limit": "suffix:steps/s",
}
OF_NAMES = {"_seconds": "s", "_tokens_total": "suffix:tok/s", ":ratio": "percentunit",
            "_perc": "percentunit", "num_requests_": "suffix:req",
            "request_success_total": "suffix:req/s", "_preemptions_total": "suffix:events/s",
            "_rejections_total": "suffix:events/s", "_limit_total": "suffix:steps/s",
            "time_per_output_token": "s"}  # fmt: skip
"""What a metric's name says of its unit, as a rate where it is a counter."""


def queries(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


def test_every_panel_has_its_unit() -> None:
    units = {title: panel["fieldConfig"]["defaults"]["unit"] for title, panel in PANELS.items()}
    assert units == UNITS


@pytest.mark.parametrize("title", PANELS)
def test_the_unit_is_that_of_the_metrics(title: str) -> None:
    """Seconds are not labelled ms, nor a counter's rate as a count."""
    for query in queries(PANELS[title]):
        named = {unit for part, unit in OF_NAMES.items() if part in query}
        assert named == {UNITS[title]}, query
        assert not re.search(r"[*/] *1000\b", query)


@pytest.mark.parametrize("title", PANELS)
def test_every_window_is_grafanas_or_stands_in_the_title(title: str) -> None:
    """No figure of a process' whole life: what grows is asked for its growth in a window."""
    for query in queries(PANELS[title]):
        assert set(re.findall(r"\[[^\]]+\]", query)) <= {"[$__rate_interval]"}
        if query.startswith("slotune_slo:"):
            assert re.search(r"\d+d|5 min and 1 h", title)
            continue
        for grown in re.findall(r"(?:_total|_sum|_count|_bucket)\{", query):
            before = query[: query.index(grown)]
            assert re.search(r"(?:rate|increase)\([\w:]*$", before), query
    per_second = UNITS[title].endswith("/s")
    assert ("Per second." in PANELS[title]["description"]) is per_second
    assert all(("rate(" in query) is per_second for query in queries(PANELS[title]))


def test_a_mean_is_a_sum_over_its_count() -> None:
    """Not the rate of a sum, which is no time but a share of it."""
    for query in queries(PANELS["Where TTFT goes"]):
        top, bottom = query.split(" / ")
        assert top.replace("_sum{", "_count{") == bottom
