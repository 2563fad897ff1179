"""Several loads: the worst counts, every SLO holds on each, and a gain needs one on each."""

from __future__ import annotations

import pytest

from tests.tuner.search.synthetic import (
    DEFAULTS,
    FakeTarget,
    MemoryLedger,
    Silent,
    Surface,
    search_on,
)
from tuner.report.flags import Served
from tuner.report.optimize import cautions, report_lines
from tuner.search.budget import parse_budget
from tuner.search.decide import decide
from tuner.search.each_load import worst_of
from tuner.search.noise import noise_of
from tuner.search.objective import Objective
from tuner.search.optimize import optimize
from tuner.search.session import Search, measure
from tuner.search.trials import Config, trials_of
from tuner.stats import Comparison
from tuner.workload import Workload

SHORT, LONG = "prompt=64,output=8,rate=10", "prompt=900,output=8,rate=10"
BUDGET = parse_budget("24 trials")


def is_long(load: Workload) -> bool:
    return load.prompt.mean > 500


def search(surface: Surface, slo: str = "ttft_p95<500ms", **options: object) -> Search:
    return search_on(surface, slo, budget=BUDGET, loads=(SHORT, LONG), **options)  # type: ignore[arg-type]


def surface(rate: object, ttft: object = lambda c, load: 0.2, **options: object) -> Surface:
    return Surface(FakeTarget(), ttft=ttft, rate=rate, by_load=True, noise=0.01, **options)  # type: ignore[arg-type]


def trades(config: Config, load: Workload) -> float:
    """A small chunk doubles the short load and halves the long one; a middle one helps both."""
    chunk = float(config["chunk_size"])
    if chunk < 200:
        return 10.0 if is_long(load) else 40.0
    return 26.0 if chunk < 1000 else 20.0


def test_the_best_for_one_load_does_not_win_when_it_costs_another() -> None:
    decision = optimize(search(surface(trades)))
    assert decision.answer == "improved"
    assert 200 <= float(decision.chosen_config["chunk_size"]) < 1000
    assert decision.gain is not None
    assert 1.15 < decision.gain.low < 1.3 < decision.gain.high
    assert decision.gain.ratio < 1.4
    assert decision.best is not None
    assert [name for name, _ in decision.best.by_load] == [SHORT, LONG]


def test_a_trial_is_read_as_its_worst_ratio_to_the_baseline() -> None:
    made = search(surface(trades))
    for seed in range(2):
        measure(made, DEFAULTS, "baseline", seed)
    trial = measure(made, DEFAULTS | {"chunk_size": 128}, "search", 9)
    reading = made.goal.read(trial, made.trials)
    assert reading.values[0] == pytest.approx(0.5, rel=0.05)
    assert reading.meets
    base = made.goal.read(made.trials[0], made.trials)
    assert base.values[0] == pytest.approx(1.0, rel=0.05)


def test_slos_must_hold_under_each_load() -> None:
    made = search(surface(lambda c, load: 20.0, lambda c, load: 0.9 if is_long(load) else 0.1))
    decision = optimize(made)
    assert decision.answer == "none_feasible"
    assert not decision.met


def test_a_missed_load_ends_the_trial_and_tells_the_sampler_why() -> None:
    made = search(surface(lambda c, load: 20.0, lambda c, load: 0.1 if is_long(load) else 0.9))
    trial = measure(made, DEFAULTS | {"chunk_size": 128}, "search", 9)
    assert len(trial.parts) == 1  # the short load comes first and is missed
    reading = made.goal.read(trial, made.trials)
    assert reading.values == (None,)
    assert not reading.meets
    assert reading.margins[0] > 0
    assert reading.margins[-1] < 0  # no crash: the loads left out are not its fault


@pytest.mark.parametrize("stop_at", [2, 6, 11, 30])
def test_resume_in_the_middle_of_a_trial(stop_at: int) -> None:
    made = surface(trades, interrupt_at=stop_at)
    ledger = MemoryLedger()
    with pytest.raises(KeyboardInterrupt):
        optimize(search(made, ledger=ledger))
    kept = list(ledger.outcomes)
    decision = optimize(search(made, ledger=ledger))
    assert ledger.outcomes[: len(kept)] == kept
    assert decision.answer == "improved"
    for trial in trials_of(ledger.outcomes):
        texts = [str(part.workload) for part in trial.parts]
        assert texts == [SHORT, LONG][: len(texts)]
    assert len(trials_of(ledger.outcomes)) <= 24


@pytest.mark.parametrize(
    ("outcomes", "says"),
    [
        (("improved", "improved"), "improved"),
        (("improved", "no_difference"), "no_difference"),
        (("improved", "inconclusive"), "inconclusive"),
        (("improved", "worse"), "worse"),
    ],
)
def test_a_gain_needs_one_under_each_load(outcomes: tuple[str, str], says: str) -> None:
    found = [
        Comparison(ratio, ratio - 0.1, ratio + 0.1, 5, outcome, "m")  # type: ignore[arg-type]
        for ratio, outcome in zip((1.5, 1.1), outcomes, strict=True)
    ]
    whole = worst_of(found, Objective())
    assert whole.outcome == says
    assert whole.ratio == 1.1


def drifting(made: Surface) -> Search:
    """Two baselines that differ by a fifth under each load, one up and the other down."""
    begun = search(made)
    for seed, speeds in enumerate(((20.0, 25.0), (25.0, 20.0))):
        made.rate = lambda c, load, speeds=speeds: speeds[is_long(load)]
        measure(begun, DEFAULTS, "baseline", seed)
    return begun


def test_noise_is_that_of_each_load_not_of_the_worst_ratio() -> None:
    begun = drifting(surface(trades))
    worst = [begun.goal.read(t, begun.trials).values[0] for t in begun.trials]
    assert worst[0] == pytest.approx(worst[1], rel=0.05)  # which hides it
    found = noise_of(begun.goal, begun.trials)
    assert found.sd > 0.1
    assert [load for load, _ in found.by_load] == [SHORT, LONG]
    said = found.text("output_tps")
    assert f"under {SHORT}" in said
    assert f"under {LONG}" in said


def test_a_baseline_is_not_told_as_a_ratio_to_itself() -> None:
    begun = drifting(surface(trades))
    assert isinstance(begun.events, Silent)
    assert begun.events.notes == []


def test_an_unsteady_baseline_is_told_by_its_load() -> None:
    made = surface(trades)
    begun = search(made)
    for seed, speed in enumerate((20.0, 40.0)):
        made.rate = lambda c, load, speed=speed: speed if is_long(load) else 20.0
        measure(begun, DEFAULTS, "baseline", seed)
    decision = decide(begun.ledger.outcomes, DEFAULTS, begun.goal)
    (said,) = cautions(decision, begun.goal, begun.ledger.outcomes)
    assert f"tok/s under {LONG}" in said
    assert SHORT not in said
    lines = report_lines(
        decision, begun.goal, served=Served(), load="", study="s",
        outcomes=begun.ledger.outcomes, nearest=None,
    )  # fmt: skip
    verdicts = [line for line in lines if line.startswith("  baseline  ttft_p95<500ms")]
    assert [line.partition(" under ")[2].partition(":")[0] for line in verdicts] == [SHORT, LONG]
