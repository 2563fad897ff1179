"""The --workload text: "prompt=256,output=64,concurrency=16", "chat,rate=2", "trace=FILE,speed=2".

One table says what every key needs beside it and what it cannot stand with; everything that is
not understood is one sentence.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import replace
from typing import cast

from tuner.errors import UserError
from tuner.printable import shortened
from tuner.workload.arrivals import Arrivals, Kind
from tuner.workload.columns import PER_SECOND, Named, Unit
from tuner.workload.lengths import Lengths, parse_lengths
from tuner.workload.model import ONE_TURN, Workload
from tuner.workload.presets import PRESETS
from tuner.workload.profile import parse_profile
from tuner.workload.source import Order, Source, open_source
from tuner.workload.think import NO_PAUSE, parse_think
from tuner.workload.writing import parse_file_name, split_outside, unquoted

DEFAULT = "prompt=256,output=64,concurrency=16"
_HOW = f"write {DEFAULT!r} or a preset ({', '.join(PRESETS)}) with concurrency= or rate="
SLOWEST_RATE = 1e-3
MAX_TURNS = 1_000
MAX_SKEW = 10.0

KEYS: dict[str, str] = {
    "file": "prompts or pairs of lengths: JSONL, ShareGPT JSON, CSV",
    "trace": "requests with their times: Azure, BurstGPT, Mooncake and like columns",
    "prompt": "tokens of a prompt",
    "output": "tokens of an answer",
    "shared_prefix": "tokens at the head of every prompt that are one of prefix_groups texts",
    "prefix_groups": "how many such texts",
    "prefix_skew": "Zipf's exponent of their popularity; 0: all alike",
    "turns": "questions of a conversation; each waits for the answer before",
    "followup": "tokens of the later questions",
    "think": "pause before a later question",
    "requests": "end after so many requests or conversations",
    "concurrency": "clients that each wait for their answer: 16, 1..64, 4@30s/16@60s",
    "rate": "requests per second: 2, 0.1, 1..10, 2@30s/8@60s, inf (all at once)",
    "arrivals": "constant or poisson",
    "burstiness": "gamma shape of the gaps: 1 Poisson, below 1 burstier",
    "speed": "a trace faster or slower",
    "from": "where in the trace to start",
    "for": "how much of it to replay",
    "order": "of a file's rows: random or file",
    "fit": "leave out rows of more tokens, prompt and output",
    "prompt_column": "the column of prompts or their tokens",
    "output_column": "the column of answers or their tokens",
    "time_column": "the column of times",
    "time_unit": "s, ms, us or ns",
}

_NEEDS: dict[str, tuple[str, ...]] = {
    "arrivals": ("rate",), "burstiness": ("rate",),
    "prefix_skew": ("prefix_groups",), "followup": ("turns",), "think": ("turns",),
    "speed": ("trace",), "from": ("trace",), "for": ("trace",), "time_column": ("trace",),
    "time_unit": ("trace",), "order": ("file", "trace"), "fit": ("file", "trace"),
    "prompt_column": ("file", "trace"), "output_column": ("file", "trace"),
}  # fmt: skip
_APART = (("file", "trace"), ("concurrency", "rate"), ("speed", "rate"), ("speed", "concurrency"))


def parse_workload(text: str | None) -> Workload:
    """The workload of a --workload text; None is the default. Raises UserError."""
    text = DEFAULT if text is None else text
    if not text.strip():
        raise UserError(f"--workload is empty: {_HOW}")
    values = _values(text)
    _check_company(values)
    source = _source(values)
    if source is None and ("prompt" not in values or "output" not in values):
        missing = "prompt" if "prompt" not in values else "output"
        raise UserError(f"--workload {shortened(text)!r}: {missing}= is missing; {_HOW}")
    requests = int(_number(values, "requests", 0, at_least=1, whole=True)) or None
    workload = Workload(
        prompt=_lengths(values, "prompt", source),
        output=_lengths(values, "output", source),
        arrivals=_arrivals(values, source, requests),
        shared_prefix=int(_number(values, "shared_prefix", 0, at_least=0, whole=True)),
        prefix_groups=int(_number(values, "prefix_groups", 1, at_least=1, whole=True)),
        prefix_skew=_number(values, "prefix_skew", 0, at_least=0, at_most=MAX_SKEW),
        turns=_turns(values),
        followup=parse_lengths(values["followup"], "followup") if "followup" in values else None,
        think=parse_think(values["think"]) if "think" in values else NO_PAUSE,
        requests=requests,
        source=source,
    )
    _check_source(workload, values)
    return workload


def _values(text: str) -> dict[str, str]:
    """Keys and values; a preset gives those that the text itself does not."""
    values: dict[str, str] = {}
    preset: dict[str, str] = {}
    for part in (piece.strip() for piece in split_outside(text)):
        key, equals, value = part.partition("=")
        key = key.strip().lower()
        if not equals and key in PRESETS:
            if preset:
                raise UserError(f"--workload {shortened(text)!r}: two presets; give one")
            preset = _values(PRESETS[key])
        elif equals and key in KEYS:
            if not value.strip():
                raise UserError(f"--workload: {key}= has no value")
            if key in values:
                raise UserError(f"--workload {shortened(text)!r}: {key}= is given twice")
            values[key] = value.strip()
        else:
            raise UserError(f"--workload: {shortened(part)!r} is not understood{_hint(part)}")
    for one, other in _APART:
        for mine, theirs in ((one, other), (other, one)):
            if mine in values:
                preset.pop(theirs, None)
    return {**preset, **values}


def _hint(part: str) -> str:
    known = [*PRESETS, *(f"{name}=" for name in KEYS)]
    close = difflib.get_close_matches(part, known, n=1, cutoff=0.4)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"


def _check_company(values: dict[str, str]) -> None:
    for one, other in _APART:
        if one in values and other in values:
            raise UserError(f"--workload: {one}= and {other}= cannot stand together; give one")
    for key, needed in _NEEDS.items():
        if key in values and not any(name in values for name in needed):
            what = " or ".join(f"{name}=" for name in needed)
            more = ", requests per second" if needed == ("rate",) else ""
            raise UserError(f"--workload: {key}= needs {what}{more}")


def _source(values: dict[str, str]) -> Source | None:
    kind = next((kind for kind in ("file", "trace") if kind in values), None)
    if kind is None:
        return None
    unit = values.get("time_unit", "")
    if unit and unit not in PER_SECOND:
        raise UserError(f"--workload: time_unit={shortened(unit)}; known: {', '.join(PER_SECOND)}")
    named = Named(
        unquoted(values.get("prompt_column", "")),
        unquoted(values.get("output_column", "")),
        unquoted(values.get("time_column", "")),
        cast(Unit, unit),
    )
    order = values.get("order", "random" if kind == "file" else "file")
    if order not in ("random", "file"):
        raise UserError(f"--workload: order={shortened(order)}; known: random, file")
    if kind == "trace" and order == "random" and not {"rate", "concurrency"} & values.keys():
        raise UserError("--workload: order=random would tear a trace from its times; give rate=")
    return open_source(
        "file" if kind == "file" else "trace",
        parse_file_name(values[kind], kind),
        named,
        cast(Order, order),
        int(_number(values, "fit", 0, at_least=2, whole=True)),
        values.get("from", "0s"),
        values.get("for"),
    )


def _check_source(workload: Workload, values: dict[str, str]) -> None:
    source = workload.source
    if source is None:
        return
    rows, path = source.rows, source.file.path
    for key, column in (("prompt", rows.prompt_tokens), ("output", rows.output_tokens)):
        if key not in values and column is None:
            raise UserError(
                f"{path}: has no {key} lengths; name their column with {key}_column=, or give "
                f"{key}="
            )
    own_content = rows.has_text or rows.blocks is not None
    for key in ("prompt", "shared_prefix", "followup"):
        if key in values and own_content:
            raise UserError(f"--workload: {key}= cannot change the prompts that {path} gives")
    if workload.conversational and not rows.has_text:
        raise UserError(f"--workload: turns= needs conversations, {path} holds none")


def _lengths(values: dict[str, str], key: str, source: Source | None) -> Lengths:
    if source is None or key in values:
        return parse_lengths(values[key], key)
    rows = source.rows
    column = rows.prompt_tokens if key == "prompt" else rows.output_tokens
    return Lengths("recorded", float(column.mean()) if column is not None else 0.0)


def _turns(values: dict[str, str]) -> Lengths:
    if "turns" not in values:
        return ONE_TURN
    turns = parse_lengths(values["turns"], "turns")
    if turns.mean > MAX_TURNS:
        given = shortened(values["turns"])
        raise UserError(f"--workload: turns={given}: at most {MAX_TURNS} on average")
    return turns


def _arrivals(values: dict[str, str], source: Source | None, requests: int | None) -> Arrivals:
    if "rate" not in values:
        if source is not None and source.kind == "trace" and "concurrency" not in values:
            speed = _number(values, "speed", 1, at_least=SLOWEST_RATE)
            trace = Arrivals("trace", 1.0, speed=speed, recorded_s=source.rows.times_s)
            return replace(trace, level=trace.mean_rate() * speed)
        return _levels(values.get("concurrency", "16"), "concurrency", "concurrency", 1.0)
    kind = values.get("arrivals", "gamma" if "burstiness" in values else "poisson")
    if kind not in ("constant", "poisson", "gamma"):
        raise UserError(f"--workload: arrivals={shortened(kind)}; known: constant, poisson, gamma")
    burstiness = _number(values, "burstiness", 1, at_least=1e-2)
    if values["rate"].lower() in ("inf", "infinity"):
        if requests is None:
            raise UserError("--workload: rate=inf sends all at once; say how many with requests=")
        return Arrivals("at_once", float(requests))
    return _levels(values["rate"], "rate", cast(Kind, kind), burstiness)


def _levels(text: str, key: str, kind: Kind, burstiness: float) -> Arrivals:
    clients = kind == "concurrency"
    profile = parse_profile(text, key, whole=clients, at_least=1.0 if clients else SLOWEST_RATE)
    only = profile.segments[0]
    flat = len(profile.segments) == 1 and only.low == only.high and only.duration_s is None
    return Arrivals(kind, profile.peak, burstiness, None if flat else profile)


def _number(
    values: dict[str, str],
    key: str,
    default: float,
    *,
    at_least: float,
    at_most: float = 1e6,
    whole: bool = False,
) -> float:
    text = values.get(key)
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        raise UserError(f"--workload: {key}={shortened(text)} is no number") from None
    if not at_least <= number <= at_most or math.isnan(number) or (whole and number % 1):
        kind = "a whole number" if whole else "a number"
        raise UserError(
            f"--workload: {key}={shortened(text)} must be {kind} of at least {at_least:g} and at "
            f"most {at_most:.0f}"
        )
    return number
