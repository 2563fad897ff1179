"""Signals that come while what was measured is brought to safety."""

from __future__ import annotations

import signal
import threading

import pytest

from tuner import interrupts
from tuner.measure.held_back import held_back

SAID = "tuner: keeping what was measured; once more ends it at once\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_is_held_back_a_later_one_ends(
    number: signal.Signals, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(interrupts, "BURST_S", 0.0)
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        signalled(number, done)
    assert done == ["work"]
    assert capsys.readouterr().err == SAID
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def signalled(number: signal.Signals, done: list[str]) -> None:
    with held_back():
        signal.raise_signal(number)
        done.append("work")
        signal.raise_signal(signal.SIGINT)
        done.append("more work")


def test_nobody_has_read_the_line_in_a_burst(capsys: pytest.CaptureFixture[str]) -> None:
    done: list[str] = []
    signalled(signal.SIGINT, done)
    assert done == ["work", "more work"]
    assert capsys.readouterr().err == SAID


def test_other_threads_leave_signals_alone() -> None:
    done = []

    def work() -> None:
        with held_back():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert done == [True]
