"""The export in GuideLLM's form, held against a report that GuideLLM 0.8.1 has written."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tuner.exchange.recorded import document, fixture, made, written
from tests.tuner.runs import failed, good, running
from tuner.exchange.distributions import concurrency, rate, summary
from tuner.exchange.guidellm_out import write_guidellm
from tuner.exchange.read import read_file
from tuner.exchange.run import Run

MIXED = [*(good(i, at_s=i / 2, lag_s=0.001) for i in range(15)), failed(15, at_s=8.0),
         running(16, 9.0, first_token_s=9.2)]  # fmt: skip


def export(run: Run) -> Any:
    out = io.BytesIO()
    write_guidellm(run, out)
    return json.loads(out.getvalue())


def test_metrics_have_every_key_that_guidellm_writes() -> None:
    theirs = document("guidellm-0.8-constant.json")
    ours = export(made(MIXED))
    assert ours.keys() == theirs.keys()
    assert ours["metadata"].keys() == theirs["metadata"].keys()
    a, b = ours["benchmarks"][0], theirs["benchmarks"][0]
    assert a.keys() == b.keys()
    assert a["metrics"].keys() == b["metrics"].keys()
    assert a["scheduler_metrics"].keys() == b["scheduler_metrics"].keys()
    for name, theirs_of in b["metrics"].items():
        if isinstance(theirs_of, dict) and a["metrics"][name] is not None:
            assert a["metrics"][name].keys() == theirs_of.keys(), name
            same_shape(a["metrics"][name], theirs_of, name)


def test_requests_have_keys_and_types_that_guidellm_writes() -> None:
    theirs = document("guidellm-0.8-constant.json")["benchmarks"][0]["requests"]
    ours = export(made(MIXED))["benchmarks"][0]["requests"]
    assert ours.keys() == theirs.keys()
    assert [len(ours[kind]) for kind in ("successful", "errored", "incomplete")] == [15, 1, 1]
    for kind in ("successful", "errored"):
        for request in ours[kind]:
            same_shape(request, theirs[kind][0], kind)


def same_shape(ours: Any, theirs: Any, where: str) -> None:
    """Every key of ours is one of theirs, with a value of the same kind; null fits anything."""
    if ours is None or theirs is None:
        return
    if isinstance(ours, dict):
        assert ours.keys() <= theirs.keys(), where
        for key, item in ours.items():
            same_shape(item, theirs[key], f"{where}.{key}")
    elif isinstance(ours, bool) or not isinstance(ours, (int, float)):
        assert type(ours) is type(theirs), where
    else:
        assert isinstance(theirs, (int, float)), where


def test_figures_of_the_export_are_guidellms_own(tmp_path: Path) -> None:
    theirs = document("guidellm-0.8-constant.json")["benchmarks"][0]["metrics"]
    (run,) = read_file(fixture("guidellm-0.8-constant.json"))
    ours = export(run)["benchmarks"][0]["metrics"]
    assert ours["request_totals"] == theirs["request_totals"]
    for name in ("request_latency", "time_to_first_token_ms", "request_dispatch_delay",
                 "output_token_count", "prompt_token_count"):  # fmt: skip
        for part in ("mean", "min", "max", "count"):
            mine, known = ours[name]["successful"][part], theirs[name]["successful"][part]
            assert mine == pytest.approx(known, rel=1e-3, abs=1e-3), (name, part)
    for share in ("p10", "p25", "p75", "p95"):
        mine, known = (
            metrics["time_to_first_token_ms"]["successful"]["percentiles"][share]
            for metrics in (ours, theirs)
        )
        assert mine == pytest.approx(known, rel=1e-3), share
    back = written(tmp_path, export(run))
    (again,) = read_file(back)
    assert again.counts == run.counts
    assert again.figures["ttft_p50"].value == pytest.approx(run.figures["ttft_p50"].value, rel=1e-3)


def test_round_trip_of_our_own_run(tmp_path: Path) -> None:
    run = made(MIXED)
    (back,) = read_file(written(tmp_path, export(run)))
    for key in ("ttft_p50", "tpot_mean", "e2e_p50", "output_tps", "error_rate"):
        assert back.figures[key].value == pytest.approx(run.figures[key].value, rel=0.02), key


def test_summary_of_weighted_values() -> None:
    found = summary(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 8.0]))
    assert found["median"] == found["mode"] == 2.0
    assert found["mean"] == pytest.approx(2.0)
    assert found["percentiles"]["p05"] == 1.0
    assert found["percentiles"]["p95"] == 3.0
    empty = summary(np.array([np.nan]))
    assert empty["count"] == 0
    assert empty.keys() == found.keys()


def test_rate_and_concurrency_average_over_the_window() -> None:
    times = np.array([1.0, 1.00001, 4.0, 9.0, 11.0])
    assert rate(times, np.ones(5), (0.0, 10.0))["mean"] == pytest.approx(0.4)
    found = concurrency(np.array([0.0, 2.0]), np.array([4.0, 6.0]), (0.0, 10.0))
    assert found["mean"] == pytest.approx(0.8)
    assert found["max"] == 2.0


def test_an_export_of_our_own_comes_back_with_its_workload(tmp_path: Path) -> None:
    text = "prompt=8,output=4,rate=2,burstiness=0.5"
    (back,) = read_file(written(tmp_path, export(replace(made(MIXED), workload=text, seed=7))))
    assert (back.workload, back.seed) == (text, 7)
    assert f"imported from guidellm 0.8.1, written by slotune {version('slotune')}" in back.notes
    told = export(replace(made(MIXED), workload="trace=/no/such/file.csv", seed=7))
    (gone,) = read_file(written(tmp_path, told))
    assert "trace" not in gone.workload


def test_a_report_of_guidellm_is_not_taken_for_ours() -> None:
    (theirs,) = read_file(fixture("guidellm-0.8-constant.json"))
    assert "imported from guidellm 0.8.1" in theirs.notes
