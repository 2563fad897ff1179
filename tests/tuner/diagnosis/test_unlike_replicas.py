"""Replicas that are not alike: each one's own settings count, and that they differ is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.tuner.diagnosis.cases import PREFILL, QUEUE, SLOS, signals
from tests.tuner.diagnosis.test_replicas import LOADED, RUNNING
from tests.tuner.diagnosis.test_two_replicas import engine
from tests.tuner.diagnosis.test_two_replicas import look as looked
from tuner.diagnosis import Diagnosis, Signals, State, diagnose
from tuner.diagnosis.context import Case
from tuner.diagnosis.peaks import unlike
from tuner.diagnosis.roofline import mbu, mfu, points
from tuner.diagnosis.thresholds import DEFAULT, DevicePeak, Thresholds

GROWS = {"waiting_growing_s": 400.0, "waiting_rise": 30.0}


def differing(
    each: dict[str, dict[str, str]], base: dict[str, Any] = QUEUE, **planted: Any
) -> Signals:
    """Two replicas, evenly loaded, that agree in nothing that each tells."""
    names = {name for settings in each.values() for name in settings}
    parts = {
        f"{name}_by_replica": dict.fromkeys(each, value)
        for name, value in (("running", 36.0), ("waiting", 6.0))
    }
    values: dict[str, Any] = {**base, "running": 72.0, "running_mean": 72.0, **planted}
    look = signals(breakdowns=parts, **values)
    config = {name: value for name, value in look.config.items() if name not in names}
    own = {name: config | settings for name, settings in each.items()}
    return replace(look, config=config, config_by_replica=own)


def judged(look: Signals) -> Diagnosis:
    return diagnose(look, SLOS)


def test_the_cap_is_the_sum_of_each_ones_own() -> None:
    each = {"a": {"max_num_seqs": "64"}, "b": {"max_num_seqs": "8"}}
    node = judged(differing(each)).node("3a.seq_cap")
    assert node.value == 1.0
    assert "72 of 72 run" in node.summary
    other = {"a": {"max_num_seqs": "64"}, "b": {"max_num_seqs": "256"}}
    assert not judged(differing(other)).node("3a.seq_cap").firing


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_which_replica_comes_first_makes_no_difference(order: str) -> None:
    own = {"a": {"max_num_seqs": "64", "num_kv_blocks": "100", "block_size": "16"},
           "b": {"max_num_seqs": "8", "num_kv_blocks": "20", "block_size": "32"}}  # fmt: skip
    case = Case(differing({name: own[name] for name in order}), DEFAULT)
    assert (case.cap(), case.pool_tokens(), case.pools_tokens()) == (72, 640, 2240)


def test_node_7_says_in_what_they_differ() -> None:
    each = {"a": {"max_num_seqs": "64"}, "b": {"max_num_seqs": "8"}}
    diagnosis = judged(differing(each))
    assert dict(diagnosis.node("7").evidence)["max_num_seqs"] == "64 at a; 8 at b"
    same = {name: {"max_num_seqs": "64"} for name in "ab"}
    assert "max_num_seqs" not in dict(judged(differing(same)).node("7").evidence)


def test_engine_knobs_are_not_said_to_be_the_same_where_they_differ() -> None:
    look = signals(**{**RUNNING, **QUEUE, "breakdowns": LOADED})
    assert "the same on the replica" in diagnose(look, SLOS).node("7.load").will_not_help[0]
    other = replace(look, config_by_replica={"a": {"chunk_size": "512"}, "b": {"chunk_size": "64"}})
    node = diagnose(other, SLOS).node("7.load")
    assert node.firing
    assert node.will_not_help == ()


def test_a_replica_at_a_cap_of_its_own_has_no_room() -> None:
    look = signals(**{**RUNNING, **QUEUE, "breakdowns": LOADED})
    own = {name: {**look.config, "max_num_seqs": cap} for name, cap in (("a", "64"), ("b", "8"))}
    node = diagnose(replace(look, config_by_replica=own), SLOS).node("7.load")
    assert not node.firing
    assert "no other is known to have room" in node.summary


@pytest.mark.parametrize(
    ("key", "knob", "base"),
    [("3b.long_prompt", "chunk_size", PREFILL), ("3a.token_budget", "chunk_size", QUEUE),
     ("3b.cache_off", "enable_prefix_caching", PREFILL)],
)  # fmt: skip
def test_a_node_that_takes_one_value_says_that_they_differ(
    key: str, knob: str, base: dict[str, Any]
) -> None:
    """A mean over replicas of different steps is neither's."""
    look = differing({"a": {knob: "64"}, "b": {knob: "2048"}}, base)
    node = judged(look).node(key)
    assert node.state is State.CANT_TELL
    assert f"{knob} differs: 64 at a; 2048 at b" in node.summary
    assert "one replica at a time" in node.how_to_get


@pytest.mark.parametrize(("high", "fires"), [("8", True), ("256", False)])
def test_an_overload_needs_each_ones_knob_at_its_own_highest(high: str, fires: bool) -> None:
    each = {"a": {"max_num_seqs": "64", "max_num_seqs_high": "64"},
            "b": {"max_num_seqs": "8", "max_num_seqs_high": high}}  # fmt: skip
    look = differing(each, **GROWS, busy_s=60.0, idle_s=0.0)
    node = judged(look).node("3a.overload")
    assert node.firing is fires
    if not fires:
        assert "max_num_seqs 8 at b can be raised, up to 256" in node.summary


def working(**shares: float) -> dict[str, Any]:
    """Two devices, b's peaks a tenth of a's, each computing prompts for ten seconds at this share
    of its own peak FLOP/s, with 500 FLOP a byte; both ridges are at 100."""
    peak = {"a": 1e13, "b": 1e12}
    flops = {one: 10 * share * peak[one] for one, share in shares.items()}
    return {
        "running_by_replica": dict.fromkeys(shares, 4.0),
        "peak_flops_by_replica": peak,
        "peak_bytes_by_replica": {one: value / 100 for one, value in peak.items()},
        "kind_s": {"prefill": 10.0 * len(shares)},
        "kind_flops": {"prefill": sum(flops.values())},
        "kind_bytes": {"prefill": sum(flops.values()) / 500},
        "kind_s_by_replica": {f"{one}/prefill": 10.0 for one in shares},
        "kind_flops_by_replica": {f"{one}/prefill": done for one, done in flops.items()},
        "kind_bytes_by_replica": {f"{one}/prefill": done / 500 for one, done in flops.items()},
    }


@pytest.mark.parametrize(("a", "b", "most"), [(0.1, 0.9, 0.9), (0.6, 0.2, 0.6), (0.1, 0.2, 0.2)])
def test_each_device_is_held_against_its_own_peak(a: float, b: float, most: float) -> None:
    """By a's peak the first would be at 10 % on average, with b at its limit."""
    look = signals(**{**PREFILL, "breakdowns": working(a=a, b=b)})
    node = diagnose(look, SLOS).node("3b.compute")
    assert node.value == pytest.approx(most)
    assert node.firing is (most >= 0.4)
    assert f"{most:.0%} of peak FLOP/s, of the replica that is nearest to its own" in node.summary
    told = dict(node.evidence)
    assert told["prefill steps of a"].startswith(f"MFU {a:.0%}, MBU {a / 5:.0%}, 500 FLOP/B")
    assert told["prefill steps of b"].startswith(f"MFU {b:.0%}, MBU {b / 5:.0%}, 500 FLOP/B")
    assert mbu(Case(look, DEFAULT)) == pytest.approx(most / 5)


def test_alike_devices_are_one_on_average() -> None:
    parts = working(a=0.2, b=0.8)
    parts["peak_flops_by_replica"] = {"a": 1e12, "b": 1.05e12}
    parts["peak_bytes_by_replica"] = {"a": 1e10, "b": 1e10}
    parts["kind_flops"] = {"prefill": 1e13}
    look = signals(**{**PREFILL, "breakdowns": parts})
    assert mfu(Case(look, DEFAULT)) == pytest.approx(5e11 / 1.025e12)
    assert [point.name for point in points(Case(look, DEFAULT))] == ["prefill steps"]


def test_a_peak_that_is_given_is_that_of_all() -> None:
    given = Thresholds(device=DevicePeak(1e13, 1e11))
    case = Case(signals(breakdowns=working(a=0.1, b=0.9)), given)
    assert mfu(case) == pytest.approx((1e13 + 9e12) / 20 / 1e13)
    assert unlike(case) == ()


def test_where_one_does_not_tell_its_peak_it_is_not_that_of_the_other() -> None:
    parts = working(a=0.1, b=0.9)
    parts["peak_flops_by_replica"] = {"a": 1e13}
    parts["peak_bytes_by_replica"] = {"a": 1e11}
    look = signals(**{**PREFILL, "breakdowns": parts})
    node = diagnose(look, SLOS).node("3b.compute")
    assert node.state is State.CANT_TELL
    assert "peak FLOP/s is not known" in node.summary
    assert "--peak" in node.how_to_get


@pytest.mark.parametrize("unlike_peaks", [1.1, 20.0])
def test_what_unlike_devices_do_together_is_no_share_of_a_peak(unlike_peaks: float) -> None:
    """As vLLM counts: no kinds of steps. How far peaks may lie apart has a threshold of its own."""
    parts = {name: part for name, part in working(a=0.1, b=0.9).items() if "kind_" not in name}
    look = signals(**{**PREFILL, "breakdowns": parts}, flops=5.5e12)
    thresholds = Thresholds({"unlike_peaks": unlike_peaks})
    case, apart = Case(look, thresholds), unlike_peaks < 10
    assert mfu(case) == (None if apart else pytest.approx(0.5))
    assert (mbu(case) is None, points(case) == []) == (apart, apart)
    for key in ("3b.compute", "4.bandwidth"):
        node = diagnose(look, SLOS, thresholds=thresholds).node(key)
        assert ("differ, and what each one does is not told" in node.summary) is apart
        assert "nearest to its own" not in node.summary
        assert (node.state is State.CANT_TELL) is apart


def test_implausible_ratios_say_nothing_of_unlike_devices() -> None:
    case = Case(signals(breakdowns=working(a=0.1, b=0.9)), Thresholds({"plausible_ratio": 20.0}))
    assert unlike(case) == ("a", "b")


def exposed(age_s: float, instance: str, share: float, peak: float) -> str:
    labels = f'instance="{instance}",engine="0",model_name="m"'
    text = engine(age_s, labels)
    done = {"seconds": 0.5 * age_s, "flops": 0.5 * share * peak * age_s, "bytes": 1e6 * age_s}
    text += "".join(
        f'slotune:step_kind_{what}_total{{{labels},kind="prefill"}} {value}\n'
        for what, value in done.items()
    )
    return text + "".join(
        f'slotune:device_peak{{{labels},kind="{kind}"}} {value}\n'
        for kind, value in (("flops", peak), ("bandwidth", peak / 100))
    )


def test_peaks_and_settings_are_read_of_each_engine() -> None:
    def page(age_s: float) -> str:
        caps = "".join(
            f'slotune:scheduler_config_info{{instance="{one}",engine="0",max_num_seqs="{cap}"}} 1\n'
            for one, cap in (("gw/a", 64), ("gw/b", 8))
        )
        return exposed(age_s, "gw/a", 0.1, 1e13) + exposed(age_s, "gw/b", 0.9, 1e12) + caps

    seen = looked(page)
    assert seen.of("peak_flops_by_replica") == {"gw/a": 1e13, "gw/b": 1e12}
    assert mfu(Case(seen, DEFAULT)) == pytest.approx(0.9, rel=0.01)
    assert seen.numbers("max_num_seqs") == [64, 8]
    assert seen.number("max_num_seqs") is None
