"""Runs a plan: in this process, or in several where one core is not enough."""

from __future__ import annotations

import asyncio

import uvloop

from tuner.load.generator import Generator
from tuner.load.plan import Interrupted, LoadPlan, LoadResult, Tick


def generate(plan: LoadPlan, on_tick: Tick | None = None) -> LoadResult:
    """Run the plan to its end. Never leaves connections or processes behind.

    Ctrl-C raises Interrupted, a KeyboardInterrupt whose `load` is the LoadResult so far, with
    stopped_early set. LoadBrokenError (a UserError with `load` likewise) where this machine grants
    no more connections or a process that sends was killed. What on_tick raises is raised on.
    """
    return _alone(plan, on_tick)


def _alone(plan: LoadPlan, on_tick: Tick | None) -> LoadResult:
    generator = Generator(plan, on_tick)
    generator.prepare()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(generator.run())
    except KeyboardInterrupt:
        generator.result.stopped_early = True
        raise Interrupted(generator.result) from None
