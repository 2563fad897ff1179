"""One request's answer as it comes in: HTTP status, stream, time limits; all end in its record."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.load.connection import HttpError
from tuner.load.stream import StreamReader
from tuner.printable import one_line
from tuner.records import RequestRecord

MAX_REFUSAL_BYTES = 64 << 10
"""So much of what a refusing server says is read; a line of it is kept."""

DONE_GRACE_S = 1.0
"""A body that goes on for so long after [DONE] is taken for ended: the answer was complete."""


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Of one request, in seconds: until its answer is complete, and between two of its tokens."""

    total_s: float
    token_s: float | None = None


STREAM = b"event-stream"


class BodyStaysOpenError(HttpError):
    """The answer is complete, but the server does not end its body."""


class StreamedAnswer:
    """Times come in on the monotonic clock and go into the record on the measurement's."""

    __slots__ = (
        "_began_s", "_kind", "_limits", "_refusal", "connect_s", "heard_s", "reader", "record",
        "retries",
    )  # fmt: skip

    def __init__(
        self, record: RequestRecord, began_s: float, limits: TimeLimits, *, keep_text: bool
    ) -> None:
        self.record = record
        self.reader = StreamReader(record, keep_text=keep_text)
        self.connect_s = 0.0
        self.retries = 0
        self.heard_s = 0.0
        self._began_s = began_s
        self._limits = limits
        self._refusal = self._kind = b""

    def head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self.record.http_status = status
        self._kind = headers.get(b"content-type", b"").lower()
        if 300 <= status < 400:
            self._refusal = b"it redirects to %b; give that address. " % headers.get(
                b"location", b"another address"
            )
        if (coding := headers.get(b"content-encoding", b"identity").lower()) != b"identity":
            self.reader.fail(
                f"the answer is compressed ({_told(coding)}) though none was asked for"
            )

    def body(self, data: bytes, at_s: float) -> None:
        self.heard_s = at_s - self._began_s
        if self.record.http_status == 200:
            self.reader.feed(data, self.heard_s)
        elif len(self._refusal) < MAX_REFUSAL_BYTES:
            self._refusal += data

    def end(self, at_s: float) -> None:
        if self.record.http_status == 200:
            self.reader.end(at_s - self._began_s)
            if not self.record.chunk_times_s and STREAM not in self._kind:
                self.record.error += f": it is {_told(self._kind) or 'untyped'}, no event stream"
        else:
            self.fail(f"HTTP {self.record.http_status}: {_told(self._refusal)}", at_s)

    def fail(self, error: str, at_s: float) -> None:
        self.reader.fail(one_line(error))
        self.record.end_s = at_s - self._began_s

    def overdue(self, at_s: float) -> HttpError | None:
        """What ends this answer now, before its own end."""
        now_s = at_s - self._began_s
        record, limits = self.record, self._limits
        if self.reader.done and now_s - self.heard_s > DONE_GRACE_S:
            return BodyStaysOpenError("the server does not end its answer")
        if record.error:  # nothing that still comes can mend it
            return HttpError(record.error)
        times_s = record.chunk_times_s
        if len(times_s) > self.reader.most_tokens:
            return HttpError(
                f"more than {self.reader.most_tokens} tokens came where "
                f"{record.wanted_output_tokens} were asked for"
            )
        if now_s - record.sent_s > limits.total_s:
            return HttpError(f"no complete answer within {limits.total_s:g} s")
        if limits.token_s is not None and times_s and now_s - times_s[-1] > limits.token_s:
            return HttpError(f"no token for {limits.token_s:g} s after the last")
        return None


def _told(data: bytes) -> str:
    """What a server said, as one line."""
    return one_line(data.decode(errors="replace"))
