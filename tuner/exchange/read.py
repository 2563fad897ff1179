"""A file of measurements, whatever wrote it: recognised by its content, never by its name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from tuner.errors import UserError
from tuner.exchange.guidellm_in import is_guidellm, read_guidellm
from tuner.exchange.run import Run
from tuner.exchange.tables import read_jsonl, read_parquet
from tuner.exchange.vllm_bench import is_vllm, read_vllm
from tuner.regular import check_regular

KNOWN = (
    "known are GuideLLM's JSON report, `vllm bench serve --save-result --save-detailed`, and "
    "what `tuner export` writes as jsonl or parquet"
)


def read_file(path: Path) -> list[Run]:
    """Every run of the file, at least one. Raises UserError."""
    try:
        check_regular(path)
        with path.open("rb") as file:
            start = file.read(4096)
            if start.startswith(b"PAR1"):
                return [read_parquet(path)]
            file.seek(0)
            if b'"slotune_requests"' in start.split(b"\n", 1)[0]:
                return [read_jsonl(file, path.name)]
            content = file.read()
    except IsADirectoryError as error:
        raise UserError(f"{path} is a folder; name the file in it") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    if not content.strip():
        raise UserError(f"{path} is empty")
    runs: list[Run] = []
    documents = list(_documents(content, path.name))
    for position, document in enumerate(documents, 1):
        called = path.name if len(documents) == 1 else f"{path.name}#{position}"
        if is_guidellm(document):
            runs += read_guidellm(document, called)
        elif is_vllm(document):
            runs.append(read_vllm(document, called))
        elif isinstance(document, dict) and "slotune_study" in document:
            raise UserError(
                f"{called} is a study's bundle; show it with: tuner report --from-bundle FILE"
            )
        else:
            raise UserError(f"{called} is JSON, but no measurement known here; {KNOWN}")
    return runs


def _documents(content: bytes, name: str) -> Iterator[Any]:
    """One JSON document, or one on each line (`vllm bench serve --append-result`)."""
    try:
        yield _parsed(content)
        return
    except ValueError as fault:
        first = fault
    lines = [line for line in content.splitlines() if line.strip()]
    if len(lines) < 2:
        raise UserError(f"{name} is no JSON ({first}); {KNOWN}")
    for number, line in enumerate(lines, 1):
        try:
            yield _parsed(line)
        except ValueError as fault:
            why = f"line {number}: {fault}" if number > 1 else str(first)
            raise UserError(f"{name} is no JSON ({why}); {KNOWN}") from fault


def _parsed(content: bytes) -> Any:
    """With the NaN and Infinity that Python's writers put where JSON has no word."""
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        try:
            return json.loads(content)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
