"""The status line on a terminal that is narrower than it."""

from __future__ import annotations

import re

from tuner.cli.common import UNKNOWN_COLUMNS, ProgressLine

TOKENS = re.compile(r"\x1b\[(\d*)([AJ])|(\r)|(\n)|(.)")


class Screen:
    """A terminal that wraps: its rows, as a person sees them."""

    def __init__(self) -> None:
        self.rows, self.row, self.column = [""], 0, 0

    def isatty(self) -> bool:
        return True

    def flush(self) -> None: ...

    def write(self, text: str) -> int:
        for count, command, back, down, letter in TOKENS.findall(text):
            if command == "A":
                self.row -= int(count)
            elif command == "J":
                self.rows = [*self.rows[: self.row], self.rows[self.row][: self.column]]
            elif back:
                self.column = 0
            elif down:
                self._below()
            else:
                self._put(letter)
        return len(text)

    def _below(self) -> None:
        self.row, self.column = self.row + 1, 0
        self.rows += [""] * (self.row + 1 - len(self.rows))

    def _put(self, letter: str) -> None:
        if self.column == UNKNOWN_COLUMNS:
            self._below()
        here = self.rows[self.row].ljust(self.column)
        self.rows[self.row] = here[: self.column] + letter + here[self.column + 1 :]
        self.column += 1

    @property
    def seen(self) -> list[str]:
        return [row.rstrip() for row in self.rows if row.strip()]


def test_a_line_that_wraps_is_rewritten_in_place() -> None:
    screen = Screen()
    line = ProgressLine(stream=screen)  # type: ignore[arg-type]
    for length in (200, 190, 80, 30, 161, 160, 200):
        line.update("x" * length)
        assert "".join(screen.seen) == "x" * length
    line.note("1 done")
    assert screen.seen == ["1 done"]
    line.update("y" * 170)
    line.clear()
    assert screen.seen == ["1 done"]
