"""One of several processes that send a load together: python -m tuner.load.worker FD

Started by tuner.load.processes with one end of a socket. Invariant: it ends with that socket, so a
killed parent leaves no sender behind; Ctrl-C is the parent's business.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import traceback

import uvloop

from tuner.errors import UserError
from tuner.load.frames import End, Link, Order, Ready, Report, Start, Stop
from tuner.load.generator import Generator
from tuner.load.plan import LoadResult
from tuner.records import RequestRecord

REPORT_S = 0.1


class Worker:
    def __init__(self) -> None:
        self._orders: asyncio.Queue[object] = asyncio.Queue()
        self._generator: Generator | None = None
        self._ended = False
        self._seen = 0
        self._running: list[RequestRecord] = []

    async def run(self, own_end: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        _, self._link = await loop.create_connection(
            lambda: Link(self._take, self._lost), sock=own_end
        )
        order = await self._orders.get()
        assert isinstance(order, Order)
        generator = self._generator = Generator(
            order.plan, self._report, shard=order.shard, tick_s=REPORT_S
        )
        generator.prepare()
        self._link.send(Ready())
        start = await self._orders.get()
        fault = ""
        if isinstance(start, Start):
            fault = await self._send(generator, start.began_s)
        self._report(generator.result)
        self._ended = True
        self._link.send(End(generator.result.stalls, generator.result.sent_all, fault))
        self._link.close()
        await asyncio.sleep(60)  # until the socket is closed and this process with it

    async def _send(self, generator: Generator, began_s: float) -> str:
        try:
            await generator.run(began_s)
        except asyncio.CancelledError:  # cut
            return ""
        except UserError as fault:
            return str(fault)
        except Exception:
            return traceback.format_exc()
        return ""

    def _take(self, message: object) -> None:
        if not isinstance(message, Stop) or self._generator is None or not self._generator.started:
            self._orders.put_nowait(message)
        elif message.now:
            self._generator.cut()
        else:
            self._generator.stop()

    def _lost(self) -> None:
        """Nobody listens any more: whatever is under way ends with this process."""
        os._exit(0 if self._ended else 1)

    def _report(self, result: LoadResult) -> bool:
        """New requests as they begin, and each again when it has ended."""
        begun = result.records[self._seen :]
        self._seen += len(begun)
        ended = [r for r in self._running if r.end_s == r.end_s]
        self._running = [r for r in [*self._running, *begun] if r.end_s != r.end_s]
        if begun or ended:
            self._link.send(Report([*begun, *ended]))
        return False


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    own_end = socket.socket(fileno=int(sys.argv[1]))
    own_end.setblocking(False)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Worker().run(own_end))


if __name__ == "__main__":
    main()
