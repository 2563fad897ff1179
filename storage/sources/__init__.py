"""Where metrics come from: a target's own /metrics (embedded scraper), Prometheus, a recording.

All three answer the questions of storage/sources/base.py in the same way.
"""

from __future__ import annotations

from storage.errors import StorageError
from storage.sources.base import Labels, MetricSource
from storage.sources.exposition import Exposition, parse_exposition
from storage.sources.fetch import scrape_once
from storage.sources.recorded import RecordedSource

__all__ = ["Exposition", "RecordedSource", "open_source", "parse_exposition", "scrape_once"]


def open_source(
    *,
    url: str | None = None,
    prometheus: str | None = None,
    scrape_interval_s: float = 5.0,
    labels: Labels | None = None,
) -> MetricSource:
    """A source for one target: its base or /metrics URL, or a Prometheus server's URL.

    labels narrow every question to the series that carry them (`{"job": "vllm"}`).
    Raises StorageError when neither or both are given; an unreachable target is an answer
    (Outcome.UNREACHABLE), not a fault.
    """
    if (url is None) == (prometheus is None):
        raise StorageError("give either the target's URL or a Prometheus URL, not both or neither")
    if prometheus is not None:
        from storage.sources.prometheus import PrometheusSource

        return PrometheusSource(prometheus, scrape_interval_s=scrape_interval_s, labels=labels)
    from storage.sources.scrape import ScrapeSource

    return ScrapeSource(str(url), scrape_interval_s=scrape_interval_s, labels=labels)
