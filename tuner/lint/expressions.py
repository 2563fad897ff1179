"""PromQL as a tree (promql-parser), Grafana's variables stood in for, and walks over it.

Invariant: a variable becomes something that parses in its place; a name that holds one is never
judged, since it may be any metric.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import promql_parser as promql
from promql_parser import Expr

STAND_IN = "GRAFANA_VARIABLE"
RATE_INTERVAL = "7777777s"
"""Stands for $__rate_interval, which Grafana keeps at four scrape intervals or more."""

INTERVAL = "7777778s"
"""Stands for $__interval, which has no such least."""

RATES = frozenset({"rate", "irate", "increase", "delta", "idelta", "deriv", "resets", "changes"})
COUNTER_RATES = frozenset({"rate", "irate", "increase"})

_VARIABLE = r"(?:\$\{[^}]*\}|\$\w+|\[\[\w+\]\])"
_RANGE = re.compile(
    rf"\[\s*({_VARIABLE})\s*(?=[:\]])|:\s*({_VARIABLE})\s*\]|offset\s+({_VARIABLE})"
)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`')
_LABEL_LIST = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
_ANY = re.compile(_VARIABLE)
_MATCHERS = re.compile(r"\{[^{}]*\}")
_STEP = re.compile(r"[(+\-*/%^<>=!]|\b(?:or|and|unless|atan2)\b", re.IGNORECASE)
MAX_STEPS = 200
"""Brackets and operators of a query: its tree is no deeper, which parser and walks can bear."""


class NotPromqlError(ValueError):
    """The text cannot be parsed; the message is the parser's."""


def parsed(text: str, *, exact: bool = False) -> Expr:
    """The tree of a query; exact: no Grafana variables are in it."""
    if exact or ("$" not in text and "[[" not in text):
        return _parse(text)
    ranged = _RANGE.sub(_range, text)
    try:
        return _parse(_outside_strings(ranged, numbers=True))
    except NotPromqlError:
        return _parse(_outside_strings(ranged, numbers=False))


def _parse(text: str) -> Expr:
    outside = _MATCHERS.sub("", _STRING.sub('""', text))
    if len(_STEP.findall(outside)) > MAX_STEPS:
        raise NotPromqlError(f"it has more than {MAX_STEPS} brackets and operators")
    try:
        found: Expr = promql.parse(text)
    except ValueError as fault:
        raise NotPromqlError(str(fault)) from None
    return found


def _range(match: re.Match[str]) -> str:
    variable = next(group for group in match.groups() if group)
    if "rate_interval" in variable:
        stands = RATE_INTERVAL
    elif re.search(r"__interval\b", variable):
        stands = INTERVAL
    else:
        stands = RATE_INTERVAL
    return match[0].replace(variable, stands)


def _outside_strings(text: str, *, numbers: bool) -> str:
    """Variables in strings stay: there they are part of a matcher. Elsewhere one is a name where it
    touches a name or stands in a list of labels, else a number (numbers) or a name too."""
    strings = [match.span() for match in _STRING.finditer(text)]
    labels = [match.span() for match in _LABEL_LIST.finditer(text)]

    def stands(match: re.Match[str]) -> str:
        at, end = match.span()
        if any(start <= at < stop for start, stop in strings):
            return match[0]
        touching = re.match(r"[\w:{\[$]", text[end : end + 1] or " ")
        touching = touching or re.match(r"[\w:]", text[at - 1 : at] or " ")
        named = touching or any(start <= at < stop for start, stop in labels)
        return "1" if numbers and not named else STAND_IN

    return _ANY.sub(stands, text)


def children(expr: Expr) -> list[Expr]:
    if isinstance(expr, promql.BinaryExpr):
        return [expr.lhs, expr.rhs]
    if isinstance(expr, promql.Call):
        return list(expr.args)
    if isinstance(expr, promql.AggregateExpr):
        return [expr.expr]
    if isinstance(expr, (promql.ParenExpr, promql.UnaryExpr, promql.SubqueryExpr)):
        return [expr.expr]
    return []


def walk(expr: Expr) -> Iterator[Expr]:
    """The node and all below it."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def bare(expr: Expr) -> Expr:
    """Without parentheses around it."""
    while isinstance(expr, promql.ParenExpr):
        expr = expr.expr
    return expr


def name_of(expr: Expr) -> str | None:
    """The metric of a selector, also where it is written as {__name__="…"}; None for others."""
    if isinstance(expr, promql.MatrixSelector):
        return name_of(expr.vector_selector)
    if not isinstance(expr, promql.VectorSelector):
        return None
    if expr.name:
        return str(expr.name)
    for matcher in expr.matchers.matchers:
        if matcher.name == "__name__" and str(matcher.op) == "MatchOp.Equal":
            return str(matcher.value)
    return None


def names(expr: Expr) -> list[str]:
    """Every metric below, in order, those with a variable in them left out."""
    found = [name for node in walk(expr) if (name := name_of(node)) and STAND_IN not in name]
    return list(dict.fromkeys(found))


def call_name(expr: Expr) -> str:
    """The function's name; "" for what is no call."""
    return str(expr.func.name) if isinstance(expr, promql.Call) else ""


def operator(expr: Expr) -> str:
    """The binary operator; "" for what is no binary expression."""
    return str(expr.op) if isinstance(expr, promql.BinaryExpr) else ""


def aggregation(expr: Expr) -> str:
    """sum, avg …; "" for what is no aggregation."""
    return str(expr.op) if isinstance(expr, promql.AggregateExpr) else ""


def keeps(expr: promql.AggregateExpr, label: str) -> bool:
    """Whether an aggregation leaves the label in its result."""
    modifier = expr.modifier
    if modifier is None:
        return False
    listed = label in modifier.labels
    return listed if modifier.type == promql.AggModifierType.By else not listed


def seconds(expr: promql.MatrixSelector | promql.SubqueryExpr) -> float:
    """The length of a range."""
    return expr.range.total_seconds() if expr.range is not None else 0.0
