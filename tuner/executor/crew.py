"""The workers of one study, heard together: what they say, who has died, how each ended.

Invariant: run() returns when none is at work any more; stop() asks all of them to end first. One
that dies takes nobody with it.
"""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tuner.executor.worker import Heard
from tuner.units import count_text

END_S = 90.0
"""What a worker that was asked to end may take: its server's end, its GPU's memory freed."""


class WorkerLostError(Exception):
    """It will not be heard again; the message says why."""


class Seat(Protocol):
    """A worker, near or far. poll waits a second or so; WorkerLostError when it is no more."""

    def poll(self) -> Heard: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class End:
    """fault: what it said of its end, where it ended without a report."""

    name: str
    exit_code: int | None
    report: str = ""
    fault: str = ""


class Crew:
    """seats by name; tell(name, line) shows what a worker says. A worker's last words begin with
    fault_mark and are kept for its End."""

    def __init__(
        self, seats: Mapping[str, Seat], tell: Callable[[str, str], None], fault_mark: str
    ) -> None:
        self._seats, self._tell, self._fault_mark = dict(seats), tell, fault_mark
        self._faults: dict[str, list[str]] = {}
        self._heard: queue.SimpleQueue[tuple[str, Heard | WorkerLostError]] = queue.SimpleQueue()
        self._at_work = set(self._seats)
        self._listeners = [
            threading.Thread(target=self._listen, args=(name, seat), daemon=True)
            for name, seat in self._seats.items()
        ]
        self.ends: list[End] = []

    def run(self) -> list[End]:
        """How each ended, in that order."""
        for listener in self._listeners:
            listener.start()
        while self._at_work:
            name, heard = self._heard.get()
            self._take(name, heard)
        return self.ends

    def stop(self) -> bool:
        """After run() was interrupted: ask all to end and wait for it, unheard; False when one did
        not in time."""
        for name in self._at_work:
            self._seats[name].stop()
        deadline_s = time.monotonic() + END_S
        for listener in self._listeners:
            if listener.ident is not None:  # the interrupt may have come before its start
                listener.join(max(0.0, deadline_s - time.monotonic()))
        return not any(listener.is_alive() for listener in self._listeners)

    def _listen(self, name: str, seat: Seat) -> None:
        try:
            while (heard := seat.poll()).exit_code is None:
                self._heard.put((name, heard))
            self._heard.put((name, heard))
        except WorkerLostError as lost:
            self._heard.put((name, lost))
        except Exception as error:  # unheard for good, and run() would wait for it
            why = f"it cannot be heard: {type(error).__name__}: {error}"
            self._heard.put((name, WorkerLostError(why)))

    def _take(self, name: str, heard: Heard | WorkerLostError) -> None:
        if isinstance(heard, WorkerLostError):
            self._end(End(name, None, fault=f"died: {heard}"))
            return
        for line in heard.lines:
            if name in self._faults or line.startswith(self._fault_mark):
                self._faults.setdefault(name, []).append(line.removeprefix(self._fault_mark))
            else:
                self._tell(name, line)
        if heard.exit_code is not None:
            said = "\n".join(self._faults.get(name, []))
            fault = "" if heard.report else said or _died(heard.exit_code)
            self._end(End(name, heard.exit_code, heard.report, fault))

    def _end(self, end: End) -> None:
        self._at_work.discard(end.name)
        self.ends.append(end)
        if end.fault and self._at_work:
            others = count_text(len(self._at_work), "worker")
            self._tell(end.name, f"{end.fault}; the study goes on with {others}")


def _died(exit_code: int) -> str:
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    return f"died: killed by {_signal_name(-exit_code)}"


def _signal_name(number: int) -> str:
    """Python has no names for the real-time signals between the first and the last."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
