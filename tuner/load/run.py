"""Runs a plan: in this process, or in several where one core is not enough."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

import uvloop

from tuner.load.generator import Generator
from tuner.load.plan import Interrupted, LoadPlan, LoadResult, Tick
from tuner.load.processes import Coordinator, decide_processes


def generate(plan: LoadPlan, on_tick: Tick | None = None) -> LoadResult:
    """Run the plan to its end. Never leaves connections or processes behind.

    Ctrl-C raises Interrupted, a KeyboardInterrupt whose `load` is the LoadResult so far, with
    stopped_early set; so does SIGTERM where the caller has a handler for it. LoadBrokenError (a
    UserError with `load` likewise) where this machine grants no more connections or a process that
    sends was killed. What on_tick raises is raised on.
    """
    processes, why = decide_processes(plan)
    work: Callable[[], Coroutine[Any, Any, LoadResult]]
    if processes == 1:
        generator = Generator(plan, on_tick)
        generator.prepare()
        result, work = generator.result, generator.run
    else:
        coordinator = Coordinator(plan, processes, on_tick)
        result, work = coordinator.result, coordinator.run
    result.processes_why = why
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_until_sigterm(work()))
    except (KeyboardInterrupt, _TerminatedError):
        result.stopped_early = True
        raise Interrupted(result) from None


class _TerminatedError(Exception):
    """SIGTERM has ended the work."""


async def _until_sigterm(work: Coroutine[Any, Any, LoadResult]) -> LoadResult:
    """SIGTERM cancels the work, as the Runner lets Ctrl-C do: a handler that raises may be called
    inside a callback of the event loop, which swallows what is raised there."""
    before = signal.getsignal(signal.SIGTERM)
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    if (
        not callable(before)
        or task is None
        or threading.current_thread() is not threading.main_thread()
    ):
        return await work
    came = False

    def end(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        came = True
        loop.call_soon_threadsafe(task.cancel)

    signal.signal(signal.SIGTERM, end)
    try:
        return await work
    except asyncio.CancelledError:
        if came:
            raise _TerminatedError from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
