"""What a query's value is measured in, as far as its names tell: seconds, and scaled by what.

Invariant: None where it is not known; a guess is never judged. A rate divides by a second, so that
rate(sum) / rate(count) is seconds again and rate(sum) alone is a share of time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import promql_parser as promql
from promql_parser import Expr

from tuner.lint import expressions as tree

SECONDS_UNITS = frozenset({"s", "dtdurations", "dthms", "clocks", "suffix:s", "suffix: s"})
MILLISECONDS_UNITS = frozenset({"ms", "dtdurationms", "clockms", "suffix:ms", "suffix: ms"})
SAYS_MS = re.compile(r"\(ms\)|\bms\b|\bmilliseconds?\b", re.IGNORECASE)
SAYS_DURATION = re.compile(r"latency|duration|\btime\b|ttft|tpot|\bitl\b|seconds", re.IGNORECASE)

_KEEPS = frozenset({
    "avg_over_time", "max_over_time", "min_over_time", "last_over_time", "quantile_over_time",
    "clamp", "clamp_max", "clamp_min", "round", "abs", "ceil", "floor", "sort", "sort_desc",
    "label_replace", "label_join", "increase", "delta", "idelta",
})  # fmt: skip
_PER_SECOND = frozenset({"rate", "irate", "deriv"})
_AGGREGATIONS = frozenset({"sum", "avg", "max", "min", "quantile", "topk", "bottomk"})


@dataclass(frozen=True, slots=True)
class Measure:
    """seconds to a power, times factor: 1 and 1000 are milliseconds."""

    power: int
    factor: float = 1.0

    @property
    def seconds(self) -> bool:
        return self.power == 1 and abs(self.factor - 1) < 1e-9

    @property
    def milliseconds(self) -> bool:
        return self.power == 1 and abs(self.factor / 1000 - 1) < 1e-9


def measure(expr: Expr) -> Measure | None:
    """The measure of a query's value; None where names do not tell."""
    expr = tree.bare(expr)
    if (name := tree.name_of(expr)) is not None:
        return _of_name(name)
    if isinstance(expr, promql.UnaryExpr):
        return measure(expr.expr)
    if isinstance(expr, promql.SubqueryExpr):
        return measure(expr.expr)
    if isinstance(expr, promql.AggregateExpr):
        return measure(expr.expr) if tree.aggregation(expr) in _AGGREGATIONS else None
    if isinstance(expr, promql.Call):
        return _of_call(expr)
    return _of_operation(expr) if isinstance(expr, promql.BinaryExpr) else None


def _of_name(name: str) -> Measure | None:
    family = re.sub(r"_(sum|total)$", "", name)
    if family.endswith("_count") or name.endswith("_bucket"):
        return Measure(0)
    if family.endswith("_seconds"):
        return Measure(1)
    if family.endswith(("_milliseconds", "_ms")):
        return Measure(1, 1000.0)
    return None


def _of_call(expr: promql.Call) -> Measure | None:
    function = tree.call_name(expr)
    if function == "histogram_quantile" and len(expr.args) == 2:
        names = tree.names(expr.args[1])
        found = {_of_name(name.removesuffix("_bucket")) for name in names}
        return found.pop() if len(found) == 1 else None
    if not expr.args:
        return None
    inner = next((a for a in expr.args if not isinstance(a, promql.NumberLiteral)), expr.args[0])
    found_one = measure(inner)
    if found_one is None or function in _KEEPS:
        return found_one
    if function in _PER_SECOND:
        return Measure(found_one.power - 1, found_one.factor)
    return None


def _of_operation(expr: promql.BinaryExpr) -> Measure | None:
    left, right = measure(expr.lhs), measure(expr.rhs)
    operator = tree.operator(expr)
    by = _number(expr.rhs)
    if operator in ("*", "/"):
        if by is not None and left is not None:
            return Measure(left.power, left.factor * by if operator == "*" else left.factor / by)
        times = _number(expr.lhs)
        if operator == "*" and times is not None and right is not None:
            return Measure(right.power, right.factor * times)
        if left is None or right is None:
            return None
        if operator == "/":
            return Measure(left.power - right.power, left.factor / right.factor)
        return Measure(left.power + right.power, left.factor * right.factor)
    return left  # + - or and unless, and comparisons: the left side's values


def _number(expr: Expr) -> float | None:
    expr = tree.bare(expr)
    value = float(expr.val) if isinstance(expr, promql.NumberLiteral) else None
    return value if value else None
