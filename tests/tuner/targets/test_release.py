"""Whose GPU memory is waited for: a worker's own GPUs, not those of its neighbours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.targets.release import gpu_used_mib

NVIDIA_SMI = """#!/bin/sh
case "$*" in
  *--id=1) echo 200 ;;
  *--id=*) echo "No devices were found"; exit 6 ;;
  *) echo 100; echo 200 ;;
esac
"""


@pytest.mark.parametrize(
    ("visible", "used_mib"), [(None, [100, 200]), ("1", [200]), ("", []), ("MIG-0", [])]
)
def test_only_gpus_that_the_server_may_use_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, used_mib: list[int]
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(NVIDIA_SMI)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_used_mib() == used_mib
