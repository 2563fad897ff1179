"""Our own request tables: one request a row, as JSON lines or Parquet, with the run's header.

Invariant: reading what was written gives the same run – every column, bit for bit, and the header.
JSON lines: the first line is {"slotune_requests": VERSION, "run": header}, each further line one
request. Parquet: one row a request, the same header in the schema's metadata under KEY.
Times are seconds since the run began (run.began_unix_s); null is a time that never came.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import orjson

from tuner.errors import UserError
from tuner.exchange.checks import checked
from tuner.exchange.run import Run, header, in_window
from tuner.records import RequestRecord

if TYPE_CHECKING:
    import pyarrow

VERSION = 1
KEY = b"slotune_requests"
NEEDS_PYARROW = "Parquet needs pyarrow: pip install 'slotune[parquet]', or use --format jsonl"

LATER = {"session", "turn"}
"""Columns that the records of older runs do not have."""

_TYPES = {f.name: str(f.type) for f in dataclasses.fields(RequestRecord)}
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY


def write_jsonl(run: Run, out: BinaryIO) -> None:
    head = {"slotune_requests": VERSION, "run": header(run)}
    out.write(orjson.dumps(head, option=_OPTIONS) + b"\n")
    columns = {**run.columns, **derived(run)}
    names = list(columns)
    for values in zip(*columns.values(), strict=True):
        out.write(orjson.dumps(dict(zip(names, values, strict=True)), option=_OPTIONS) + b"\n")


def read_jsonl(lines: Iterator[bytes], name: str) -> Run:
    """The run of a JSON-lines file. Raises UserError naming the line."""
    head = _json(next(lines, b""), name, 1)
    rows = [_json(line, name, number) for number, line in enumerate(lines, 2) if line.strip()]
    columns: dict[str, list[Any]] = {}
    for field in _TYPES:
        if rows and field in rows[0]:
            try:
                columns[field] = [_value(field, row[field]) for row in rows]
            except KeyError as error:
                raise UserError(f"{name}: not every line has the column {field!r}") from error
            except (TypeError, ValueError) as error:
                raise UserError(f"{name}: the column {field!r} is damaged ({error})") from error
    return _run(head, columns, name)


def write_parquet(run: Run, path: Path) -> None:
    """Raises UserError without pyarrow."""
    arrow, parquet = _pyarrow()
    columns = {**run.columns, **derived(run)}
    arrays = {name: _array(arrow, name, values) for name, values in columns.items()}
    head = orjson.dumps({"slotune_requests": VERSION, "run": header(run)}, option=_OPTIONS)
    table = arrow.table(arrays).replace_schema_metadata({KEY: head})
    parquet.write_table(table, path, compression="zstd")


def read_parquet(path: Path) -> Run:
    """Raises UserError without pyarrow and for a table that is not ours."""
    arrow, parquet = _pyarrow()
    try:
        table = parquet.read_table(path)
    except (arrow.ArrowInvalid, OSError) as error:
        raise UserError(f"{path.name} is no readable Parquet file: {error}") from error
    head = (table.schema.metadata or {}).get(KEY)
    if head is None:
        raise UserError(f"{path.name} is a Parquet file, but none that `tuner export` has written")
    names = [name for name in _TYPES if name in table.column_names]
    columns = {name: _column(name, table.column(name)) for name in names}
    return _run(_json(head, path.name, 1), columns, path.name)


def derived(run: Run) -> dict[str, Sequence[Any]]:
    """What a reader would compute first: in_window, and latencies in seconds since the scheduled
    send, null for a request that failed or was cut off and for a time that never came."""
    scheduled = np.asarray(run.columns["scheduled_s"], dtype=float)
    first = np.asarray(run.columns["first_token_s"], dtype=float)
    tokens = np.asarray(run.columns["output_tokens"], dtype=float)
    good = np.array([state == "ok" for state in run.columns["state"]], dtype=bool)
    ends = zip(run.columns["chunk_times_s"], run.columns["end_s"], strict=True)
    last = np.array([times[-1] if len(times) else end for times, end in ends], dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = np.where(tokens > 1, (last - first) / (tokens - 1), math.nan)
    return {
        "in_window": in_window(run).tolist(),
        "ttft_s": np.where(good, first - scheduled, math.nan),
        "tpot_s": np.where(good, tpot, math.nan),
        "e2e_s": np.where(good, last - scheduled, math.nan),
    }


def _run(head: Any, columns: Mapping[str, Sequence[Any]], name: str) -> Run:
    """Checked against what a run must hold."""
    version = head.get("slotune_requests") if isinstance(head, dict) else None
    if version != VERSION:
        raise UserError(f"{name}: format version {version} is not known here; {VERSION} is")
    if missing := sorted(set(_TYPES) - LATER - set(columns)):
        raise UserError(f"{name} lacks the columns {', '.join(missing)}")
    known = {f.name for f in dataclasses.fields(Run)}
    try:
        values = {key: value for key, value in head["run"].items() if key in known}
        start_s, end_s = values.pop("window_s")
        run = Run(name=name, columns=columns, window_s=(float(start_s), float(end_s)), **values)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{name}: the run's header is damaged ({error!r})") from error
    return checked(run)


def _value(field: str, value: Any) -> Any:
    """JSON has no NaN: null is the time that never came."""
    kind = _TYPES[field]
    if kind == "float":
        return math.nan if value is None else float(value)
    if kind == "list[float]":
        return [float(item) for item in value]
    return value


def _json(line: bytes, name: str, number: int) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise UserError(f"{name}: line {number} is no JSON ({error})") from error


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UserError(NEEDS_PYARROW) from error
    return pyarrow, pyarrow.parquet


def _array(arrow: Any, name: str, values: Sequence[Any]) -> pyarrow.Array:
    """NaN becomes null; ragged columns become lists without a Python object per number."""
    kind = _TYPES.get(name, "float" if name != "in_window" else "bool")
    if kind.startswith("list"):
        item = np.float64 if kind == "list[float]" else np.int64
        lengths = np.array([len(value) for value in values], dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        parts = [np.asarray(value, dtype=item) for value in values]
        flat = np.concatenate(parts) if parts else np.empty(0, dtype=item)
        return arrow.ListArray.from_arrays(arrow.array(offsets), arrow.array(flat))
    if kind == "float":
        return arrow.array(np.asarray(values, dtype=np.float64), from_pandas=True)
    return arrow.array(values.tolist() if isinstance(values, np.ndarray) else list(values))


def _column(name: str, column: Any) -> Sequence[Any]:
    kind = _TYPES[name]
    if kind == "float":
        filled: Sequence[Any] = column.to_numpy(zero_copy_only=False)
        return filled
    if kind.startswith("list") and len(column):
        whole = column.combine_chunks()
        offsets = whole.offsets.to_numpy()
        return np.split(whole.values.to_numpy(), offsets[1:-1])
    values: list[Any] = column.to_pylist()
    return values
