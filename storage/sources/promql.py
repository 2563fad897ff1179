"""The questions of storage/sources/base.py written as PromQL, with every label value escaped."""

from __future__ import annotations

from storage.sources.base import Labels, RangeKind


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


def gauge(name: str, labels: Labels | None, agg: str) -> str:
    return f"{agg}({selector(name, labels)})"


def peak(name: str, window_s: float, labels: Labels | None) -> str:
    return f"max(max_over_time({selector(name, labels, window_s)}))"


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
        return f"max by ({by}) ({selector(name, labels)})"
    return f"sum by ({by}) (increase({selector(name, labels, window_s)}))"


def point(kind: RangeKind, name: str, window_s: float, labels: Labels | None) -> str:
    """What a range asks at each of its steps; of a quantile, the bucket increases."""
    if kind == "gauge":
        return gauge(name, labels, "max")
    if kind == "peak":
        return peak(name, window_s, labels)
    write = {"rate": rate, "mean": mean, "quantile": bucket_increases}[kind]
    return write(name, window_s, labels)
