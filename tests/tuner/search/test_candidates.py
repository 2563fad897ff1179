"""Which configurations are worth a confirmation, and in which order."""

from __future__ import annotations

from tests.tuner.search.synthetic import DEFAULTS, FakeTarget, Surface, search_on
from tuner.search.budget import parse_budget
from tuner.search.candidates import nearly, ranked, sweep_points
from tuner.search.session import Search, measure
from tuner.search.trials import Config, explored

SAFE, TIGHT, FAST = (DEFAULTS | {"chunk_size": chunk} for chunk in (256, 512, 1024))
SPEEDS = {256: 20.0, 512: 20.4, 1024: 30.0, 2048: 20.0}
WAITS = {256: 0.1, 512: 0.4, 1024: 0.4, 2048: 0.2}


def search(crashes: object = lambda c: False, noise: float = 0.0) -> Search:
    surface = Surface(
        FakeTarget(crashes=crashes),  # type: ignore[arg-type]
        ttft=lambda c: WAITS[int(c["chunk_size"])], rate=lambda c: SPEEDS[int(c["chunk_size"])],
        noise=noise,
    )  # fmt: skip
    made = search_on(surface, budget=parse_budget("30 trials"))
    for seed in range(2):
        measure(made, DEFAULTS, "baseline", seed)
    return made


def order(made: Search, *configs: Config) -> list[Config]:
    for number, config in enumerate(configs):
        measure(made, config, "search", 10 + number)
    return ranked(made.goal, explored(made.trials), made.trials)


def test_within_the_noise_the_one_farthest_from_its_bound_comes_first() -> None:
    assert order(search(), TIGHT, SAFE) == [SAFE, TIGHT]


def test_a_gain_beyond_the_noise_comes_first_however_tight() -> None:
    assert order(search(), SAFE, TIGHT, FAST)[0] == FAST


def test_a_share_of_memory_just_below_one_that_failed_is_not_recommended() -> None:
    high = SAFE | {"gpu_memory_utilization": 0.9}
    near = SAFE | {"gpu_memory_utilization": 0.885}
    low = SAFE | {"gpu_memory_utilization": 0.8}
    lighter = near | {"max_num_seqs": 64}
    made = search(crashes=lambda c: c == high)
    assert order(made, high, near, low, lighter) == [low, lighter]


def test_a_point_that_misses_by_a_hair_may_be_noise() -> None:
    made = search()
    surface = made.lab.measure
    assert isinstance(surface, Surface)
    surface.ttft = lambda c: 0.45 if c == SAFE else 0.8
    measure(made, SAFE, "search", 10)
    measure(made, TIGHT, "search", 11)
    found = explored(made.trials)
    assert ranked(made.goal, found, made.trials) == []
    assert nearly(made.goal, found, made.trials) == SAFE


def test_what_the_diagnosis_proposes_is_swept_first() -> None:
    made = search()
    levers = [("max_num_seqs", "up"), ("chunk_size", "down"), ("more replicas", "do")]
    first, second, *_ = sweep_points(made.space, dict(DEFAULTS), 6, levers)
    assert 128 < float(first["max_num_seqs"]) < 256
    assert first | {"max_num_seqs": 128} == DEFAULTS
    assert 1 < float(second["chunk_size"]) < 2048
    plain = sweep_points(made.space, dict(DEFAULTS), 6)
    assert len(sweep_points(made.space, dict(DEFAULTS), 6, levers)) == len(plain)
    assert sweep_points(made.space, dict(DEFAULTS), 6, [("max_model_len", "down")]) == plain


def test_a_lever_at_the_end_of_its_axis_is_no_point() -> None:
    made = search()
    full = DEFAULTS | {"max_num_seqs": 256}
    points = sweep_points(made.space, full, 6, [("max_num_seqs", "up")])
    assert points == sweep_points(made.space, full, 6)


def test_sweep_points_vary_one_knob_and_are_feasible() -> None:
    made = search()
    points = sweep_points(made.space, dict(DEFAULTS), 6)
    assert len(points) == 6
    assert all(point["chunk_size"] >= point["max_num_seqs"] for point in points)
    changed = [sum(point[name] != DEFAULTS[name] for name in DEFAULTS) for point in points]
    assert changed.count(1) >= 5
