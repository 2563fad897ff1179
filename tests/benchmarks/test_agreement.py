"""The comparison with `vllm bench serve`, without either: its verdicts and what it refuses."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import agreement
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
