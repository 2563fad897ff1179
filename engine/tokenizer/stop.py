"""Stop strings on a growing text. Invariant: no character that belongs to a stop string, or that
may still turn out to begin one, is ever released."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Releases text piece by piece and ends at the earliest stop string.

    `stopped` holds the stop string that was found, else None.
    """

    __slots__ = ("_held", "_longest", "_stops", "stopped")

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._longest = max((len(stop) for stop in stops), default=0)
        self._held = ""
        self.stopped: str | None = None

    def feed(self, piece: str) -> str:
        """Take new text; return what may be shown now."""
        if not self._stops:
            return piece
        text = self._held + piece
        end, found = self._earliest(text)
        if found is not None:
            self.stopped = found
            self._held = ""
            return text[:end]
        keep = self._possible_start(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """The text held back, once no more will follow."""
        held, self._held = self._held, ""
        return held

    def _earliest(self, text: str) -> tuple[int, str | None]:
        end, found = len(text), None
        for stop in self._stops:
            position = text.find(stop)
            if 0 <= position < end:
                end, found = position, stop
        return end, found

    def _possible_start(self, text: str) -> int:
        """Length of the longest end of the text that begins some stop string."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            tail = text[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
