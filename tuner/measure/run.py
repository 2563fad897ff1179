"""One measurement: warm-up, window, drain; the server's own counters before and after.

The window is what counts. A request belongs to it by its *scheduled* send, so slow ones cannot
fall out at its end; what is still running after the drain is censored, never dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tuner import figures
from tuner.endpoint import Endpoint
from tuner.errors import UserError
from tuner.load import Interrupted, LoadBrokenError, LoadPlan, LoadResult, generate
from tuner.measure.held_back import held_back
from tuner.measure.measurement import Measurement, summarize
from tuner.measure.progress import Progress, Tracker
from tuner.measure.stopping import StopRule
from tuner.measure.window import Chosen, choose_window
from tuner.server_side import PrometheusTarget, Watch, watching
from tuner.slo.grammar import SloSet
from tuner.stats.steady import Steady
from tuner.workload import Workload

FAIL_FAST_REQUESTS = 20
"""After this many requests without one success the measurement ends: the server does not work."""


@dataclass(frozen=True, slots=True)
class Sending:
    """How requests are sent; what LoadPlan says of the same fields."""

    drain_s: float | None = None
    request_timeout_s: float = 600.0
    token_timeout_s: float | None = None
    content_salt: bytes | None = None
    extra_body: Mapping[str, Any] | None = None
    processes: int | None = None


class MeasurementInterrupted(KeyboardInterrupt):
    """Ctrl-C during a measurement; made is what was measured until then. whole_why: why its load,
    measured whole, had ended before its time, "" in its time; None where it was cut short."""

    def __init__(self, made: Measurement, whole_why: str | None = None) -> None:
        super().__init__()
        self.made, self.whole_why = made, whole_why


class MeasurementBrokenError(UserError):
    """The load generator could not go on; made is what was measured until then."""

    def __init__(self, text: str, made: Measurement) -> None:
        super().__init__(text)
        self.made = made


def measure(
    endpoint: Endpoint,
    workload: Workload,
    *,
    duration_s: float,
    warmup_s: float = 3.0,
    warmup_max_s: float = math.inf,
    seed: int = 0,
    max_requests: int | None = None,
    slos: SloSet | None = None,
    price_per_hour: float | None = None,
    sending: Sending | None = None,
    prometheus: PrometheusTarget | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    should_stop: Callable[[LoadResult, float], bool] | None = None,
    stop_when_decided: bool = False,
) -> Measurement:
    """Send the workload for warmup_s + duration_s and judge what was scheduled after the warm-up.

    The warm-up ends when the run's own series have settled, warmup_s after the start at the
    earliest and within the first half of the run (and warmup_max_s); if they never do, it ends at
    warmup_s and the run says so. stop_when_decided: end early when every clause of slos is decided
    (StopRule). endpoint must have been probed. The last requests may finish after the window for
    sending.drain_s (None: by what requests took so far, 5 to 30 s); later ones are censored.
    prometheus: where the server's own figures are read; None for its /metrics. should_stop gets the
    load so far and the window's start (s) and may end the measurement early. Raises UserError,
    MeasurementBrokenError and MeasurementInterrupted; never leaves connections.
    """
    total_s = warmup_s + duration_s
    plan = LoadPlan(
        endpoint, workload, seed, total_s, max_requests=max_requests,
        **asdict(sending or Sending()),
    )  # fmt: skip
    rule = StopRule(slos or SloSet(), workload, warmup_s, price_per_hour)
    last_s = workload.arrivals.last_s
    tracker = Tracker(
        warmup_s=warmup_s if last_s is None else 0.0,
        total_s=total_s if last_s is None else min(total_s, last_s),
    )
    course = _Course(
        plan, warmup_s, warmup_max_s, slos, price_per_hour, tracker, on_progress, should_stop,
        rule if stop_when_decided else None,
    )  # fmt: skip
    load: LoadResult | None = None
    interrupted, whole = "interrupted after the load, which was measured whole", True
    try:
        with watching(endpoint.base_url, prometheus) as watch:
            try:
                load = generate(plan, course.tick)
            except Interrupted as stopped:
                load, interrupted, whole = stopped.load, "interrupted", False
                raise
        return course.measurement(load, watch, course.ended_why)
    except KeyboardInterrupt:
        if load is None:
            raise
    except LoadBrokenError as broken:
        made = course.measurement(broken.load, watch, str(broken))
        raise MeasurementBrokenError(str(broken), made) from broken
    with held_back():
        made = course.measurement(load, watch, interrupted, wait=False)
    raise MeasurementInterrupted(made, course.ended_why if whole else None)


@dataclass(slots=True)
class _Course:
    """A load under way: when it has told enough, and the measurement that comes of it."""

    plan: LoadPlan
    warmup_s: float
    warmup_max_s: float
    slos: SloSet | None
    price_per_hour: float | None
    tracker: Tracker
    on_progress: Callable[[Progress], None] | None
    should_stop: Callable[[LoadResult, float], bool] | None
    rule: StopRule | None
    ended_why: str = ""

    def tick(self, load: LoadResult) -> bool:
        """Whether to end now; ended_why says why."""
        if self.on_progress is not None:
            self.on_progress(self.tracker.look(load))
        if _hopeless(load):
            self.ended_why = f"none of {FAIL_FAST_REQUESTS} or more requests succeeded"
        elif self.should_stop is not None and self.should_stop(load, self.warmup_s):
            self.ended_why = "the caller had seen enough"
        elif self.rule is not None:
            self.ended_why = self.rule.why(load)
        return bool(self.ended_why)

    def measurement(
        self, load: LoadResult, watch: Watch, ended_why: str, *, wait: bool = True
    ) -> Measurement:
        """wait: for the server's last figures."""
        chosen = _choose(load, self.plan, self.warmup_s, self.warmup_max_s)
        made = Measurement(
            endpoint=self.plan.endpoint,
            workload=self.plan.workload,
            seed=self.plan.seed,
            window_s=chosen.window_s,
            began_unix_s=load.began_unix_s,
            records=load.records,
            lag_p99_s=figures.lag_p99_s(figures.in_window(load.records, chosen.window_s)),
            server=watch.result(load.began_unix_s, wait=wait),
            price_per_hour=self.price_per_hour,
            chosen=chosen,
            stalls=load.stalls,
            processes=load.processes,
            ended_why=ended_why,
        )
        return summarize(made, self.slos)


def _choose(load: LoadResult, plan: LoadPlan, warmup_s: float, most_s: float) -> Chosen:
    """From the end of the warm-up to the last send, by the plan or where the run was ended.

    What was sent after the last answer counts: a server that hung is not left out. A server that
    never worked has no warm-up: every failure counts, whenever it came.
    """
    end_s = plan.send_s
    load_ended = load.stopped_early or load.sent_all
    if load_ended:
        ends = [r.end_s for r in load.records if r.state != "censored"]
        sends = [math.nextafter(r.scheduled_s, math.inf) for r in load.records]
        end_s = min(plan.send_s, max(ends + sends) if ends else load.ended_s)
    if load.stopped_early and _hopeless(load):
        return Chosen((0.0, end_s), Steady(0.0, None, "every request failed: all of them count"))
    return choose_window(
        load.records, plan.workload.arrivals,
        least_s=warmup_s, most_s=most_s, end_s=end_s, load_ended=load_ended,
    )  # fmt: skip


def _hopeless(load: LoadResult) -> bool:
    if any(record.ok for record in load.records):  # the first, of most runs: asked at every tick
        return False
    return sum(record.state == "failed" for record in load.records) >= FAIL_FAST_REQUESTS
