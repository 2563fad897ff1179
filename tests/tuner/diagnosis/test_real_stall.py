"""An engine that stands: its loop behind a live front end, and the whole process."""

from __future__ import annotations

import pytest

from tests.servers import Program
from tests.tuner.diagnosis.real_engine import GOOD, Load, Watch, calm, named_alone, turn
from tests.tuner.diagnosis.real_faults import halted, stalled
from tuner.diagnosis import State
from tuner.diagnosis.thresholds import Thresholds

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

Pair = tuple[Program, Program]

SOON = Thresholds({"stall_s": 5.0, "stall_warning_s": 3.0})
"""Five seconds without a token are a stall here; the window is six."""

SUSPECTED_SOON = Thresholds({"stall_warning_s": 3.0})


def test_a_loop_that_stands_is_a_stall_and_what_misses_its_slo_a_symptom(pair: Pair) -> None:
    engine, slos = pair[0], ["ttft_p95<2s", "itl_p99<2s"]
    turn(engine.url, **GOOD)
    with (
        Load(engine.url, 4, 50, 100).offered(),
        Watch(engine.url, slos, SOON) as watch,
    ):
        assert calm(watch.until(calm))
        try:
            with stalled(engine.process.pid, engine.url):
                ill = watch.until(lambda found: named_alone("1", found))
        except PermissionError:
            pytest.skip("threads of other processes may not be traced here")
        assert named_alone("1", ill), ill.headline
        assert ill.node("1").state is State.CRITICAL
        assert "run, but no token came in" in ill.node("1").summary
        well = watch.until(calm)
        assert calm(well), well.headline


def test_a_process_that_stands_is_distrusted_and_nothing_else_is_judged(pair: Pair) -> None:
    engine = pair[0]
    turn(engine.url, **GOOD)
    with Load(engine.url, 2, 50, 50).offered(), Watch(engine.url, ["ttft_p95<2s"]) as watch:
        assert calm(watch.until(calm))
        with halted(engine.process.pid):
            ill = watch.until(lambda found: named_alone("0", found))
        assert named_alone("0", ill), ill.headline
        assert {node.state for node in ill.nodes[1:]} == {State.CANT_TELL}
        well = watch.until(calm)
        assert calm(well), well.headline


def test_a_prompt_read_in_tiny_steps_is_no_stall(pair: Pair) -> None:
    """No token comes for longer than a stall takes here, but the engine makes its steps."""
    url = pair[0].url
    turn(url, **GOOD)
    with Load(url, 1, 4000, 1).offered(), Watch(url, [], SUSPECTED_SOON) as watch:
        watch.until(lambda found: calm(found, "1"))
        turn(url, chunk_size=1, max_num_seqs=1)
        try:
            slow = watch.until(lambda _: watch.signals.value("generated") == 0.0)
        finally:
            turn(url, **GOOD)
    assert watch.signals.value("generated") == 0.0
    assert watch.signals.value("running") == 1.0
    assert calm(slow, "1"), slow.node("1").summary
