"""The compiled kernels are kept, rebuilt when needed, and done without when there is no way."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.attention import registry
from engine.attention.base import AttentionShape
from engine.errors import EngineConfigError
from engine.kernels import build
from engine.layers.norm import RMSNorm, rms_norm
from engine.layers.rotary import RotaryTable
from engine.models import config as model_config
from tests.engine.tiny_models import save_folder, tiny_model


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A fresh cache folder; what the process has loaded is forgotten before and after."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    build.load.cache_clear()
    yield tmp_path / "slotune"
    build.load.cache_clear()


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch, empty_cache: Path) -> None:
    monkeypatch.setenv("PATH", "/nowhere")


def shape(tmp_path: Path) -> AttentionShape:
    config = model_config.read(save_folder(tiny_model("llama"), tmp_path / "model"))
    cpu = torch.device("cpu")
    return AttentionShape(config, 16, torch.float32, cpu, RotaryTable(config, 64, cpu))


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_torch_does_the_work(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert build.load() is None
    assert "no C++ compiler" in caplog.text
    assert registry.choose("auto", shape(tmp_path)).name == "torch_sdpa"
    x, weight = torch.randn(3, 64), torch.rand(64)
    assert torch.equal(RMSNorm(weight, 1e-5)(x), rms_norm(x, weight, 1e-5))


@pytest.mark.usefixtures("no_compiler")
def test_the_fused_backend_by_name_is_refused_without_a_compiler(tmp_path: Path) -> None:
    with pytest.raises(EngineConfigError, match="cpu_fused cannot run here"):
        registry.choose("cpu_fused", shape(tmp_path))


def test_an_unknown_backend_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(EngineConfigError, match="auto, cpu_fused, flash_attn, torch_sdpa"):
        registry.choose("paged", shape(tmp_path))


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_a_source_that_does_not_compile_is_done_without(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = empty_cache.parent / "broken.cpp"
    broken.write_text("not C++")
    monkeypatch.setattr(build, "SOURCE", broken)
    assert build.load() is None
    assert "do not compile" in caplog.text
    assert list(empty_cache.iterdir()) == []


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_a_damaged_library_is_done_without(
    empty_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    openmp = build._torch_openmp()
    assert openmp is not None
    empty_cache.mkdir()
    (empty_cache / f"fused-{build._fingerprint(openmp)}.so").write_bytes(b"half a file")
    assert build.load() is None
    assert "do not load" in caplog.text


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_flags_and_source_make_another_library(monkeypatch: pytest.MonkeyPatch) -> None:
    openmp = build._torch_openmp()
    assert openmp is not None
    before = build._fingerprint(openmp)
    assert build._fingerprint(openmp) == before
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-DX"))
    assert build._fingerprint(openmp) != before


def test_a_read_only_cache_is_done_without(
    empty_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    empty_cache.write_text("a file where the folder should be")
    assert build.load() is None
    assert caplog.text
