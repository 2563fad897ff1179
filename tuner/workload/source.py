"""A recorded file as the source of a workload: which row a session is, and what it holds.

`file=` gives prompts or pairs of lengths in a shuffled order; `trace=` gives them in the order
they came, with their times. A session beyond the last row starts again from the first.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from tuner.errors import UserError
from tuner.units import parse_duration_s
from tuner.workload.columns import AS_NAMED, Named
from tuner.workload.dialog import Dialog, NotADialogError, dialog_of, tokens_of
from tuner.workload.read import read_recording
from tuner.workload.rows import Rows
from tuner.workload.writing import FileName, plain, quoted

Kind = Literal["file", "trace"]
Order = Literal["random", "file"]


@dataclass(frozen=True, slots=True)
class Source:
    """from_s and for_s: the part of a trace that is replayed, in its own time. fit: rows that
    need more tokens (prompt and output) are left out, 0: none are."""

    kind: Kind
    file: FileName
    named: Named = AS_NAMED
    order: Order = "random"
    fit: int = 0
    from_s: float = 0.0
    for_s: float | None = None
    rows: Rows = field(default_factory=lambda: Rows(0, ""), compare=False, repr=False)

    def row(self, seed: int, session: int) -> tuple[int, int]:
        """(row of a session, how often the rows were gone through before)."""
        again, place = divmod(session, self.rows.count)
        if self.order == "random":
            place = int(_shuffled(seed, self.rows.count)[place])
        return place, again

    def dialog(self, row: int) -> Dialog:
        """The messages of a text row, read from its file. Raises UserError when it has changed."""
        from tuner.workload.read_csv import csv_row_at
        from tuner.workload.read_json import row_at

        rows = self.rows
        assert rows.offsets is not None
        assert rows.sizes is not None
        read = csv_row_at if rows.form.startswith("CSV") else row_at
        found = read(self.file.path, int(rows.offsets[row]), int(rows.sizes[row]))
        try:
            return dialog_of(found, rows.roles)
        except NotADialogError:
            raise UserError(f"{self.file.path}: has changed while it was used") from None

    def lengths(self, row: int) -> tuple[int, int]:
        """(prompt, output) tokens of a row; 0 where its file does not say."""
        prompts, outputs = self.rows.prompt_tokens, self.rows.output_tokens
        return (
            int(prompts[row]) if prompts is not None else 0,
            int(outputs[row]) if outputs is not None else 0,
        )

    def output_after(self, row: int, turn: int) -> int:
        """About how long the file's answer to one turn of a conversation is, in tokens."""
        return tokens_of(self.dialog(row).answer_after(turn))

    def text_parts(self) -> list[str]:
        """As in a --workload text."""
        parts = [f"{self.kind}={self.file}"]
        if self.order != ("random" if self.kind == "file" else "file"):
            parts.append(f"order={self.order}")
        if self.fit:
            parts.append(f"fit={self.fit}")
        if self.from_s:
            parts.append(f"from={plain(self.from_s)}s")
        if self.for_s is not None:
            parts.append(f"for={plain(self.for_s)}s")
        named = self.named
        for key, name in (("prompt", named.prompt), ("output", named.output), ("time", named.time)):
            if name:
                parts.append(f"{key}_column={quoted(name)}")
        if named.unit:
            parts.append(f"time_unit={named.unit}")
        return parts


def open_source(
    kind: Kind,
    file: FileName,
    named: Named,
    order: Order,
    fit: int = 0,
    from_text: str = "0s",
    for_text: str | None = None,
) -> Source:
    """Reads the file. Raises UserError when it is not what it should be, or has changed."""
    recording = read_recording(file.path, named)
    known = file.checked(recording.sha256)
    from_s = parse_duration_s(from_text, "--workload: from=", zero_allowed=True)
    for_s = parse_duration_s(for_text, "--workload: for=") if for_text is not None else None
    rows = recording.rows
    if kind == "trace":
        rows = _in_time(rows, known.path, from_s, for_s)
    if fit:
        rows = _fitting(rows, known.path, fit)
    return Source(kind, known, named, order, fit, from_s, for_s, rows)


def _in_time(rows: Rows, path: str, from_s: float, for_s: float | None) -> Rows:
    """The rows of a span of the trace, ascending, their times from the span's start on."""
    if rows.times_s is None:
        raise UserError(
            f"{path}: has no column of times; name it with time_column=, or use file= for its "
            "lengths alone"
        )
    order = np.argsort(rows.times_s, kind="stable")
    times = rows.times_s[order] - rows.times_s[order[0]]
    end_s = from_s + for_s if for_s is not None else np.inf
    inside = (times >= from_s) & (times < end_s)
    if not inside.any():
        raise UserError(
            f"{path}: no request came in the span asked for; the trace lasts {times[-1]:.6g} s"
        )
    chosen = rows.take(order[inside], "outside from= and for=")
    return replace(chosen, times_s=times[inside] - from_s)


def _fitting(rows: Rows, path: str, fit: int) -> Rows:
    need = np.zeros(rows.count, dtype=np.int64)
    for column in (rows.prompt_tokens, rows.output_tokens):
        if column is not None:
            need += column
    chosen = np.flatnonzero(need <= fit)
    if not len(chosen):
        raise UserError(
            f"{path}: no row needs {fit} tokens or fewer; the smallest needs {need.min()}"
        )
    return rows.take(chosen, f"more than fit={fit} tokens")


@lru_cache(maxsize=4)
def _shuffled(seed: int, count: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng((seed, 2**31 + 1)).permutation(count)
