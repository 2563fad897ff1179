"""The device's roofs: a table for GPUs, a short measurement kept in the cache for the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.runner import peak

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(peak, "_MEASURE_S", 0.01)
    return tmp_path / "slotune" / "device_peak.json"


@pytest.mark.parametrize(
    ("name", "bytes_per_s"),
    [
        ("NVIDIA H100 80GB HBM3", 3.35e12), ("NVIDIA H100 PCIe", 2.0e12), ("NVIDIA L40S", 864e9),
        ("NVIDIA L4", 300e9), ("NVIDIA A100-SXM4-80GB", 2.039e12), ("Tesla V100-SXM2-16GB", 900e9),
    ],
)  # fmt: skip
def test_a_gpus_peak_is_its_data_sheets(name: str, bytes_per_s: float) -> None:
    found = peak.of_gpu(name)
    assert found is not None
    assert (found.bytes_per_s, found.source) == (bytes_per_s, "data sheet")


def test_an_unknown_gpu_is_not_guessed() -> None:
    assert peak.of_gpu("Some Accelerator 9000") is None


def test_a_measurement_is_kept_and_used_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = peak.device_peak(CPU, torch.float32)
    assert first.flops_per_s > 1e8
    assert first.bytes_per_s > 1e8
    assert cache.is_file()
    monkeypatch.setattr(peak, "measure", lambda *_: pytest.fail("measured again"))
    assert peak.device_peak(CPU, torch.float32) == first


def test_of_two_measurements_the_higher_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [peak.DevicePeak(5.0, 1.0, "measured"), peak.DevicePeak(2.0, 4.0, "measured")]
    monkeypatch.setattr(peak, "measure", lambda *_: rows.pop(0))
    monkeypatch.setattr(peak, "FRESH_S", -1.0)
    peak.device_peak(CPU, torch.float32)
    assert peak.device_peak(CPU, torch.float32) == peak.DevicePeak(5.0, 4.0, "measured")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"x": 1}'])
def test_a_damaged_cache_is_measured_over(cache: Path, text: str) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text(text)
    assert peak.device_peak(CPU, torch.float32).flops_per_s > 0
