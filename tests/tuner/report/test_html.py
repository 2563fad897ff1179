"""The HTML pages: complete, self-contained, escaped, drawable whatever a run holds."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storage import open_database
from tests.tuner.exchange.recorded import fixture, made
from tests.tuner.runs import failed, good, running
from tuner.exchange.find import Runs
from tuner.exchange.read import read_file
from tuner.exchange.run import Run, store
from tuner.figures.comparison import compare_runs
from tuner.report.compare import Compared, deciding_keys, keys_of, warnings
from tuner.report.html import render_compare_html, render_run_html
from tuner.report.html.scale import Scale, fitted, latency_axis
from tuner.report.html.series import CDF_POINTS, Frame, cdf, flight, over_time
from tuner.slo import SloSet, parse_slos
from tuner.units import show

MIXED = [*(good(i, at_s=i / 10, ttft_s=0.05 + i / 1000) for i in range(70)),
         failed(70, at_s=7.1), failed(71, at_s=7.2),
         running(72, 7.3, first_token_s=7.4)]  # fmt: skip
HOSTILE = "<script>alert(\"x\")</script> & 'more'"


def drawings(page: str) -> list[ET.Element]:
    """Every chart as parsed XML: what does not parse is not drawn."""
    return [ET.fromstring(text) for text in re.findall(r"<svg .*?</svg>", page, re.DOTALL)]


def numbers(page: str) -> list[float]:
    """All coordinates of all charts."""
    found = []
    for drawing in drawings(page):
        for element in drawing.iter():
            for name, value in element.attrib.items():
                if name in ("d", "points", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width"):
                    found += [float(n) for n in re.findall(r"-?\d+\.?\d*(?:e[-+]?\d+)?", value)]
                    assert "nan" not in value
                    assert "inf" not in value
    return found


def test_page_holds_what_a_reader_asks_for() -> None:
    page = render_run_html(made(MIXED, slo="ttft_p50<40ms"))
    for part in ("Service-level objectives", "ttft_p50&lt;40ms", "✘ SLOs missed",
                 "Time to first token", "Inter-token latency", "End-to-end latency", "Over time",
                 "warm-up", "Slowest requests", "Failures", "HTTP 503", "cross-check",
                 "All figures", "Provenance", "prompt=8,output=4,concurrency=4",
                 "seed"):  # fmt: skip
        assert part in page, part
    assert len(drawings(page)) >= 8
    assert all(-60 < number < 1100 for number in numbers(page))


def test_page_asks_nothing_of_the_network_and_follows_the_scheme() -> None:
    page = render_run_html(made(MIXED))
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page
    assert not re.search(r"<script|<link|<img|<iframe|src=|@import|url\(", page)


def test_every_text_is_escaped() -> None:
    run = made(MIXED)
    columns = dict(run.columns)
    columns["error"] = [HOSTILE] * run.count
    summary = run.summary | {"notes": [HOSTILE], "provenance": {HOSTILE: HOSTILE}}
    spoiled = replace(
        run, columns=columns, summary=summary, model=HOSTILE, url=HOSTILE, workload=HOSTILE,
        study=HOSTILE, config={HOSTILE: HOSTILE}, target={"kind": HOSTILE},
    )  # fmt: skip
    for page in (render_run_html(spoiled), compared_page(spoiled, spoiled)):
        assert "<script" not in page
        assert "&lt;script&gt;" in page


def test_stored_run_and_fresh_run_make_the_same_page(tmp_path: Path) -> None:
    fresh = made(MIXED)
    path = str(tmp_path / "s.db")
    with open_database(path) as database:
        run_id = store(database, fresh)
    with Runs(path) as runs:
        kept = runs.stored(run_id)

    def body(run: Run) -> str:
        page = render_run_html(replace(run, name="x", run_id=1))
        return page[: page.index("<footer>")]

    assert body(kept) == body(fresh)


@pytest.mark.parametrize(
    "records",
    [
        [failed(i, at_s=i / 10) for i in range(30)],
        [running(i, i / 10) for i in range(5)],
        [good(0)],
        [good(0, output=1), good(1, output=1)],
        [replace(good(i, at_s=i / 10), end_s=math.nan) for i in range(3)],
    ],
)
def test_odd_runs_are_drawn_too(records: list[Any]) -> None:
    run = made(records, slo="ttft_p95<100ms, itl_p95<1us, error_rate<1%")
    assert numbers(render_run_html(run))
    assert "Figures" in compared_page(run, run)


def test_imported_run_says_what_it_does_not_know() -> None:
    (run,) = read_file(fixture("guidellm-0.8-constant.json"))
    page = render_run_html(run)
    assert "not measured: GuideLLM keeps the first and last token" in page
    assert "imported from" in page
    assert numbers(page)


def test_long_run_stays_small_and_keeps_its_extremes() -> None:
    count = 20_000
    records = [good(i, at_s=i / 100, ttft_s=0.05 + (i % 97) / 1000, output=3) for i in range(count)]
    records[777] = good(777, at_s=7.77, ttft_s=30.0, output=3)
    page = render_run_html(made(records, end_s=count / 100))
    assert len(page) < 400_000
    assert "5–95 % band" in page
    assert "30 s" in page
    assert numbers(page)


def compared_page(a: Run, b: Run, slos: SloSet | None = None) -> str:
    slos = slos or SloSet()
    unknown = a.unknown | b.unknown
    sides = [[(run.records, run.window_s)] for run in (a, b)]
    figures = compare_runs(sides[0], sides[1], keys_of(slos, unknown), slos)
    return render_compare_html(
        Compared("1", "2", [a], [b], figures, deciding_keys(slos), warnings([a], [b])), slos
    )


def test_comparison_shows_both_sides_and_the_outcome() -> None:
    fast = made([good(i, at_s=i / 10, ttft_s=0.05 + i % 7 / 500) for i in range(90)])
    slow = made([good(i, at_s=i / 10, ttft_s=0.5 + i % 7 / 500) for i in range(90)])
    page = compared_page(fast, slow, parse_slos(["ttft_p95<100ms"]))
    assert "▼ B worse" in page
    assert "B is worse in ttft_p95" in page
    assert "A: p50" in page
    assert numbers(page)
    assert "▲ B better" in compared_page(slow, fast, parse_slos(["ttft_p95<100ms"]))


def test_cdf_keeps_tail_and_share_of_failures() -> None:
    values = np.concatenate([np.linspace(0.1, 1.0, 9_999), [50.0], np.full(1_000, math.inf)])
    at, share = cdf(values)
    assert len(at) <= CDF_POINTS
    assert at[-1] == 50.0
    assert share[-1] == pytest.approx(10_000 / 11_000)
    assert (np.diff(share) > 0).all()


def test_in_flight_keeps_its_peak() -> None:
    records = [good(i, at_s=i / 50, ttft_s=0.1, output=2) for i in range(3000)]
    records += [good(3000 + i, at_s=30.0, ttft_s=0.1, output=2) for i in range(100)]
    frame = Frame.of(made(records, end_s=61.0))
    times, level = flight(frame, frame.last_s)
    assert len(times) <= 501
    assert level.max() >= 100


def test_frames_latencies_are_those_of_the_figures() -> None:
    run = made(MIXED)
    frame = Frame.of(run)
    for metric in ("ttft", "tpot", "itl", "e2e"):
        values = np.sort(frame.latencies(metric))
        assert values[int(np.ceil(0.5 * len(values))) - 1] == pytest.approx(
            run.figures[f"{metric}_p50"].value, rel=0.05
        )


def test_bins_without_requests_are_gaps() -> None:
    binned = over_time(np.array([0.5, 9.5]), np.array([1.0, 2.0]), 10.0)
    assert np.isfinite(binned.middle).sum() == 2


def test_scales_have_round_ticks() -> None:
    assert Scale(0, 10, 0, 100).ticks(5) == [0, 2, 4, 6, 8, 10]
    log = latency_axis(np.array([0.001, 10.0]), [], 0, 100)
    assert log.log
    assert log.ticks(6) == pytest.approx([0.001, 0.01, 0.1, 1, 10])
    assert latency_axis(np.array([]), [0.5], 0, 100).at(0.5) > 0
    near = latency_axis(np.array([0.1, 0.2]), [0.4, 900.0], 0, 100)
    assert 0.4 < near.high < 900
    assert fitted(np.array([math.inf]), 0, 100, "").high > 0
    assert [Scale(0, 1, 0, 1, "s").text(v) for v in (0, 0.25, 2.0)] == ["0", "250 ms", "2 s"]


def test_unfinished_requests_are_longer_than_all_that_is_drawn() -> None:
    records = [*(good(i, at_s=i / 10) for i in range(10)), running(10, 2.0, first_token_s=2.5),
               running(11, 3.0)]  # fmt: skip
    frame = Frame.of(made(records))
    ttft, e2e = np.sort(frame.latencies("ttft")), np.sort(frame.latencies("e2e"))
    assert len(ttft) == len(e2e) == 12
    assert ttft[-2:] == pytest.approx([0.5, math.inf])
    assert np.isinf(e2e).sum() == 2
    _, share = cdf(e2e)
    assert share[-1] == pytest.approx(10 / 12)


def test_a_share_is_told_in_digits_that_say_something() -> None:
    assert show(1.6e-10, "share") == "< 0.001 %"
    assert show(0.0, "share") == "0 %"
    assert show(1e-5, "share") == "0.001 %"
    gone = made([good(i, at_s=i / 10, ttft_s=0.5) for i in range(90)])
    fast = made([good(i, at_s=i / 10) for i in range(90)])
    page = compared_page(fast, gone, parse_slos(["ttft_p95<100ms"]))
    assert "-100 points" in page
