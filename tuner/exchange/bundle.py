"""A whole study in one JSON file: who was measured, what was asked, every measurement, its records.

    {"slotune_study": 2, "versions": {…}, "study": {…}, "findings": […], "verifications": […],
     "measurements": [{…, "records": {…}}, …]}

`study`, each finding, verification and measurement hold the columns that the database keeps;
`records` maps each column of RequestRecord to one value per request (null: a time that never came).
Format 1 has no findings and verifications. Plain or gzip; which, is seen in the file, not in its
name. Invariant: what was written reads back bit for bit, and reading
takes memory for at most MOST_BYTES of text.
"""

from __future__ import annotations

import dataclasses
import gzip
import math
import typing
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import orjson

from storage.errors import StorageError
from storage.rows import Finding, Measurement, Study, Verification
from tuner.errors import UserError
from tuner.exchange.belonging import findings_in, study_named, verifications_of
from tuner.exchange.bundle_rows import Row, checked_row
from tuner.exchange.checks import checked
from tuner.exchange.provenance import provenance
from tuner.exchange.run import Columns, from_stored
from tuner.records import RequestRecord
from tuner.regular import check_regular

if typing.TYPE_CHECKING:
    from storage import Database

VERSION = 2
WITH_FINDINGS = 2
"""The first format that keeps findings and verifications."""

MOST_BYTES = 512 * 2**20
"""Of text, unpacked: what a bundle may hold."""

NEEDED = {
    "index", "scheduled_s", "sent_s", "first_token_s", "end_s", "chunk_times_s", "chunk_tokens",
    "prompt_tokens", "output_tokens", "error", "state",
}  # fmt: skip
"""Columns that every version of the records has."""

_CHUNK_BYTES = 2**20
_SQLITE = b"SQLite format 3"
_GZIP = b"\x1f\x8b"
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
_KINDS = {f.name: str(f.type) for f in dataclasses.fields(RequestRecord)}


@dataclass(frozen=True, slots=True)
class StoredStudy:
    """A study complete in itself. load_records: a measurement's id → its columns, StorageError
    where none were stored. measurements in order of start; findings: of these, each diagnosis in
    the tree's order; verifications: its own, and of what its baseline's diagnosis proposes.
    format: of the bundle that it was read from."""

    study: Study
    measurements: tuple[Measurement, ...]
    load_records: Callable[[int], Mapping[str, Any]]
    findings: tuple[Finding, ...] = ()
    verifications: tuple[Verification, ...] = ()
    format: int = VERSION


def of_database(database: Database, name: str) -> StoredStudy:
    """Raises UserError for a name that is none."""
    study = study_named(database, name)
    rows = tuple(database.list_measurements(study_id=study.id))
    findings = findings_in(database, rows)
    verified = verifications_of(database, study, findings)
    return StoredStudy(study, rows, database.load_records, findings, verified)


def write_bundle(stored: StoredStudy, path: Path, *, packed: bool) -> None:
    """packed: as gzip. Raises UserError for a study with more text than a reader takes."""
    with path.open("wb") as file:
        if not packed:
            return _write(stored, file)
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as out:
            return _write(stored, cast(BinaryIO, out))


def read_bundle(path: Path) -> StoredStudy:
    """Raises UserError: one sentence that says what is wrong with the file."""
    try:
        check_regular(path)
        with path.open("rb") as file:
            text = b"".join(_limited(_unpacked(file), path.name))
    except IsADirectoryError as error:
        raise UserError(f"{path} is a folder; name the bundle in it") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path.name} is cut short or damaged: it cannot be unpacked") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    if not text.strip():
        raise UserError(f"{path.name} is empty")
    if text.startswith(_SQLITE):
        raise UserError(
            f"{path.name} is a database, not a bundle: `tuner report STUDY --database {path}`"
        )
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise UserError(f"{path.name} is cut short, damaged or no JSON ({error})") from error
    return _stored(document, path.name)


def _write(stored: StoredStudy, out: BinaryIO) -> None:
    """One measurement after the other: only one's records are in memory."""
    head = orjson.dumps(
        {
            "slotune_study": VERSION,
            "versions": versions(stored),
            "study": dataclasses.asdict(stored.study),
            "findings": [dataclasses.asdict(row) for row in stored.findings],
            "verifications": [dataclasses.asdict(row) for row in stored.verifications],
        },
        option=_OPTIONS,
    )
    written = out.write(head[:-1] + b',"measurements":[\n')
    for place, row in enumerate(stored.measurements):
        try:
            records: Mapping[str, Any] | None = stored.load_records(row.id)
        except StorageError:
            records = None
        told = dataclasses.asdict(row) | {"records": records}
        written += out.write((b",\n" if place else b"") + orjson.dumps(told, option=_OPTIONS))
        if written > MOST_BYTES:
            raise UserError(
                f"study {stored.study.name} holds more than {MOST_BYTES // 2**20} MiB of records, "
                "the most a bundle may; `tuner export RUN` writes single runs"
            )
    out.write(b"\n]}\n")


def versions(stored: StoredStudy) -> dict[str, str]:
    """Of what made the first measurement, and its machine: each measurement's summary has its own.
    A study that does not tell is older: then of what writes. torch: where the target told it."""
    target = stored.study.target or {}
    torch = target.get("torch") or target.get("torch_version")
    told = next(iter(machines(stored.measurements)), None) or provenance()
    return told | ({"torch": str(torch)} if torch else {})


def machines(rows: Sequence[Measurement]) -> list[dict[str, str]]:
    """The different ones that the measurements tell of, in order of time."""
    found: list[dict[str, str]] = []
    for row in rows:
        told = (row.summary or {}).get("provenance")
        if isinstance(told, dict) and told not in found:
            found.append({str(name): str(value) for name, value in told.items()})
    return found


def _unpacked(file: BinaryIO) -> Iterator[bytes]:
    packed = file.read(2) == _GZIP
    file.seek(0)
    source = gzip.GzipFile(fileobj=file) if packed else file
    while chunk := source.read(_CHUNK_BYTES):
        yield chunk


def _limited(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    total = 0
    for chunk in chunks:
        total += len(chunk)
        if total > MOST_BYTES:
            raise UserError(
                f"{name} unpacks to more than {MOST_BYTES // 2**20} MiB, the most a bundle may hold"
            )
        yield chunk


def _stored(document: Any, name: str) -> StoredStudy:
    format_ = document.get("slotune_study") if isinstance(document, dict) else None
    if format_ is None:
        raise UserError(
            f"{name} is no bundle of a study; `tuner report STUDY --bundle FILE` writes one"
        )
    if isinstance(format_, bool) or not isinstance(format_, int) or format_ < 1:
        raise UserError(f"{name} is a damaged bundle: its format is {format_!r:.40}")
    if format_ > VERSION:
        raise UserError(
            f"{name} has format {format_}, of a newer slotune; this one reads up to {VERSION}: "
            "update it"
        )
    study = checked_row(Study, document.get("study"), f"{name}: the study")
    told = document.get("measurements")
    if not isinstance(told, list):
        raise UserError(f"{name} is a damaged bundle: it has no list of measurements")
    rows: list[Measurement] = []
    seen: set[int] = set()
    records: dict[int, Columns] = {}
    for number, values in enumerate(told, 1):
        what = f"{name}: measurement {number}"
        row = checked_row(Measurement, values, what)
        if row.id in seen:
            raise UserError(f"{what} has the id of another one ({row.id})")
        seen.add(row.id)
        rows.append(row)
        if values.get("records") is not None:
            records[row.id] = _records(values["records"], row, study, what)

    def load(measurement_id: int) -> Columns:
        if measurement_id not in records:
            raise StorageError(f"measurement {measurement_id} in {name} has no request records")
        return records[measurement_id]

    if format_ < WITH_FINDINGS:
        return StoredStudy(study, tuple(rows), load, format=format_)
    findings = _rows(document, "findings", Finding, name)
    verified = _rows(document, "verifications", Verification, name)
    return StoredStudy(study, tuple(rows), load, findings, verified, format_)


def _rows(document: Mapping[str, Any], part: str, kind: type[Row], name: str) -> tuple[Row, ...]:
    told = document.get(part)
    if not isinstance(told, list):
        raise UserError(f"{name} is a damaged bundle: it has no list of {part}")
    singular = part.removesuffix("s")
    return tuple(
        checked_row(kind, values, f"{name}: {singular} {number}")
        for number, values in enumerate(told, 1)
    )


def _records(told: Any, row: Measurement, study: Study, what: str) -> Columns:
    if not isinstance(told, dict):
        raise UserError(f"{what} is damaged: its records are no object")
    columns: dict[str, Sequence[Any]] = {}
    try:
        for name, kind in _KINDS.items():
            if name in told:
                columns[name] = [_value(kind, value) for value in told[name]]
    except (TypeError, ValueError) as error:
        raise UserError(f"{what}: its records are damaged ({error})") from error
    if missing := sorted(NEEDED - columns.keys()):
        raise UserError(f"{what}: its records lack the columns {', '.join(missing)}")
    if len({len(values) for values in columns.values()}) != 1:
        raise UserError(f"{what}: its records are damaged (columns of different length)")
    if row.summary is not None:
        _check(row, columns, study, what)
    return columns


def _check(row: Measurement, columns: Columns, study: Study, what: str) -> None:
    """As a run of any other file is checked, before anything computes with it."""
    try:
        run = from_stored(row, columns, study)
        _ = (run.lag_p99_s, run.figures, run.counts)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{what} is damaged: its summary cannot be read ({error!r})") from error
    if not run.count:
        return
    try:
        checked(run)
    except UserError as error:
        raise UserError(f"{what} is damaged: {error}") from error


def _value(kind: str, value: Any) -> Any:
    """JSON has no NaN: null is the time that never came."""
    if kind == "float":
        return math.nan if value is None else float(value)
    if kind == "list[float]":
        return [float(item) for item in value]
    return value
