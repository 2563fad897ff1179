"""What is true of a surface: every point judged by all its recorded runs together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from benchmarks.efficiency.surface import Key, RecordedRun, Surface, key_of
from tuner.endpoint import Endpoint
from tuner.figures import in_window, lag_p99_s
from tuner.measure import Measurement, summarize
from tuner.measure.cautions import GeneratorLoop
from tuner.search.objective import Objective
from tuner.search.trials import Config
from tuner.slo import SloSet
from tuner.slo.pooled import Pooled, pool_runs


def measured(run: RecordedRun, surface: Surface, slos: SloSet) -> Measurement:
    """The recorded run as the tuner has a measurement."""
    made = Measurement(
        Endpoint(""), surface.workload, run.seed, run.window_s, 0.0, run.records,
        lag_p99_s(in_window(run.records, run.window_s)),
        loop=GeneratorLoop.from_dict(run.generator),
    )  # fmt: skip
    return summarize(made, slos)


@dataclass(frozen=True)
class Truth:
    """A point is feasible where none of its runs failed and every clause holds at the estimate from
    all of them."""

    surface: Surface
    slos: SloSet
    objective: Objective

    @cached_property
    def pooled(self) -> dict[Key, Pooled]:
        """Of the points where no run failed."""
        return {
            key: pool_runs([measured(run, self.surface, self.slos) for run in runs], self.slos)
            for key, runs in self.surface.points.items()
            if all(run.state != "failed" for run in runs)
        }

    def feasible(self, config: Config) -> bool:
        found = self.pooled.get(key_of(config))
        return found is not None and all(margin <= 0 for margin in found.verdict.margins)

    def value(self, config: Config) -> float | None:
        """The objective; None where there is none."""
        found = self.pooled.get(key_of(config))
        return self.objective.value(found.summary) if found is not None else None

    @cached_property
    def best(self) -> tuple[Config, float]:
        """The best feasible point. ValueError where nothing is feasible."""
        points = [dict(key) for key in self.pooled]
        known = [(c, v) for c in points if self.feasible(c) and (v := self.value(c)) is not None]
        if not known:
            raise ValueError(f"no point of the surface meets {self.slos}")
        pick = max if self.objective.higher_is_better else min
        return pick(known, key=lambda pair: pair[1])

    def share(self, config: Config | None) -> float:
        """Of the best that is feasible, reached by a claim; 0 for none and for a false one."""
        value = self.value(config) if config is not None and self.feasible(config) else None
        if value is None:
            return 0.0
        ratio = value / self.best[1]
        return ratio if self.objective.higher_is_better else 1 / ratio
