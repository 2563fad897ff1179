"""Where metrics come from: a target's own /metrics (embedded scraper), Prometheus, a recording.

All three answer the questions of storage/sources/base.py in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from storage.errors import StorageError
from storage.sources.base import Labels, MetricSource
from storage.sources.exposition import Exposition, parse_exposition
from storage.sources.fetch import metrics_url, scrape_once
from storage.sources.recorded import RecordedSource

if TYPE_CHECKING:
    from storage.history import History

__all__ = ["Exposition", "RecordedSource", "open_source", "parse_exposition", "scrape_once"]


def open_source(
    *,
    url: str | Sequence[str] | None = None,
    prometheus: str | None = None,
    scrape_interval_s: float = 5.0,
    labels: Labels | None = None,
    database: str | None = None,
    keep: bool = True,
) -> MetricSource:
    """A source for a target: its base or /metrics URL, or a Prometheus server's URL.

    Several URLs are the replicas of one target, told apart by their `instance`.

    labels narrow every question to the series that carry them (`{"job": "vllm"}`). database: beside
    which the history of each scraped target is kept (storage/location.py says where), or with keep
    False only read; a Prometheus has its own.
    Raises StorageError when neither or both are given; an unreachable target is an answer
    (Outcome.UNREACHABLE), not a fault.
    """
    if bool(url) == (prometheus is not None):
        raise StorageError("give either the target's URL or a Prometheus URL, not both or neither")
    if prometheus is not None:
        from storage.sources.prometheus import PrometheusSource

        return PrometheusSource(prometheus, scrape_interval_s=scrape_interval_s, labels=labels)
    urls = [url] if isinstance(url, str) else list(url or ())
    history = None if database is None else partial(_history, database, keep)
    if len(urls) > 1:
        from storage.sources.targets import ScrapedTargets

        return ScrapedTargets(
            urls, scrape_interval_s=scrape_interval_s, labels=labels, history=history,
            read_only=not keep,
        )  # fmt: skip
    from storage.sources.scrape import ScrapeSource

    return ScrapeSource(
        urls[0],
        scrape_interval_s=scrape_interval_s,
        labels=labels,
        history=None if history is None else partial(history, urls[0]),
        read_only=not keep,
    )


def _history(database: str, keep: bool, url: str) -> History:
    from storage.database import open_database
    from storage.history import History
    from storage.location import history_beside, parse

    where = history_beside(database)
    path = parse(where).path
    if not keep and path is not None and not path.exists():
        raise StorageError(
            f"there is none in {path}; `dashboard serve --url {url} --database {database}` keeps it"
        )
    return History(open_database(where, read_only=not keep), metrics_url(url))
