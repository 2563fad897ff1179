"""Ctrl-C pressed once, several times at once, and again later."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tuner import interrupts


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    interrupts.forget()
    yield
    interrupts.forget()


def presses(count: int) -> int:
    """How many of them raise KeyboardInterrupt."""
    raised = 0
    for _ in range(count):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raised += 1
    return raised


def test_a_burst_is_one_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    with interrupts.handled_by(interrupts.interrupt):
        assert presses(3) == 1
        assert presses(3) == 0
        monkeypatch.setattr(interrupts, "BURST_S", 0.0)  # as if time had passed
        assert presses(2) == 2


def test_sigterm_and_ctrl_c_are_one_burst() -> None:
    with interrupts.handled_by(interrupts.interrupt):
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        assert presses(1) == 0


def test_handlers_of_before_are_back() -> None:
    before = [signal.getsignal(number) for number in interrupts.SIGNALS]
    with contextlib.suppress(KeyboardInterrupt), interrupts.handled_by(interrupts.interrupt):
        assert signal.getsignal(signal.SIGINT) not in before
        signal.raise_signal(signal.SIGINT)
    assert [signal.getsignal(number) for number in interrupts.SIGNALS] == before


def test_what_the_process_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts.handled_by(interrupts.interrupt):
            assert presses(1) == 0
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_change_nothing() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work() -> None:
        with interrupts.handled_by(interrupts.interrupt):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert seen == [before]


def test_a_process_that_is_ending_goes_without_a_word() -> None:
    code = (
        "import signal\nfrom tuner import interrupts\n"
        "interrupts.is_repeated()\n"
        "interrupts.end_process(7)\n"
        "signal.raise_signal(signal.SIGINT)\n"
        "print('still here', flush=True)\n"
        "interrupts.forget()\n"
        "signal.raise_signal(signal.SIGINT)\n"
        "print('never', flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (7, "still here\n", "")
