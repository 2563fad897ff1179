"""Several labs behind one router, scraped as one target: each replica's series carry its `engine`.

Every lab runs in its own virtual time; the pages of one second are joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from storage.sources.exposition import Exposition
from tests.tuner.diagnosis.lab import SCRAPE_S, START_S, Lab, Load, Scraped, judged
from tuner.diagnosis import Diagnosis, History
from tuner.diagnosis.thresholds import DEFAULT, Thresholds


class Fleet:
    """loads: what the router gives each replica, in the order of labs."""

    def __init__(self, labs: Sequence[Lab], loads: Sequence[Load]) -> None:
        self.labs = list(labs)
        self.source = Scraped()
        self.now_s = START_S
        self._joined_s = START_S - SCRAPE_S
        self.route(*loads)

    def route(self, *loads: Load) -> None:
        """From now on these loads, one a replica."""
        for lab, load in zip(self.labs, loads, strict=True):
            lab.offer(load)

    def run(self, for_s: float) -> None:
        self.now_s += for_s
        for lab in self.labs:
            lab.run(self.now_s - lab.now_s)
        while self._joined_s + SCRAPE_S <= min(lab.now_s for lab in self.labs):
            self._joined_s += SCRAPE_S
            self.source.add(self._page(self._joined_s))

    def _page(self, at_s: float) -> Exposition:
        values: dict[str, float] = {}
        for number, lab in enumerate(self.labs):
            for key, value in lab.source.at(at_s).items():
                values[key.replace('engine="0"', f'engine="{number}"')] = value
        return Exposition(at_s, values)

    def judge(
        self, slos: Any, history: History | None = None, thresholds: Thresholds = DEFAULT
    ) -> Diagnosis:
        info = self.labs[0].server_info()
        return judged(self.source, self.now_s, info, slos, history, thresholds)
