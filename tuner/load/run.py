"""Runs a plan: in this process, or in several where one core is not enough."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from tuner.load.generator import Generator
from tuner.load.plan import Interrupted, LoadPlan, LoadResult, Tick
from tuner.load.processes import Coordinator, decide_processes


def generate(plan: LoadPlan, on_tick: Tick | None = None) -> LoadResult:
    """Run the plan to its end. Never leaves connections or processes behind.

    Ctrl-C raises Interrupted, a KeyboardInterrupt whose `load` is the LoadResult so far, with
    stopped_early set. LoadBrokenError (a UserError with `load` likewise) where this machine grants
    no more connections or a process that sends was killed. What on_tick raises is raised on.
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
            return runner.run(work())
    except KeyboardInterrupt:
        result.stopped_early = True
        raise Interrupted(result) from None
