"""The questions of storage/sources/base.py written as PromQL, with every label value escaped."""

from __future__ import annotations

from storage.sources.base import REPLICA_LABELS, Agg, Labels, RangeKind


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def selector(
    name: str, labels: Labels | None, window_s: float | None = None, *, extra: str = ""
) -> str:
    """`name{a="b"}` or, with a window, `name{a="b"}[60s]`; extra is a ready matcher."""
    matchers = [f'{key}="{escaped(value)}"' for key, value in sorted((labels or {}).items())]
    inside = ",".join(filter(None, [extra, *matchers]))
    braces = f"{{{inside}}}" if inside else ""
    return f"{name}{braces}" + ("" if window_s is None else f"[{duration(window_s)}]")


def duration(seconds: float) -> str:
    milliseconds = max(1, round(seconds * 1000))
    return f"{milliseconds // 1000}s" if milliseconds % 1000 == 0 else f"{milliseconds}ms"


def folded(name: str, labels: Labels | None, agg: Agg) -> str:
    return f"{agg}({selector(name, labels)})"


def gauge(name: str, labels: Labels | None, agg: Agg) -> str:
    return _over_replicas(selector(name, labels), agg)


def peak(name: str, window_s: float, labels: Labels | None, agg: Agg = "max") -> str:
    return _over_replicas(f"max_over_time({selector(name, labels, window_s)})", agg)


def _over_replicas(vector: str, agg: Agg, by: str = "") -> str:
    """A sum is over engines, of the greatest figure that each one's processes tell."""
    if agg == "sum":
        labels = dict.fromkeys([*filter(None, by.split(",")), *REPLICA_LABELS])
        vector = f"max by ({', '.join(labels)}) ({vector})"
    return f"{agg} by ({by}) ({vector})" if by else f"{agg}({vector})"


def subquery(expression: str, window_s: float, step_s: float, *, before_s: float = 0.0) -> str:
    """The values of an expression each step_s over window_s, up to before_s ago."""
    offset = f" offset {duration(before_s)}" if before_s else ""
    return f"({expression})[{duration(window_s)}:{duration(step_s)}]{offset}"


def rate(name: str, window_s: float, labels: Labels | None) -> str:
    return f"sum(rate({selector(name, labels, window_s)}))"


def increase(name: str, window_s: float, labels: Labels | None) -> str:
    return f"sum(increase({selector(name, labels, window_s)}))"


def mean(histogram: str, window_s: float, labels: Labels | None) -> str:
    parts = (increase(f"{histogram}{end}", window_s, labels) for end in ("_sum", "_count"))
    return " / ".join(parts)


def bucket_increases(histogram: str, window_s: float, labels: Labels | None) -> str:
    return f"sum by (le) (increase({selector(f'{histogram}_bucket', labels, window_s)}))"


def quantile(histogram: str, q: float, window_s: float, labels: Labels | None) -> str:
    return f"histogram_quantile({q:g}, {bucket_increases(histogram, window_s, labels)})"


def breakdown(name: str, by: str, window_s: float | None, labels: Labels | None) -> str:
    if window_s is None:
        return _over_replicas(selector(name, labels), "sum", by)
    return f"sum by ({by}) (increase({selector(name, labels, window_s)}))"


def point(
    kind: RangeKind, name: str, window_s: float, labels: Labels | None, agg: Agg = "max"
) -> str:
    """What a range asks at each of its steps; of a quantile, the bucket increases."""
    if kind == "gauge":
        return gauge(name, labels, agg)
    if kind == "peak":
        return peak(name, window_s, labels, agg)
    write = {"rate": rate, "mean": mean, "quantile": bucket_increases}[kind]
    return write(name, window_s, labels)
