"""Files of GuideLLM and `vllm bench serve`: their own figures must come out, faults are named."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tuner.exchange.recorded import document, fixture, written
from tuner.errors import UserError
from tuner.exchange.judging import judged
from tuner.exchange.read import read_file
from tuner.exchange.run import Run
from tuner.slo import parse_slos


def one(name: str) -> Run:
    (found,) = read_file(fixture(name))
    return found


def value(run: Run, key: str) -> float:
    return run.figures[key].value


def test_vllm_figures_are_those_vllm_printed() -> None:
    told = document("vllm-0.32-bench-closed.json")
    found = one("vllm-0.32-bench-closed.json")
    assert found.count == told["completed"] == 12
    assert value(found, "ttft_mean") * 1e3 == pytest.approx(told["mean_ttft_ms"])
    assert value(found, "tpot_mean") * 1e3 == pytest.approx(told["mean_tpot_ms"])
    assert value(found, "output_tps") == pytest.approx(told["output_throughput"])
    assert value(found, "total_tps") == pytest.approx(told["total_token_throughput"])
    assert value(found, "rps") == pytest.approx(told["request_throughput"])
    assert found.workload == "prompt=32,output=12,concurrency=3"
    assert math.isnan(found.lag_p99_s)
    assert "lag" in found.unknown


def test_vllm_chunks_that_bring_several_tokens_count_them_all() -> None:
    told = document("vllm-0.32-bench-closed.json")
    short = [i for i, gaps in enumerate(told["itls"]) if len(gaps) + 1 < told["output_lens"][i]]
    found = one("vllm-0.32-bench-closed.json")
    assert short, "the recording has an answer with a chunk of several tokens"
    assert all(sum(tokens) == 12 for tokens in found.columns["chunk_tokens"])


def test_vllm_refused_requests_have_failed() -> None:
    found = one("vllm-0.32-bench-refused.json")
    assert found.counts == {"sent": 14, "ok": 5, "failed": 9, "censored": 0, "warmup": 0}
    assert found.figures["ttft_p95"].value == math.inf
    assert found.summary["failures"] == [["Service Unavailable", 9]]
    owed = np.array(found.columns["wanted_output_tokens"])
    assert (owed == 12).all(), "a failed request owes what the others gave"


def test_vllm_wait_for_a_free_slot_counts_only_where_a_rate_set_the_schedule(
    tmp_path: Path,
) -> None:
    told = document("vllm-0.32-bench-closed.json")
    (closed,) = read_file(written(tmp_path, told))
    (opened,) = read_file(written(tmp_path, told | {"request_rate": 4.0}))
    assert max(told["queue_times"]) > 1
    assert value(closed, "ttft_mean") * 1e3 == pytest.approx(told["mean_ttft_ms"])
    queued = 1e3 * float(np.mean(told["queue_times"]))
    assert value(opened, "ttft_mean") * 1e3 == pytest.approx(told["mean_ttft_ms"] + queued)


def test_totals_alone_are_refused_with_the_remedy() -> None:
    with pytest.raises(UserError, match=r"only totals.*--save-detailed"):
        read_file(fixture("vllm-0.32-bench-totals.json"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"start_times": None}, "older than its per-request start times"),
        ({"ttfts": [0.1]}, "differ in length.*ttfts 1"),
        ({"output_lens": ["x"] * 12}, "request 0 cannot be read"),
        ({"start_times": ["soon"] * 12}, "a start time is no number"),
        ({"input_sequence_throughput": 1.0}, "embedding"),
        ({"duration": None}, "duration is no number"),
    ],
)
def test_vllm_files_that_do_not_fit(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    told = document("vllm-0.32-bench-closed.json") | change
    told = {key: item for key, item in told.items() if item is not None or key == "duration"}
    with pytest.raises(UserError, match=says):
        read_file(written(tmp_path, told))


def test_appended_vllm_results_are_several_runs(tmp_path: Path) -> None:
    text = fixture("vllm-0.32-bench-closed.json").read_text().strip()
    runs = read_file(written(tmp_path, f"{text}\n{text}"))
    assert [found.name for found in runs] == ["result.json#1", "result.json#2"]


def test_guidellm_figures_are_those_guidellm_printed() -> None:
    told = document("guidellm-0.8-constant.json")["benchmarks"][0]["metrics"]
    found = one("guidellm-0.8-constant.json")
    good = [r for r in found.records if r.ok]
    ttfts = [r.first_token_s - r.sent_s for r in good]
    assert len(good) == told["request_totals"]["successful"] == 12
    assert 1e3 * float(np.mean(ttfts)) == pytest.approx(
        told["time_to_first_token_ms"]["successful"]["mean"], rel=1e-4
    )
    tpots = [r.tpot_s for r in good]
    assert 1e3 * float(np.mean(tpots)) == pytest.approx(
        told["inter_token_latency_ms"]["successful"]["mean"], rel=1e-4
    )
    assert found.counts["failed"] == told["request_totals"]["errored"] == 2
    assert found.workload.endswith("rate=6,arrivals=constant")


def test_guidellm_open_loop_starts_when_requests_were_due() -> None:
    told = document("guidellm-0.8-constant.json")["benchmarks"][0]
    due = sorted(
        request["info"]["timings"]["targeted_start"] - told["scheduler_metrics"]["start_time"]
        for kind in ("successful", "errored")
        for request in told["requests"][kind]
    )
    found = one("guidellm-0.8-constant.json")
    assert found.columns["scheduled_s"] == pytest.approx(due)
    assert found.lag_p99_s > 0


def test_guidellm_cancelled_requests_are_censored() -> None:
    found = one("guidellm-0.8-cut-off.json")
    assert found.counts["censored"] == 5
    assert found.counts["ok"] == 4
    assert found.figures["ttft_p95"].high == math.inf


@pytest.mark.parametrize(
    ("name", "count"), [("guidellm-0.5-concurrent.json", 10), ("guidellm-0.3-concurrent.json", 12)]
)
def test_older_guidellm_reports(name: str, count: int) -> None:
    told = document(name)["benchmarks"][0]["requests"]["successful"]
    found = one(name)
    assert found.counts["ok"] == count
    mean_ms = float(np.mean([request["time_to_first_token_ms"] for request in told]))
    assert value(found, "ttft_mean") * 1e3 == pytest.approx(mean_ms, rel=1e-3)
    assert found.model == "smollm2"
    assert found.url.startswith("http://")
    assert found.workload.endswith("concurrency=3")
    assert found.began_unix_s > 1.7e9


def test_gaps_that_guidellm_does_not_keep_are_never_judged() -> None:
    found = one("guidellm-0.8-constant.json")
    assert not found.figures["itl_p95"].measured
    result = judged([found], parse_slos(["itl_p95<10s", "error_rate<95%"]))
    clause = result.verdict.clauses[0]
    assert result.verdict.state == "fail"
    assert "not measured" in clause.reason
    assert "GuideLLM" in clause.reason
    assert result.verdict.clauses[1].state == "pass"


def test_rates_of_a_sampled_guidellm_report_are_not_told(tmp_path: Path) -> None:
    told = document("guidellm-0.8-constant.json")
    kept = told["benchmarks"][0]["requests"]
    kept["successful"] = kept["successful"][:6]
    (found,) = read_file(written(tmp_path, told))
    assert not found.figures["output_tps"].measured
    assert "8 of 14 requests" in found.figures["output_tps"].reason
    assert found.figures["ttft_p50"].measured


def test_report_of_several_benchmarks_is_several_runs(tmp_path: Path) -> None:
    told = document("guidellm-0.5-concurrent.json")
    told["benchmarks"] *= 2
    runs = read_file(written(tmp_path, told))
    assert [found.name for found in runs] == ["result.json#1", "result.json#2"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is empty"),
        ("hello", "is no JSON"),
        ('{"a": 1}\n{"b": 2', "line 2"),
        ({"answer": 42}, "no measurement known here"),
        ([1, 2], "no measurement known here"),
        ({"slotune_study": 2}, "show it with: tuner report --from-bundle"),
        ({"benchmarks": []}, "without a benchmark"),
        ({"benchmarks": [{"config": {}}]}, "no GuideLLM benchmark known here"),
        ({"benchmarks": ["x"]}, "no GuideLLM benchmark known here"),
    ],
)
def test_other_files_are_refused_in_one_sentence(content: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says) as refusal:
        read_file(written(tmp_path, content))
    assert "\n" not in str(refusal.value)


def test_guidellm_requests_of_another_shape_are_refused(tmp_path: Path) -> None:
    for spoil in ({"info": None}, {"info": {"timings": {"request_start": "noon"}}}):
        told = document("guidellm-0.5-concurrent.json")
        told["benchmarks"][0]["requests"]["successful"][3] |= spoil
        with pytest.raises(UserError, match=r"no GuideLLM benchmark known here|is no number"):
            read_file(written(tmp_path, told))


def test_folder_and_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder"):
        read_file(tmp_path)
    with pytest.raises(UserError, match="No such file"):
        read_file(tmp_path / "nothing.json")
