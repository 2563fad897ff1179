"""Runs a plan: in this process, or in several where one core is not enough."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from tuner import interrupts
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
            return runner.run(_until_signalled(work()))
    except (KeyboardInterrupt, _SignalledError):
        result.stopped_early = True
        raise Interrupted(result) from None


class _SignalledError(Exception):
    """A signal has ended the work."""


async def _until_signalled(work: Coroutine[Any, Any, LoadResult]) -> LoadResult:
    """Ctrl-C and SIGTERM cancel the work, where the caller has a handler for them: one that raises
    may be called inside a callback of the event loop, which reports and swallows what is raised
    there. Further ones change nothing: the end takes no longer than senders need to stop."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    came = False

    def end() -> None:
        nonlocal came
        interrupts.is_repeated()
        if not came:
            came = True
            loop.call_soon_threadsafe(task.cancel)

    caught = [number for number in interrupts.SIGNALS if callable(signal.getsignal(number))]
    with interrupts.handled_by(end, caught):
        try:
            found = await work
        except asyncio.CancelledError:
            if not came:
                raise
            raise _SignalledError from None
        if came:  # when the work had just ended
            raise _SignalledError
        return found
