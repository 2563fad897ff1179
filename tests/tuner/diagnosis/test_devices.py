"""The devices: what dcgm-exporter tells, and the roofline where only totals are counted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from storage.sources import RecordedSource
from storage.sources.exposition import parse_exposition
from storage.sources.gathered import GatheredSource, GatheredStore
from storage.sources.store import SeriesStore
from tests.tuner.diagnosis.cases import PREFILL, SLOS, signals
from tests.tuner.diagnosis.test_two_replicas import engine
from tuner.diagnosis import Diagnosis, Signals, State, collect, diagnose
from tuner.diagnosis.context import Case
from tuner.diagnosis.roofline import points
from tuner.diagnosis.thresholds import DEFAULT, DevicePeak, Thresholds
from tuner.slo import parse_slos

START_S = 1_800_000_000.0
PAGES = 14
SLOW = parse_slos(["tpot_p95<1ms"])
PLAIN = ("SM_CLOCK", "MEM_CLOCK", "GPU_TEMP", "POWER_USAGE", "GPU_UTIL", "FB_FREE", "FB_USED")


def dcgm(age_s: float, power: Sequence[float], thermal: Sequence[float], active: float) -> str:
    """A page of dcgm-exporter with the default counters and the two violations; the shares of the
    time that each device's clocks are held down."""
    lines = []
    for gpu, (watts, heat) in enumerate(zip(power, thermal, strict=True)):
        labels = (
            f'gpu="{gpu}",UUID="GPU-{gpu}",device="nvidia{gpu}",modelName="H100",Hostname="node-1"'
        )
        lines += [f"DCGM_FI_DEV_{name}{{{labels}}} 1000" for name in PLAIN]
        lines += [
            f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels}}} {active}",
            f"DCGM_FI_DEV_POWER_VIOLATION{{{labels}}} {watts * 1e9 * age_s:.0f}",
            f"DCGM_FI_DEV_THERMAL_VIOLATION{{{labels}}} {heat * 1e9 * age_s:.0f}",
        ]
    return "\n".join([*lines, ""])


def served(age_s: float) -> str:
    """An engine whose answers come at 40 ms a token, which is too slow."""
    text = engine(age_s, 'engine="0",model_name="m"')
    name, done = "vllm:request_time_per_output_token_seconds", 2 * age_s
    buckets = "".join(f'{name}_bucket{{le="{le}"}} {done}\n' for le in ("0.05", "+Inf"))
    first = f'{name}_bucket{{le="0.025"}} 0\n'
    return f"{text}{first}{buckets}{name}_sum {0.04 * done}\n{name}_count {done}\n"


def look(power: Sequence[float], thermal: Sequence[float], active: float = 0.9) -> Signals:
    pages = [
        (START_S + 5.0 * i, served(1000 + 5.0 * i) + dcgm(1000 + 5.0 * i, power, thermal, active))
        for i in range(PAGES)
    ]
    return collect(RecordedSource(pages), window_s=60.0, at_s=pages[-1][0])


def judged(power: Sequence[float], thermal: Sequence[float], active: float = 0.9) -> Diagnosis:
    return diagnose(look(power, thermal, active), SLOW)


def test_eight_devices_at_one_per_cent_are_not_one_at_eight() -> None:
    node = judged([0.01] * 8, [0.0] * 8).node("4.throttled")
    assert node.state is State.OK
    assert node.value == pytest.approx(0.01)


@pytest.mark.parametrize("heat", [True, False])
def test_one_device_of_eight_that_is_held_down_holds_all(heat: bool) -> None:
    one, none = [0.0] * 7 + [0.3], [0.0] * 8
    diagnosis = judged(none if heat else one, one if heat else none)
    node = diagnosis.node("4.throttled")
    assert node.state is State.WARNING
    assert node.value == pytest.approx(0.3)
    assert "one device's clocks were held down 30% of the time" in node.summary
    assert diagnosis.causes[0].key == "4.throttled"
    assert node.levers


def test_the_query_is_of_the_device_that_grows_fastest() -> None:
    name = "DCGM_FI_DEV_POWER_VIOLATION"
    assert look([0.1, 0.2], [0.0, 0.0])["power_throttle"].query == (
        f"max(sum by (Hostname,UUID,gpu) (increase({name}[60s]))) / 60"
    )


def test_an_idle_device_beside_running_requests_is_host_bound() -> None:
    node = judged([0.0], [0.0], active=0.2).node("4.host")
    assert node.state is State.WARNING
    assert node.value == pytest.approx(0.2)


def test_an_exporter_on_the_same_host_belongs_to_the_engine() -> None:
    """As a Prometheus tells: another target, by its host; a third host's devices are left out."""
    pages = {
        "10.0.0.1:8000": served,
        "10.0.0.1:9400": lambda age_s: dcgm(age_s, [0.3], [0.0], 0.9),
        "10.0.0.2:9400": lambda age_s: dcgm(age_s, [0.9], [0.0], 0.9),
    }
    own, others = [], []
    for instance, page in pages.items():
        store = SeriesStore()
        for i in range(PAGES):
            store.add(parse_exposition(page(1000 + 5.0 * i), START_S + 5.0 * i))
        others.append(({"__name__": "up", "instance": instance}, store.up_points()))
        mine = others if instance.endswith("9400") else own
        mine += [({**labels, "instance": instance}, points) for labels, points in store.matrix()]
    end_s = START_S + 5.0 * (PAGES - 1)
    source = GatheredSource(GatheredStore(own, others), end_s, 5.0)
    seen = collect(source, window_s=60.0, at_s=end_s)
    assert seen.value("power_throttle") == pytest.approx(3e8, rel=0.01)


PEAK = Thresholds(device=DevicePeak(1e13, 1e12))


@pytest.mark.parametrize(
    ("flops", "moved", "side"), [(5e12, 1e11, "arithmetic"), (1e11, 5e11, "memory")]
)
def test_totals_tell_the_side_of_the_ridge(flops: float, moved: float, side: str) -> None:
    """As vLLM counts with --enable-mfu-metrics: no kinds of steps."""
    planted = {"flops": flops, "read_bytes": 0.8 * moved, "write_bytes": 0.2 * moved}
    [point] = points(Case(signals(**planted), PEAK))
    assert point.kind == "all"
    assert point.side == side
    assert point.intensity == pytest.approx(flops / moved)
    assert point.ridge == pytest.approx(10.0)
    assert (point.mfu, point.mbu) == (pytest.approx(flops / 1e13), pytest.approx(moved / 1e12))
    shown = diagnose(signals(**PREFILL | planted), SLOS, thresholds=PEAK).node("3b.compute")
    assert dict(shown.evidence)["all steps"].endswith(f"under the {side} roof")


def test_kinds_of_steps_tell_more_than_their_sum() -> None:
    kinds = {f"kind_{what}": {"decode": 10.0} for what in ("s", "flops", "bytes")}
    [point] = points(Case(signals(breakdowns=kinds), PEAK))
    assert point.kind == "decode"


@pytest.mark.parametrize("gone", ["flops", "read_bytes", "write_bytes"])
def test_without_a_total_there_is_no_point(gone: str) -> None:
    planted: dict[str, float | None] = {gone: None}
    assert points(Case(signals(**planted), PEAK)) == []
    unknown = {"peak_flops": None, "peak_bytes": None}
    assert points(Case(signals(**unknown), DEFAULT)) == []
