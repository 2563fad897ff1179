"""The comparison with `vllm bench serve`, without either: its verdicts and what it refuses."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import agreement
from storage.sources import Exposition
from tests.benchmarks.made_surface import made_surface
from tuner.endpoint import Endpoint

LOAD = agreement.Load(prompt=16, output=4, concurrency=2, requests=8)


def test_our_figures_are_over_every_request() -> None:
    good = made_surface(repeat=1).runs[0].records
    found = agreement.figures_of(good)
    waits_s = [record.first_token_s - record.scheduled_s for record in good]
    assert found["ttft_mean"] == pytest.approx(statistics.mean(waits_s))
    assert found["ttft_p50"] == pytest.approx(statistics.median(waits_s), rel=0.01)
    assert found.keys() == {*agreement.FIGURES, agreement.THROUGHPUT}
    tokens = sum(record.output_tokens or 0 for record in good)
    assert found[agreement.THROUGHPUT] == pytest.approx(tokens / max(r.end_s for r in good))


def pairs(*ratios: float) -> list[tuple[float, float]]:
    return [(ratio, 1.0) for ratio in ratios]


def test_the_figures_share_the_level() -> None:
    some = pairs(1.01, 1.03, 1.02, 1.05, 0.995, 1.02)  # 1 is outside the 95 % interval of this one
    assert agreement.told("ttft_mean", some).endswith("no difference")
    assert agreement.told("ttft_mean", pairs(1.2, 1.21, 1.19, 1.2)).endswith("DIFFERENT")
    assert pytest.approx(0.995) == agreement.LEVEL  # nine latencies and the throughput


def test_one_round_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["agreement", "--vllm-venv", "/no/venv", "--model", "/no/model", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        agreement.main()
    assert ended.value.code == 2
    assert "--rounds 1: an interval needs at least 2" in capsys.readouterr().err


def test_the_result_of_the_round_before_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def writes_nothing(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 0, "no result", "")

    monkeypatch.setattr(subprocess, "run", writes_nothing)
    names = [*agreement.FIGURES.values(), "output_throughput", "completed"]
    left = ", ".join(f'"{name}": 100' for name in names)
    (tmp_path / "result.json").write_text(f"{{{left}}}")
    options = argparse.Namespace(vllm_venv=Path("/no/venv"), model="m")
    endpoint = Endpoint("http://127.0.0.1:9", model="m")
    with pytest.raises(SystemExit, match="failed"):
        agreement.peers(options, endpoint, LOAD, 0, tmp_path)


def test_the_engine_is_read_around_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Means of what was observed during the run: 10 of 20 ms, though 90 of 100 ms were before."""
    told = [page(90, 9.0), page(100, 9.2)]
    monkeypatch.setattr(agreement, "scrape_once", lambda _: told.pop(0))
    found, server = agreement.beside_server(Endpoint("http://127.0.0.1:9"), lambda: {"x": 1.0})
    assert found == {"x": 1.0}
    assert server == pytest.approx({"tpot_mean": 0.02, "itl_mean": 0.02})


def test_a_run_the_engine_did_not_see_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "scrape_once", lambda _: page(90, 9.0))
    with pytest.raises(SystemExit, match="observed no vllm:request_time_per_output_token_seconds"):
        agreement.beside_server(Endpoint("http://127.0.0.1:9"), dict)


def test_a_slower_engine_is_no_difference_between_the_clients() -> None:
    own = ({"tpot_mean": 0.020, "itl_mean": 0.020}, {"tpot_mean": 0.020, "itl_mean": 0.020})
    peer = ({"tpot_mean": 0.022, "itl_mean": 0.0242}, {"tpot_mean": 0.022, "itl_mean": 0.022})
    found = agreement.pairs_of(own, peer)
    assert found["tpot_mean"] == found["engine tpot_mean"] == (0.020, 0.022)
    assert found["tpot_mean / engine"] == pytest.approx((1.0, 1.0))
    assert found["itl_mean / engine"] == pytest.approx((1.0, 1.1))


def page(count: int, total_s: float) -> Exposition:
    values = {f"{name}_count": float(count) for name in agreement.SERVER.values()}
    return Exposition(0.0, values | {f"{name}_sum": total_s for name in agreement.SERVER.values()})
