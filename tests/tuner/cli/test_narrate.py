"""The status line of a study: what is called best so far."""

from __future__ import annotations

import io
import math

from tests.tuner.search.synthetic import DEFAULTS, FakeTarget, Surface, search_on
from tuner.cli.common import ProgressLine
from tuner.cli.narrate import Narrator
from tuner.measure.progress import Progress, Recent
from tuner.search.budget import parse_budget
from tuner.search.objective import Objective
from tuner.search.trial import Outcome, run_trial
from tuner.slo import parse_slos

SLOS = parse_slos(["ttft_p95<500ms"])
SMALL = DEFAULTS | {"chunk_size": 256}


def outcome(ttft_s: float, config: dict[str, float], seed: int) -> Outcome:
    lab = search_on(
        Surface(FakeTarget(), ttft=lambda c: ttft_s), budget=parse_budget("9 trials")
    ).lab
    return run_trial(lab, dict(config), stage="search", seed=seed)


def test_a_configuration_that_misses_when_measured_again_is_no_longer_best() -> None:
    told = io.StringIO()
    narrator = Narrator(ProgressLine(stream=told, interval_s=0.0), Objective(), SLOS)
    none = Recent(math.nan, math.nan, math.nan, 0)
    running = Progress(1.0, 10.0, 0.0, 1, 1, 0, 0, 5.0, 1.0, 0.0, 0.0, none, none, none, none)

    def status() -> str:
        narrator.progress(running)
        return told.getvalue().splitlines()[-1]

    assert "none meets the SLOs" in status()
    narrator.done(outcome(0.2, SMALL, 0))
    assert "chunk_size=256" in status()
    narrator.done(outcome(0.9, SMALL, 1))
    assert "none meets the SLOs" in status()
    narrator.done(outcome(0.3, DEFAULTS, 2))
    assert "best" in status()
    assert "chunk_size=2048" in status()
