"""Wakes tasks at exact times. Event loops round their timers to whole milliseconds; here Linux's
timerfd keeps the time, to some 50 µs. Elsewhere the loop's own timer must do."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import heapq
import itertools
import os
import struct
import sys
import time

_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1
_TFD_FLAGS = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
LEAST_S = 1e-9
"""An alarm set to zero would be switched off."""


class Alarm:
    """Belongs to the running loop; close() it there. Times are of the monotonic clock."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._fd = _timerfd()
        if self._fd is not None:
            self._loop.add_reader(self._fd, self._rang)

    async def until(self, at_s: float) -> None:
        """Return at at_s or right after; at once where that has passed."""
        if at_s <= time.monotonic():
            return
        ring: asyncio.Future[None] = self._loop.create_future()
        heapq.heappush(self._waiting, (at_s, next(self._order), ring))
        if self._waiting[0][2] is ring:
            self._set(at_s)
        await ring

    def ring_all(self) -> None:
        """Wake everyone now."""
        for _, _, ring in self._waiting:
            if not ring.done():
                ring.set_result(None)
        self._waiting.clear()

    def close(self) -> None:
        self.ring_all()
        if self._timer is not None:
            self._timer.cancel()
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None

    def _rang(self) -> None:
        if self._fd is not None:
            try:
                os.read(self._fd, 8)
            except BlockingIOError:  # set anew in between
                return
        now_s = time.monotonic()
        while self._waiting and (self._waiting[0][0] <= now_s or self._waiting[0][2].done()):
            ring = heapq.heappop(self._waiting)[2]
            if not ring.done():
                ring.set_result(None)
        if self._waiting:
            self._set(self._waiting[0][0])

    def _set(self, at_s: float) -> None:
        if self._fd is None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(max(0.0, at_s - time.monotonic()), self._rang)
            return
        at_ns = int(max(LEAST_S, at_s) * 1e9)
        spec = struct.pack("@qqqq", 0, 0, at_ns // 10**9, at_ns % 10**9)
        _libc().timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, spec, None)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _timerfd() -> int | None:
    if not sys.platform.startswith("linux"):
        return None
    fd = int(_libc().timerfd_create(_CLOCK_MONOTONIC, _TFD_FLAGS))
    return fd if fd >= 0 else None
