"""The clock that requests are sent by."""

from __future__ import annotations

import asyncio
import time

from tuner.load.alarm import Alarm


async def test_alarm_wakes_in_order_and_not_early() -> None:
    alarm = Alarm()
    woken: list[tuple[float, float]] = []

    async def sleeper(at_s: float) -> None:
        await alarm.until(at_s)
        woken.append((at_s, time.monotonic()))

    now_s = time.monotonic()
    sleepers = [sleeper(now_s + delay) for delay in (0.05, 0.01, 0.03, -1.0, 0.0305)]
    await asyncio.gather(*sleepers)
    alarm.close()
    assert [at_s for at_s, _ in woken] == sorted(at_s for at_s, _ in woken)
    assert all(at_s <= woken_s for at_s, woken_s in woken)


async def test_alarm_can_ring_for_all() -> None:
    alarm = Alarm()
    sleepers = [asyncio.create_task(alarm.until(time.monotonic() + 600)) for _ in range(3)]
    await asyncio.sleep(0)
    alarm.ring_all()
    await asyncio.wait_for(asyncio.gather(*sleepers), 30)
    alarm.close()
