"""The rows of a recorded file as columns: what a request needs, never the prompts' text itself.

Invariant: memory is a few numbers for each row. Text stays in its file; a span (offset, length)
says where its row lies, and it is read again when the request is sent.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.workload.columns import NO_ROLES, Roles

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Blocks:
    """Block ids of all rows in one flat array; row i has flat[starts[i] : starts[i + 1]]."""

    flat: Ints
    starts: Ints

    def of(self, row: int) -> list[int]:
        ids: list[int] = self.flat[self.starts[row] : self.starts[row + 1]].tolist()
        return ids

    def take(self, chosen: Ints) -> Blocks:
        sizes = np.diff(self.starts)[chosen]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        steps = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
        return Blocks(self.flat[np.repeat(self.starts[chosen], sizes) + steps], starts)


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns of equal length; None where the file has none.

    times_s: arrival since the first row. prompt_tokens of text rows are estimates. offsets and
    sizes: where a text row lies in its file, bytes. turns: user messages of a text row. form: what
    the file was taken for. roles: its columns.
    """

    count: int
    form: str
    roles: Roles = NO_ROLES
    times_s: Floats | None = None
    prompt_tokens: Ints | None = None
    output_tokens: Ints | None = None
    blocks: Blocks | None = None
    offsets: Ints | None = None
    sizes: Ints | None = None
    turns: Ints | None = None
    estimated: bool = False
    left_out: tuple[tuple[str, int], ...] = ()

    @property
    def has_text(self) -> bool:
        return self.offsets is not None

    def take(self, chosen: Ints, why: str = "") -> Rows:
        """The chosen rows in that order; why the others were left out, if any were."""
        columns: dict[str, Any] = {
            f.name: value[chosen]
            for f in fields(self)
            if isinstance(value := getattr(self, f.name), np.ndarray)
        }
        blocks = self.blocks.take(chosen) if self.blocks is not None else None
        missing = self.count - len(chosen)
        left_out = (*self.left_out, (why, missing)) if missing and why else self.left_out
        return replace(self, count=len(chosen), blocks=blocks, left_out=left_out, **columns)
