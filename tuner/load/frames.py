"""Messages between the process that coordinates a load and those that send it.

A frame is its length and a pickle; both ends are this program, on a socket that no one else has.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from tuner.load.plan import LoadPlan
from tuner.load.schedule import Shard
from tuner.load.stalls import LoopStalls
from tuner.records import RequestRecord

_LENGTH = struct.Struct("!I")


@dataclass(frozen=True, slots=True)
class Order:
    """The first word to a sender: what to send, and which part of it."""

    plan: LoadPlan
    shard: Shard


@dataclass(frozen=True, slots=True)
class Ready:
    """The sender has built what it sends first."""


@dataclass(frozen=True, slots=True)
class Start:
    """began_s: the common start on the monotonic clock, which all processes share."""

    began_s: float


@dataclass(frozen=True, slots=True)
class Stop:
    """Send no more; now: end what is under way too."""

    now: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """Requests that began or ended since the last report."""

    records: list[RequestRecord]


@dataclass(frozen=True, slots=True)
class End:
    """The last word of a sender, after its last report. fault: why it broke off."""

    stalls: LoopStalls = field(default_factory=LoopStalls)
    sent_all: bool = False
    fault: str = ""


class Link(asyncio.Protocol):
    """One end of the socket: take() gets each message, lost() is called when the other end is
    gone."""

    def __init__(self, take: Callable[[Any], None], lost: Callable[[], None]) -> None:
        self._take, self._lost = take, lost
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    def send(self, message: object) -> None:
        if self._transport is not None and not self._transport.is_closing():
            data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
            self._transport.write(_LENGTH.pack(len(data)) + data)

    def close(self) -> None:
        """After what was sent has gone out."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(buffer)[0]
            if len(buffer) < end:
                return
            message = pickle.loads(bytes(buffer[_LENGTH.size : end]))
            del buffer[:end]
            self._take(message)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._lost()
