"""The grammar of `--slo`: ttft_p95<500ms and output_tps>100, never guessed, never defaulted.

    slo    = clause { ("and" | "," | ";") clause }
    clause = metric op value [unit]
    metric = name ["_" stat] | name ":" stat | stat "(" name ")"

Every refusal shows the text, a caret under the fault and what would be right.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tuner.errors import UserError
from tuner.slo.names import BY_ANY_NAME, METRICS, OTHER_UNITS, TIME_UNITS_S, SloMetric

Op = Literal["<", "<=", ">", ">="]

_SEPARATOR = re.compile(r"\s*(?:[,;]|\band\b)\s*", re.IGNORECASE)
_OPERATOR = re.compile(r"<=|>=|≤|≥|<|>|==|=|!=")
_CALL = re.compile(r"\s*([\w.]+)\s*\(\s*([\w.]+)\s*\)\s*$")
_NAME = re.compile(r"\s*([\w.]+?)\s*(?::\s*([\w.]+))?\s*$")
_VALUE = re.compile(
    r"\s*(\$?)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|[-+]?(?:nan|inf\w*))", re.IGNORECASE
)
_STAT = re.compile(r"(mean|avg|median|min|max|p\d+(?:\.\d+)?)$", re.IGNORECASE)
_OPS: dict[str, Op] = {"<": "<", "<=": "<=", "≤": "<=", ">": ">", ">=": ">=", "≥": ">="}


_SHOWN_BEFORE, _SHOWN_AFTER = 100, 100
"""Characters around a fault: what one line shows."""


class SloSyntaxError(UserError):
    """An --slo that cannot be read: message, text and a caret under the fault."""

    def __init__(self, text: str, at: int, message: str) -> None:
        shown = re.sub(r"\s", " ", text)  # a tab or newline would move the caret off its fault
        at = max(0, at)
        start = max(0, at - _SHOWN_BEFORE)
        shown = shown[start : at + _SHOWN_AFTER]
        super().__init__(f"--slo: {message}\n  {shown}\n  {' ' * (at - start)}^")
        self.at = at


@dataclass(frozen=True, slots=True)
class Clause:
    """One bound in base units (seconds, per second, shares, dollars).

    stat is "mean", "min", "max" or "pNN" for per-request latencies, "" for the others.
    """

    metric: str
    stat: str
    op: Op
    bound: float
    text: str

    @property
    def quantile(self) -> float | None:
        """0.95 for p95; None for other statistics."""
        return float(self.stat[1:]) / 100 if self.stat.startswith("p") else None

    @property
    def upper(self) -> bool:
        """Whether the value must stay below the bound."""
        return self.op in ("<", "<=")

    @property
    def key(self) -> str:
        """ttft_p95, output_tps: the name of the figure that the clause bounds."""
        return f"{self.metric}_{self.stat}" if self.stat else self.metric

    def holds(self, value: float) -> bool:
        if self.op == "<":
            return value < self.bound
        if self.op == "<=":
            return value <= self.bound
        return value > self.bound if self.op == ">" else value >= self.bound

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class SloSet:
    """All clauses must hold. Empty: nothing is asked."""

    clauses: tuple[Clause, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.clauses)

    def __str__(self) -> str:
        return ", ".join(clause.text for clause in self.clauses)

    @property
    def latency_bounds_s(self) -> dict[str, float]:
        """The tightest upper bound of each per-request latency, seconds."""
        bounds: dict[str, float] = {}
        for clause in self.clauses:
            if clause.metric in _PER_REQUEST and clause.upper:
                bounds[clause.metric] = min(bounds.get(clause.metric, math.inf), clause.bound)
        return bounds


_PER_REQUEST = {metric.name for metric in METRICS.values() if metric.per_request}


def parse_slos(texts: Sequence[str]) -> SloSet:
    """All clauses of all --slo texts. Raises SloSyntaxError (a UserError)."""
    clauses: list[Clause] = []
    for text in texts:
        if not text.strip():
            raise SloSyntaxError(text, 0, 'is empty; write for example "ttft_p95<500ms"')
        for start, part in _parts(text):
            clause = _parse_clause(text, start, part)
            _refuse_contradiction(clauses, clause, text, start)
            clauses.append(clause)
    return SloSet(tuple(clauses))


def _parts(text: str) -> list[tuple[int, str]]:
    """(offset, clause text) of each clause."""
    parts, start = [], 0
    for separator in _SEPARATOR.finditer(text):
        parts.append((start, text[start : separator.start()]))
        start = separator.end()
    parts.append((start, text[start:]))
    for start, part in parts:
        if not part.strip():
            raise SloSyntaxError(text, start, "a clause is missing here")
    return parts


def _parse_clause(text: str, start: int, part: str) -> Clause:
    operator = _OPERATOR.search(part)
    if operator is None:
        raise SloSyntaxError(
            text,
            start + len(part),
            'no operator (<, <=, >, >=); in a shell keep it in quotes: --slo "ttft_p95<500ms"',
        )
    if operator.group() not in _OPS:
        raise SloSyntaxError(
            text, start + operator.start(), f"{operator.group()!r} is no bound; use <, <=, > or >="
        )
    metric, stat = _parse_metric(text, start, part[: operator.start()])
    bound = _parse_bound(text, start + operator.end(), part[operator.end() :], metric)
    return Clause(metric.name, stat, _OPS[operator.group()], bound, part.strip())


def _parse_metric(text: str, start: int, part: str) -> tuple[SloMetric, str]:
    if call := _CALL.match(part):
        stat, name, at = call.group(1), call.group(2), start + call.start(2)
        if not _STAT.match(stat):
            raise SloSyntaxError(text, start + call.start(1), _unknown_stat(stat))
    elif plain := _NAME.match(part):
        name, stat = plain.group(1), plain.group(2) or ""
        at = start + plain.start(1)
        if stat and not _STAT.match(stat):
            raise SloSyntaxError(text, start + plain.start(2), _unknown_stat(stat))
        if not stat and name.lower() not in BY_ANY_NAME and "_" in name:
            head, _, tail = name.rpartition("_")
            if _STAT.match(tail):
                name, stat = head, tail
    else:
        raise SloSyntaxError(text, start, _not_a_metric(part))
    metric = BY_ANY_NAME.get(name.lower())
    if metric is None:
        raise SloSyntaxError(text, at, _unknown_name(name))
    return metric, _checked_stat(text, at, metric, stat.lower())


def _checked_stat(text: str, at: int, metric: SloMetric, stat: str) -> str:
    if not metric.per_request:
        if stat:
            raise SloSyntaxError(text, at, f"{metric.name} is one figure and takes no statistic")
        return ""
    if not stat:
        raise SloSyntaxError(
            text,
            at,
            f"{metric.name} needs a statistic: {metric.name}_p95, {metric.name}_p99 or "
            f"mean({metric.name})",
        )
    stat = {"median": "p50", "avg": "mean"}.get(stat, stat)
    if stat.startswith("p"):
        percent = float(stat[1:])
        if not 0 < percent < 100:
            raise SloSyntaxError(text, at, f"percentile {percent:g} is not between 0 and 100")
        stat = f"p{percent:.12g}"
    return stat


def _parse_bound(text: str, start: int, part: str, metric: SloMetric) -> float:
    number = _VALUE.match(part)
    if number is None:
        raise SloSyntaxError(text, start, f"no number after the operator{_example(metric)}")
    if number.group(1) and metric.unit != "$":
        raise SloSyntaxError(text, start + number.start(1), f"{metric.name} is not a price")
    value = float(number.group(2))
    at = start + number.start(2)
    if not math.isfinite(value) or value < 0:
        raise SloSyntaxError(text, at, f"{number.group(2)} cannot be a bound; give a number ≥ 0")
    rest = part[number.end() :]
    unit_at = start + number.end() + len(rest) - len(rest.lstrip())
    value *= _factor(text, unit_at, rest.strip(), metric)
    if not math.isfinite(value):
        raise SloSyntaxError(text, at, f"{number.group(2)} is too large for a bound")
    if metric.unit == "share" and value > 1:
        raise SloSyntaxError(text, at, f"{metric.name} is at most 100 % (or a fraction up to 1)")
    return value


def _factor(text: str, at: int, unit: str, metric: SloMetric) -> float:
    known = TIME_UNITS_S if metric.unit == "s" else OTHER_UNITS[metric.unit]
    if unit.lower() in known:
        return known[unit.lower()]
    if unit:
        wanted = ", ".join(known) or "none"
        raise SloSyntaxError(text, at, f"unit {unit!r} does not fit {metric.name}; known: {wanted}")
    if metric.unit == "s":
        raise SloSyntaxError(
            text, at, f"a time needs its unit: ns, us, ms, s or m, e.g. {metric.name}_p95<500ms"
        )
    return 1.0


def _refuse_contradiction(earlier: list[Clause], new: Clause, text: str, at: int) -> None:
    for clause in earlier:
        if clause.key != new.key:
            continue
        if clause.upper == new.upper:
            if clause.bound != new.bound:
                raise SloSyntaxError(
                    text, at, f"{new.key} is bounded twice: {clause.text!r} and {new.text!r}"
                )
        else:
            low, high = (new, clause) if clause.upper else (clause, new)
            touching = low.bound == high.bound and low.op == ">=" and high.op == "<="
            if low.bound >= high.bound and not touching:
                raise SloSyntaxError(text, at, f"{low.text!r} and {high.text!r} cannot both hold")


def _unknown_name(name: str) -> str:
    close = difflib.get_close_matches(name.lower(), BY_ANY_NAME, n=1, cutoff=0.4)
    hint = f"; did you mean {close[0]}?" if close else "."
    return f"{name!r} is no known metric{hint} Known: {', '.join(METRICS)}"


def _not_a_metric(part: str) -> str:
    if part.strip():
        return f'{part.strip()!r} is no metric; write for example "ttft_p95<500ms"'
    return 'the metric before the operator is missing; write for example "ttft_p95<500ms"'


def _unknown_stat(stat: str) -> str:
    return f"{stat!r} is no statistic; known: mean, median, min, max, p50, p95, p99, p99.9"


def _example(metric: SloMetric) -> str:
    return f", e.g. {metric.name}_p95<500ms" if metric.unit == "s" else ""
