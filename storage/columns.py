"""Request records as one compressed blob: a header naming the columns, then their bytes.

Invariant: decode(encode(columns)) gives the same values. Numbers are stored as little-endian
arrays whose bytes are grouped by significance before compression (times grow slowly, so the high
bytes repeat); ragged columns (chunk times of each request) are one flat array and its lengths.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import orjson

CODEC = "columns-zlib-1"
Column: TypeAlias = "np.ndarray[Any, np.dtype[Any]] | list[Any]"
_LENGTH_BYTES = 4


def encode(columns: Mapping[str, Sequence[Any] | np.ndarray[Any, Any]]) -> tuple[int, bytes]:
    """(number of requests, blob). Every column must have one entry per request.

    Raises ValueError naming the column whose length differs.
    """
    count = len(next(iter(columns.values()), ()))
    header: list[dict[str, Any]] = []
    parts: list[bytes] = []
    for name, values in columns.items():
        if len(values) != count:
            raise ValueError(f"column {name!r} has {len(values)} entries, the first has {count}")
        kind, arrays, data = _pack(values)
        packed = [_shuffled(array) for array in arrays] if data is None else [data]
        header.append(
            {
                "name": name,
                "kind": kind,
                "dtypes": [array.dtype.str for array in arrays],
                "bytes": [len(part) for part in packed],
            }
        )
        parts += packed
    head = orjson.dumps({"count": count, "columns": header})
    body = len(head).to_bytes(_LENGTH_BYTES, "little") + head + b"".join(parts)
    return count, zlib.compress(body, 6)


def decode(codec: str, blob: bytes) -> dict[str, Column]:
    """The columns by name. Raises ValueError for an unknown codec or a damaged blob."""
    if codec != CODEC:
        raise ValueError(f"request records are in the unknown format {codec!r}")
    try:
        body = zlib.decompress(blob)
    except zlib.error as fault:
        raise ValueError("request records are damaged") from fault
    size = int.from_bytes(body[:_LENGTH_BYTES], "little")
    offset = _LENGTH_BYTES + size
    head = orjson.loads(body[_LENGTH_BYTES:offset])
    columns: dict[str, Column] = {}
    for column in head["columns"]:
        parts = []
        for length in column["bytes"]:
            parts.append(body[offset : offset + length])
            offset += length
        columns[column["name"]] = _unpack(column["kind"], column["dtypes"], parts)
    return columns


def _pack(
    values: Sequence[Any] | np.ndarray[Any, Any],
) -> tuple[str, list[np.ndarray[Any, Any]], bytes | None]:
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "iufb":
        return "array", [values], None
    items = list(values)
    if items and all(type(item) is int and abs(item) < 2**63 for item in items):
        return "array", [np.array(items, dtype="<i8")], None
    if items and all(isinstance(item, float) for item in items):
        return "array", [np.array(items, dtype="<f8")], None
    if any(item is None for item in items) and all(
        item is None or isinstance(item, float) for item in items
    ):
        present = np.array([item is not None for item in items], dtype="u1")
        return "optional", [present, np.array([i for i in items if i is not None], "<f8")], None
    ragged = _ragged(items)
    if ragged is not None:
        return "ragged", ragged, None
    return "json", [], orjson.dumps(items, option=orjson.OPT_SERIALIZE_NUMPY)


def _ragged(items: list[Any]) -> list[np.ndarray[Any, Any]] | None:
    """(lengths, flat values) of a column of number lists; None for anything else."""
    if not items or not all(isinstance(item, (list, tuple, np.ndarray)) for item in items):
        return None
    flat = [value for item in items for value in item]
    lengths = np.array([len(item) for item in items], dtype="<u4")
    if all(isinstance(value, (int, np.integer)) and not isinstance(value, bool) for value in flat):
        return [lengths, np.array(flat, dtype="<i8")]
    if all(isinstance(value, (float, np.floating)) for value in flat):
        return [lengths, np.array(flat, dtype="<f8")]
    return None


def _unpack(kind: str, dtypes: list[str], parts: list[bytes]) -> Column:
    if kind == "json":
        loaded: list[Any] = orjson.loads(parts[0])
        return loaded
    arrays = [_unshuffled(part, dtype) for part, dtype in zip(parts, dtypes, strict=True)]
    if kind == "array":
        return arrays[0]
    if kind == "optional":
        values = iter(arrays[1].tolist())
        return [next(values) if there else None for there in arrays[0]]
    return list(np.split(arrays[1], np.cumsum(arrays[0])[:-1].astype(np.int64)))


def _shuffled(array: np.ndarray[Any, Any]) -> bytes:
    flat = np.ascontiguousarray(array)
    return flat.view(np.uint8).reshape(len(flat), flat.dtype.itemsize).T.tobytes()


def _unshuffled(data: bytes, dtype: str) -> np.ndarray[Any, Any]:
    kind = np.dtype(dtype)
    grouped = np.frombuffer(data, dtype=np.uint8).reshape(kind.itemsize, -1)
    return np.ascontiguousarray(grouped.T).reshape(-1).view(kind)
