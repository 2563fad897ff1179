"""Server-sent events as bytes: cuts a body into events, and an event into its data.

Line ends are \\n, \\r\\n or \\r, also where a transport cuts them in two. Invariant: how a body is
cut into pieces never changes which events come out, only when.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_EVENT_BYTES = 4 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventTooLargeError(Exception):
    """One event exceeds MAX_EVENT_BYTES: no token does."""


@dataclass(slots=True)
class EventCutter:
    """feed() gives the events that ended; rest is what waits for its blank line."""

    rest: bytes = b""
    _started: bool = False

    def feed(self, data: bytes) -> list[bytes]:
        """Whole events (their lines end in \\n), without the blank line that ends them."""
        buffer = self.rest + data if self.rest else data
        if not self._started:
            if len(buffer) < len(BYTE_ORDER_MARK) and BYTE_ORDER_MARK.startswith(buffer):
                self.rest = buffer
                return []
            self._started = True
            buffer = buffer.removeprefix(BYTE_ORDER_MARK)
        held = b""
        if b"\r" in buffer:
            if buffer.endswith(b"\r"):  # its \n may come with the next piece
                buffer, held = buffer[:-1], b"\r"
            buffer = buffer.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        events = buffer.split(b"\n\n")
        self.rest = events.pop() + held
        if len(self.rest) > MAX_EVENT_BYTES:
            raise EventTooLargeError
        return events

    def end(self) -> list[bytes]:
        """What is left when the body ends: a last event without its blank line still counts."""
        return self.feed(b"\n\n")


def payloads(event: bytes) -> tuple[list[bytes], str]:
    """(data lines, event type) of one event; comments and other fields are skipped."""
    lines: list[bytes] = []
    kind = ""
    for line in event.split(b"\n"):
        if line.startswith(b"data:"):
            lines.append(line[5:].strip())
        elif line.startswith(b"event:"):
            kind = line[6:].strip().decode(errors="replace")
    return lines, kind
