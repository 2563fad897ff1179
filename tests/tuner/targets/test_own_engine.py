"""An engine that the tuner has started, and that ends by itself."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tuner.targets.base import TargetError
from tuner.targets.process import OwnProcess
from tuner.targets.slotune import SlotuneTarget


def test_an_engine_of_ours_that_died_while_it_was_measured(tmp_path: Path) -> None:
    target = SlotuneTarget(log_dir=tmp_path)
    command = [sys.executable, "-m", "tests.tuner.fake_engine"]
    target._process = OwnProcess(lambda port: [*command, "--port", str(port)], tmp_path / "log")
    target.start()
    try:
        target.verify()
        os.kill(target._process.pid, signal.SIGKILL)
        target._process._process.wait()  # type: ignore[union-attr]
        with pytest.raises(TargetError, match=r"ended by itself \(exit code -9\)") as caught:
            target.verify()
        assert not caught.value.gone
    finally:
        target.stop()


def test_an_engine_of_ours_that_is_ending_is_started_again(tmp_path: Path) -> None:
    """Its port is closed, its process still there."""
    target = SlotuneTarget(log_dir=tmp_path)
    engine = f"{sys.executable} -m tests.tuner.fake_engine --port $0; sleep 1"
    target._process = OwnProcess(lambda port: ["sh", "-c", engine, str(port)], tmp_path / "log")
    try:
        target.start()
        os.kill(int(target.describe()["pid"]), signal.SIGTERM)
        with pytest.raises(TargetError, match="the server ended by itself") as caught:
            target.apply({"max_num_seqs": 8})
        assert not caught.value.gone
        target.apply({"max_num_seqs": 8})
        assert target.knobs()["max_num_seqs"].value == 8
    finally:
        target.stop()


def test_the_log_of_a_death_is_kept(tmp_path: Path) -> None:
    target = SlotuneTarget(log_dir=tmp_path)
    command = [sys.executable, "-m", "tests.tuner.fake_engine"]
    first = target._process.log  # type: ignore[union-attr]
    target._process = OwnProcess(lambda port: [*command, "--port", str(port)], first)
    target.start()
    try:
        first.write_text("its last words")
        os.kill(target._process.pid, signal.SIGKILL)
        target._process._process.wait()  # type: ignore[union-attr]
        target.apply({"chunk_size": 256})
        target.verify()
        assert target._process.log != first
        assert first.read_text() == "its last words"
    finally:
        target.stop()
