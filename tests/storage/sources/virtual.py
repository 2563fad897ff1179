"""A scraped target in virtual time: pages are handed in, and the clock stands where it was put."""

from __future__ import annotations

from collections.abc import Callable

from storage.history import History
from storage.sources.exposition import parse_exposition
from storage.sources.keeper import FaultLog, Keeper
from storage.sources.scrape import ScrapeSource

START_S = 1_800_000_000.0


class VirtualScrape(ScrapeSource):
    """The scraper with its memory and its history, but no thread of its own.

    told: what the keeper told.
    """

    def __init__(self, open_history: Callable[[], History] | None, interval_s: float = 5.0) -> None:
        super().__init__("http://virtual", scrape_interval_s=interval_s)
        self.now_s = START_S
        self.told: list[str] = []
        self._tried.set()
        if open_history is not None:
            self._keeper = Keeper(
                self, open_history, read_only=True, told=FaultLog(self.told.append)
            )

    def _run(self) -> None:
        pass

    def _now_s(self) -> float:
        return self.now_s

    def scrape(self, page: str) -> None:
        self._store.add(parse_exposition(page, self.now_s))

    def write(self) -> None:
        assert self._keeper is not None
        self._keeper.write()

    def watch(self, until_s: float, page: Callable[[float], str]) -> None:
        """Scrapes up to until_s, a point of the history at the end of every minute."""
        while self.now_s + self.scrape_interval_s <= until_s:
            before_s, self.now_s = self.now_s, self.now_s + self.scrape_interval_s
            if self.now_s // 60 > before_s // 60:
                self.write()
            self.scrape(page(self.now_s))
