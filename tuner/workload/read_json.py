"""JSON lines, and JSON arrays read element by element: a large file never stands in memory whole.

Also gives one row back by its place in the file, for the moment its request is sent.
"""

from __future__ import annotations

import codecs
import io
import json
import re
from typing import Any

import orjson

from tuner.errors import UserError
from tuner.workload.collect import Collector
from tuner.workload.columns import Named
from tuner.workload.rows import Rows

CHUNK_BYTES = 1 << 20
MAX_ROW_BYTES = 64 << 20
_SPACE = re.compile(r"[\s,]*")


def jsonl_rows(handle: io.BufferedReader[Any], path: str, named: Named) -> Rows:
    """One object a line; empty lines are passed over."""
    rows = Collector(path, named, "JSONL")
    offset = number = 0
    while line := handle.readline(MAX_ROW_BYTES):
        number += 1
        text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if text.strip():
            try:
                row = orjson.loads(text)
            except orjson.JSONDecodeError as fault:
                raise UserError(
                    f"{path}:{number}: is no JSON object on one line ({fault})"
                ) from None
            rows.add(row, number, offset + len(line) - len(text), len(text))
        offset += len(line)
    return rows.finish()


def json_rows(handle: io.BufferedReader[Any], path: str, named: Named) -> Rows:
    """A JSON array of objects, the ShareGPT files' form."""
    rows = Collector(path, named, "JSON array")
    stream = _Text(handle)
    decoder = json.JSONDecoder()
    stream.skip_to(1 + stream.text.index("["))
    while True:
        stream.skip_space()
        if stream.at == len(stream.text):
            raise UserError(f"{path}:{stream.line}: the JSON array has no end")
        if stream.text[stream.at] == "]":
            return rows.finish()
        row, end = _element(stream, decoder, path)
        line, offset = stream.line, stream.offset
        stream.skip_to(end)
        rows.add(row, line, offset, stream.offset - offset)


def row_at(path: str, offset: int, size: int) -> dict[str, object]:
    """The object that lies there. Raises UserError when the file has changed meanwhile."""
    with open(path, "rb") as file:
        file.seek(offset)
        data = file.read(size)
    try:
        row = orjson.loads(data)
    except orjson.JSONDecodeError:
        row = None
    if not isinstance(row, dict):
        raise UserError(f"{path}: has changed while it was used")
    return row


class _Text:
    """A window on the file's text. at: the place in text; offset: its byte; line: from 1."""

    def __init__(self, handle: io.BufferedReader[Any]) -> None:
        self._handle = handle
        self._decode = codecs.getincrementaldecoder("utf-8")()
        self.text = ""
        self.at = self.offset = 0
        self.line = 1
        self.more(CHUNK_BYTES)
        if self.text.startswith("\ufeff"):
            self.skip_to(1)

    def more(self, size: int) -> bool:
        """Whether the file had any more; what was passed over is dropped."""
        data = self._handle.read(size)
        self.text = self.text[self.at :] + self._decode.decode(data, final=not data)
        self.at = 0
        return bool(data)

    def skip_to(self, end: int) -> None:
        passed = self.text[self.at : end]
        self.offset += len(passed.encode())
        self.line += passed.count("\n")
        self.at = end

    def skip_space(self) -> None:
        """To the next element, reading on where the window ends."""
        while True:
            found = _SPACE.match(self.text, self.at)
            self.skip_to(found.end() if found else self.at)
            if self.at < len(self.text) or not self.more(CHUNK_BYTES):
                return


def _element(stream: _Text, decoder: json.JSONDecoder, path: str) -> tuple[object, int]:
    """The next element and where it ends; the window grows until it is whole."""
    while True:
        try:
            row, end = decoder.raw_decode(stream.text, stream.at)
        except json.JSONDecodeError as fault:
            whole = fault.pos < len(stream.text) - 16 and "Unterminated" not in fault.msg
            left = len(stream.text) - stream.at
            line = stream.line + stream.text.count("\n", stream.at, fault.pos)
            if whole or left > MAX_ROW_BYTES or not stream.more(max(left, CHUNK_BYTES)):
                raise UserError(f"{path}:{line}: is no JSON ({fault.msg})") from None
        except RecursionError:
            raise UserError(f"{path}:{stream.line}: is nested too deeply") from None
        except ValueError:
            raise UserError(f"{path}:{stream.line}: a number has too many digits") from None
        else:
            return row, end
