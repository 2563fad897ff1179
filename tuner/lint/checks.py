"""The faults that dashboards of LLM servers really have, one check each, pure.

Sources: reports of empty panels after renames, of rates over gauges, of quantiles summed away, of
seconds under the label ms, of averages that nobody served, of windows with one scrape in them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import promql_parser as promql
from promql_parser import Expr

from storage.sources.base import MIN_WINDOW_INTERVALS
from tuner.lint import expressions as tree
from tuner.lint.catalogue import Catalogue
from tuner.lint.model import Fault, Finding, Query
from tuner.lint.units import MILLISECONDS_UNITS, SAYS_DURATION, SAYS_MS, SECONDS_UNITS, measure

Check = Callable[[Query, Expr, Catalogue], Iterator[Fault]]

_COUNTER_END = re.compile(r"_(total|sum|count|bucket)$")
_FOREIGN_COUNTERS = ("DCGM_", "GRAFANA_VARIABLE", "node_", "container_")
"""Exporters whose counters do not end in _total."""


def lint(
    queries: Sequence[Query], catalogue: Catalogue, scrape_interval_s: float = 15.0
) -> list[Finding]:
    """All findings, in the order of the queries."""
    found: list[Finding] = []
    for query in queries:
        found += [Finding(query, fault) for fault in _faults(query, catalogue, scrape_interval_s)]
    return found


def _faults(query: Query, catalogue: Catalogue, scrape_interval_s: float) -> list[Fault]:
    try:
        expr = tree.parsed(query.expr, exact=query.exact)
    except tree.NotPromqlError as fault:
        return [Fault("syntax", f"the expression cannot be parsed: {fault}", "valid PromQL")]
    found = [fault for check in CHECKS for fault in check(query, expr, catalogue)]
    found += _short_windows(expr, scrape_interval_s)
    return list(dict.fromkeys(found))


def _dead(query: Query, expr: Expr, catalogue: Catalogue) -> Iterator[Fault]:
    for name in _dead_names(expr, catalogue):
        instead = catalogue.instead(name)
        right = instead if instead else "a name that the server exports"
        yield Fault("dead metric", f"{name} is dead: {catalogue.origin}", right)


def _dead_names(expr: Expr, catalogue: Catalogue) -> list[str]:
    """Behind `or`, one living side is enough: the others are fall-backs for older servers."""
    expr = tree.bare(expr)
    if tree.operator(expr) == "or":
        sides = [_dead_names(side, catalogue) for side in tree.children(expr)]
        return [] if [] in sides else sides[0]
    name = tree.name_of(expr)
    if name is not None:
        judged = tree.STAND_IN not in name and not catalogue.alive(name)
        return [name] if judged else []
    found = [n for child in tree.children(expr) for n in _dead_names(child, catalogue)]
    return list(dict.fromkeys(found))


def _rates(query: Query, expr: Expr, catalogue: Catalogue) -> Iterator[Fault]:
    for node in tree.walk(expr):
        function = tree.call_name(node)
        if function not in tree.COUNTER_RATES or not isinstance(node, promql.Call):
            continue
        name = tree.name_of(tree.bare(node.args[0]))
        if name is None or name.startswith(_FOREIGN_COUNTERS):
            continue
        kind = catalogue.kind(name)
        if kind == "gauge":
            yield Fault(
                "rate of a gauge", f"{function}() of {name}, which is a gauge",
                f"avg_over_time({name}[…]) or deriv({name}[…])",
            )  # fmt: skip
        elif kind is None and not _COUNTER_END.search(name) and catalogue.alive(name):
            yield Fault(
                "rate without _total",
                f"{function}() of {name}, whose name is no counter's",
                f"{name}_total if it is a counter, avg_over_time({name}[…]) if it is a gauge",
            )


def _quantiles(query: Query, expr: Expr, catalogue: Catalogue) -> Iterator[Fault]:
    for node in tree.walk(expr):
        if tree.call_name(node) != "histogram_quantile" or not isinstance(node, promql.Call):
            continue
        inner = tree.bare(node.args[1])
        if isinstance(inner, promql.AggregateExpr) and not tree.keeps(inner, "le"):
            yield Fault(
                "quantile without le",
                f"histogram_quantile over a {tree.aggregation(inner)} that drops the label le",
                f"{tree.aggregation(inner)} by (le) (…)",
            )
        if isinstance(inner, promql.AggregateExpr) and tree.aggregation(inner) != "sum":
            yield Fault(
                "quantile of no sum",
                f"histogram_quantile over {tree.aggregation(inner)} of buckets: what comes out is "
                "no histogram",
                "sum by (le) (rate(…_bucket[…]))",
            )
        buckets = [n for n in tree.names(inner) if n.endswith("_bucket")]
        if buckets and not any(tree.call_name(n) in tree.RATES for n in tree.walk(inner)):
            yield Fault(
                "quantile since start",
                f"the quantile of {buckets[0]} covers all time since the server started",
                f"sum by (le) (rate({buckets[0]}[…]))",
            )


def _units(query: Query, expr: Expr, catalogue: Catalogue) -> Iterator[Fault]:
    found = measure(expr)
    if found is None:
        return
    unit = query.unit.strip().lower()
    said_ms = unit in MILLISECONDS_UNITS or (
        unit not in SECONDS_UNITS and SAYS_MS.search(query.texts)
    )
    if query.exact:
        yield from _compared(query, expr)
    elif found.seconds and said_ms:
        yield Fault("seconds called ms", "the value is in seconds, the panel says milliseconds",
                    "the unit s (seconds), or the query times 1000")  # fmt: skip
    elif found.milliseconds and unit in SECONDS_UNITS:
        yield Fault("milliseconds called s", "the value is in milliseconds, the panel says seconds",
                    "the unit ms, or the query without × 1000")  # fmt: skip
    elif found.power == 0 and unit in SECONDS_UNITS | MILLISECONDS_UNITS and _sums(expr):
        yield Fault(
            "rate of a sum called time",
            f"rate of {_sums(expr)[0]} without its count is a share of time, not a duration",
            f"rate({_sums(expr)[0]}[…]) / rate({_sums(expr)[0].removesuffix('_sum')}_count[…])",
        )


def _compared(query: Query, expr: Expr) -> Iterator[Fault]:
    """An alert that compares seconds with the number its text calls milliseconds."""
    for node in tree.walk(expr):
        if tree.operator(node) not in (">", ">=", "<", "<="):
            continue
        left, right = tree.children(node)
        limit = tree.bare(right)
        found = measure(left)
        if found is None or not found.seconds or not isinstance(limit, promql.NumberLiteral):
            continue
        if re.search(rf"\b{limit.val:g}\s*(ms|milliseconds?)\b", query.texts):
            yield Fault(
                "seconds called ms",
                f"the value is in seconds and compared with {limit.val:g}, which the text calls ms",
                f"{limit.val / 1000:g}",
            )


def _averages(query: Query, expr: Expr, catalogue: Catalogue) -> Iterator[Fault]:
    for node in tree.walk(expr):
        averaging = tree.aggregation(node) == "avg" or tree.call_name(node) == "avg_over_time"
        if averaging:
            inner = tree.bare((tree.children(node) or [node])[-1])
            if isinstance(inner, promql.SubqueryExpr):
                inner = tree.bare(inner.expr)
            if any(tree.call_name(n) == "histogram_quantile" for n in tree.walk(inner)):
                yield Fault(
                    "average of quantiles",
                    "an average of quantiles is the quantile of nothing",
                    "histogram_quantile(q, sum by (le) (rate(…_bucket[…]))) over all of them",
                )
            elif tree.operator(inner) == "/" and _sums(inner):
                yield Fault(
                    "average of averages",
                    "an average of averages weighs a replica without load like a full one",
                    "sum(rate(…_sum[…])) / sum(rate(…_count[…]))",
                )
        if tree.operator(node) == "/" and not query.exact:
            yield from _since_start(node)
    yield from _lone_sum(query, expr)


def _since_start(node: Expr) -> Iterator[Fault]:
    """sum / count of counters as they stand."""
    sides = [tree.bare(side) for side in tree.children(node)]
    sums, counts = (_raw(side) for side in sides)
    if sums and counts and sums[0].endswith("_sum") and counts[0].endswith("_count"):
        yield Fault(
            "average since start",
            f"{sums[0]} / {counts[0]} is the average of all time since the server started",
            f"rate({sums[0]}[…]) / rate({counts[0]}[…])",
        )


def _raw(expr: Expr) -> list[str]:
    """The metrics of a side that nothing but a sum stands over."""
    if any(isinstance(node, (promql.Call, promql.MatrixSelector)) for node in tree.walk(expr)):
        return []
    return tree.names(expr)


def _lone_sum(query: Query, expr: Expr) -> Iterator[Fault]:
    """rate(x_sum) alone where people read a duration, in a panel without a unit of time."""
    found = measure(expr)
    unit = query.unit.strip().lower()
    if found is None or found.power != 0 or unit in SECONDS_UNITS | MILLISECONDS_UNITS:
        return
    inside_ratio = any(tree.operator(node) == "/" for node in tree.walk(expr))
    if unit in ("percent", "percentunit") or inside_ratio or not SAYS_DURATION.search(query.texts):
        return
    for name in _sums(expr)[:1]:
        yield Fault(
            "rate of a sum called time",
            f"rate of {name} without its count is a share of time, not a duration",
            f"rate({name}[…]) / rate({name.removesuffix('_sum')}_count[…])",
        )


def _sums(expr: Expr) -> list[str]:
    return [name for name in tree.names(expr) if name.endswith("_seconds_sum")]


def _short_windows(expr: Expr, scrape_interval_s: float) -> list[Fault]:
    least_s = MIN_WINDOW_INTERVALS * scrape_interval_s
    found: list[Fault] = []
    for node in tree.walk(expr):
        if tree.call_name(node) not in tree.RATES or not isinstance(node, promql.Call):
            continue
        window = tree.bare(node.args[0])
        if not isinstance(window, (promql.MatrixSelector, promql.SubqueryExpr)):
            continue
        window_s = tree.seconds(window)
        if f"{window_s:.0f}s" == tree.INTERVAL:
            found.append(
                Fault("window too short", "$__interval shrinks with the zoom below two scrapes",
                      "$__rate_interval")
            )  # fmt: skip
        elif window_s < least_s:
            found.append(
                Fault(
                    "window too short",
                    f"the window of {window_s:g} s holds less than {MIN_WINDOW_INTERVALS} "
                    f"scrapes of {scrape_interval_s:g} s",
                    f"{least_s:g} s or more, in Grafana $__rate_interval",
                )
            )
    return found


CHECKS: tuple[Check, ...] = (_dead, _rates, _quantiles, _units, _averages)
