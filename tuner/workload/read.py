"""Opens a recorded file once: its hash and its rows in a single pass, the form known by content.

Invariant: a file is read again only when its size or time stamp has changed.
"""

from __future__ import annotations

import hashlib
import io
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tuner.errors import UserError
from tuner.workload.columns import AS_NAMED, Named
from tuner.workload.rows import Rows

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

PEEK_BYTES = 1 << 16
CHUNK_BYTES = 1 << 20
_PACKED = {
    b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2",
    b"PAR1": "Parquet",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Recording:
    """A file as it was read. sha256: 64 hex digits of its bytes."""

    path: str
    sha256: str
    rows: Rows


class _Hashing(io.RawIOBase):
    """A file that hashes what is read from it."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed in close()
        self.hash = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        count = self._file.readinto(buffer) or 0
        self.hash.update(memoryview(buffer)[:count])
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def read_recording(path: str, named: Named = AS_NAMED) -> Recording:
    """Raises UserError with file:line for what is no recording."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    if not os.path.isfile(path):
        raise UserError(f"{path}: is no file")
    return _read(path, named, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=8)
def _read(path: str, named: Named, _size_bytes: int, _changed_ns: int) -> Recording:
    try:
        raw = _Hashing(path)
        with io.BufferedReader(raw, CHUNK_BYTES) as handle:
            rows = _rows(handle, path, named)
            while handle.read(CHUNK_BYTES):
                pass
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is no UTF-8 text") from None
    return Recording(path, raw.hash.hexdigest(), rows)


def _rows(handle: io.BufferedReader[Any], path: str, named: Named) -> Rows:
    from tuner.workload.read_csv import csv_rows
    from tuner.workload.read_json import json_rows, jsonl_rows

    head = handle.peek(PEEK_BYTES)
    for magic, kind in _PACKED.items():
        if head.startswith(magic):
            raise UserError(f"{path}: is packed as {kind}; unpack it to JSONL, JSON or CSV first")
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if not start:
        raise UserError(f"{path}: is empty")
    if start == b"[":
        return json_rows(handle, path, named)
    if start == b"{":
        return jsonl_rows(handle, path, named)
    return csv_rows(handle, path, named)
