"""CSV tables: numbers alone by pandas, whole columns at a time; prompts row by row.

A file of one number a line is a table too: its numbers are lengths.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from datetime import MAXYEAR, MINYEAR
from typing import TYPE_CHECKING, Any

import numpy as np

from tuner.errors import UserError
from tuner.workload.collect import MAX_TOKENS, Collector
from tuner.workload.columns import LATEST_TIME, Named, Roles, form_of, roles_of, seconds_per_unit
from tuner.workload.rows import Floats, Ints, Rows

if TYPE_CHECKING:
    import pandas as pd

MAX_CELL_CHARS = 16 << 20
_DELIMITERS = ",;\t"
_SAW = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")
_CELLS: dict[str, Any] = {
    "skip_blank_lines": False, "encoding": "utf-8-sig", "keep_default_na": False, "na_values": [""],
}  # fmt: skip
"""How pandas reads: lines keep their numbers, and only an empty cell is a missing one, no `nan`."""


def csv_rows(handle: io.BufferedReader[Any], path: str, named: Named) -> Rows:
    """A header and its rows. Raises UserError naming the line."""
    csv.field_size_limit(MAX_CELL_CHARS)
    head = handle.peek(1 << 16).decode("utf-8-sig", errors="replace").splitlines() or [""]
    delimiter = max(_DELIMITERS, key=head[0].count)
    first = next(iter(csv.reader(head[:1], delimiter=delimiter)), [])
    if len(first) == 1 and _is_number(first[0]):
        return _one_column(handle, path)
    second = next(iter(csv.reader(head[1:], delimiter=delimiter)), [])
    header = [name.strip() for name in first]
    if not second:
        raise UserError(f"{path}: has a first line of column names, but no rows")
    if len(second) != len(header):
        raise UserError(_ragged(path, 2, len(second), len(header)))
    sample = dict(zip(header, second, strict=True))
    roles = roles_of(sample, named, f"{path}:1")
    if roles.has_text or roles.blocks:
        return _text_rows(handle, path, named, delimiter)
    if not (roles.time or roles.prompt_tokens or roles.output_tokens):
        raise UserError(
            f"{path}:1: no column is a prompt, a number of tokens or a time; name it with "
            f"prompt_column=, output_column= or time_column=; it has: {', '.join(header)}"
        )
    return _number_rows(handle, path, roles, delimiter)


def csv_row_at(path: str, offset: int, size: int) -> dict[str, object]:
    """The row that lies there, by the header's names. UserError when the file has changed."""
    csv.field_size_limit(MAX_CELL_CHARS)
    with open(path, "rb") as file:
        head = file.readline().decode("utf-8-sig").rstrip("\r\n")
        file.seek(offset)
        text = file.read(size).decode(errors="replace")
    delimiter = max(_DELIMITERS, key=head.count)
    header = next(csv.reader([head], delimiter=delimiter))
    row = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])
    if len(row) != len(header):
        raise UserError(f"{path}: has changed while it was used")
    return dict(zip((name.strip() for name in header), row, strict=True))


def _text_rows(handle: io.BufferedReader[Any], path: str, named: Named, delimiter: str) -> Rows:
    rows = Collector(path, named, "CSV of prompts")
    lines = _Lines(handle)
    reader = csv.reader(lines, delimiter=delimiter)
    header = [name.strip() for name in next(reader)]
    while True:
        offset, line = lines.offset, lines.line + 1
        try:
            row = next(reader, None)
        except csv.Error as fault:
            raise UserError(f"{path}:{line}: is no CSV ({fault})") from None
        if row is None:
            return rows.finish()
        if not row:
            continue
        if len(row) != len(header):
            raise UserError(_ragged(path, line, len(row), len(header)))
        rows.add(dict(zip(header, row, strict=True)), line, offset, lines.offset - offset)


class _Lines:
    """Lines for the csv module, counting what it has taken: a quoted cell may span several."""

    def __init__(self, handle: io.BufferedReader[Any]) -> None:
        self._handle = handle
        self.offset = self.line = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        data = self._handle.readline(MAX_CELL_CHARS)
        if not data:
            raise StopIteration
        self.offset += len(data)
        self.line += 1
        return data.decode("utf-8-sig" if self.line == 1 else "utf-8")


def _ragged(path: str, line: int, saw: int, cells: int) -> str:
    return f"{path}:{line}: has {saw} cells where line 1 has {cells}"


def _number_rows(handle: io.BufferedReader[Any], path: str, roles: Roles, delimiter: str) -> Rows:
    import pandas as pd

    wanted = {role: way[0] for role in _NUMBERS if (way := getattr(roles, role)) is not None}
    try:
        table = pd.read_csv(handle, sep=delimiter, low_memory=False, **_CELLS)
    except pd.errors.ParserError as fault:
        if found := _SAW.search(str(fault)):
            cells, line, saw = (int(group) for group in found.groups())
            raise UserError(_ragged(path, line, saw, cells)) from None
        raise UserError(f"{path}: is no CSV table ({str(fault).splitlines()[-1]})") from None
    table.columns = table.columns.str.strip()
    table = table.dropna(how="all")
    if table.empty:
        raise UserError(f"{path}: holds no rows")
    columns: dict[str, Any] = {
        role: _counts(table[name], path)
        for role, name in wanted.items()
        if role in ("prompt_tokens", "output_tokens")
    }
    times = _times(table[wanted["time"]], roles, path) if "time" in wanted else None
    return Rows(len(table), form_of("CSV", roles), times_s=times, **columns)


_NUMBERS = ("time", "prompt_tokens", "output_tokens")


def _counts(column: pd.Series[Any], path: str) -> Ints:
    import pandas as pd

    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64)
    bad = ~((numbers >= 0) & (numbers <= MAX_TOKENS) & (numbers == np.floor(numbers)))
    _refuse(column, bad, path, f"is no number of tokens from 0 to {MAX_TOKENS}")
    return numbers.astype(np.int64)


def _times(column: pd.Series[Any], roles: Roles, path: str) -> Floats:
    """Seconds, from any start: numbers in their unit, or dates."""
    import pandas as pd

    numbers = np.asarray(pd.to_numeric(column, errors="coerce"), dtype=np.float64)
    if not np.isnan(numbers[0]):
        _refuse(column, ~(np.abs(numbers) <= LATEST_TIME), path, "is no time")
        return np.asarray(numbers * seconds_per_unit(roles.unit, float(numbers.max())))
    dates = pd.to_datetime(column, format="ISO8601", errors="coerce", utc=True)
    known = dates.dt.year.between(MINYEAR, MAXYEAR)  # those of datetime, as in JSON
    _refuse(column, ~known.to_numpy(), path, "is no time")
    return np.asarray((dates - dates.min()).dt.total_seconds(), dtype=np.float64)


def _refuse(column: pd.Series[Any], bad: np.ndarray[Any, Any], path: str, why: str) -> None:
    if bad.any():
        first = int(np.argmax(bad))
        line, value = int(column.index[first]) + 2, column.iloc[first]
        shown = "nothing" if value != value else f"{str(value)!r:.60}"
        raise UserError(f"{path}:{line}: {column.name}: {shown} {why}")


def _one_column(handle: io.BufferedReader[Any], path: str) -> Rows:
    import pandas as pd

    column = pd.read_csv(handle, header=None, names=["length"], **_CELLS)["length"].dropna()
    column.index = column.index - 1  # there is no line of names
    lengths = _counts(column, path)
    return Rows(len(lengths), "one number a line", prompt_tokens=lengths, output_tokens=lengths)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
