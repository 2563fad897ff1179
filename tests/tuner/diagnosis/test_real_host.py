"""Faults of the host around a running engine's model: it takes long over a step's inputs, or
between two steps, or its step raises. The same clients with other prompts are the control.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import Program, running
from tests.tuner.diagnosis.contents import fresh, starting
from tests.tuner.diagnosis.faulty_engine import COMPLAINT, DELAY_S, FAILS, SLOW_BETWEEN, SLOW_INPUTS
from tests.tuner.diagnosis.real_engine import (
    FLAGS,
    Load,
    Watch,
    calm,
    levers,
    look,
    named_alone,
    usual_s,
)
from tuner.diagnosis import Diagnosis, State
from tuner.slo import parse_slos

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

HOST = "CUDA graphs (leave --enforce-eager off), a faster host core"


@pytest.fixture(scope="module")
def faulty(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    module, log = "tests.tuner.diagnosis.faulty_engine", tmp_path_factory.mktemp("faulty") / "log"
    arguments = ("serve", "--model", str(small_model), *FLAGS, "--device-memory", "128MiB")
    with running(module, *arguments, log=log) as program:
        yield program


def test_a_slow_host_is_named_where_it_is_slow(faulty: Program) -> None:
    """The SLO is half of DELAY_S above what is usual here. Between two steps only gaps suffer: the
    first token is out."""
    load, names = Load(faulty.url, 1, 40, 5), ("ttft_p95", "itl_p95")
    with load.offered(), Watch(faulty.url, [f"{name}<60s" for name in names]) as watch:
        bounds_s = {name: usual_s(watch, name) + DELAY_S / 2 for name in names}
        watch.slos = parse_slos([f"{name}<{bound_s:.4f}s" for name, bound_s in bounds_s.items()])
        well = watch.until(calm)
        assert calm(well), well.headline

        load.content = starting(SLOW_INPUTS)
        ill = watch.until(lambda found: named_alone("3b.host", found))
        assert named_alone("3b.host", ill), ill.headline
        assert ill.node("4.host").symptom_of == "3b.host"
        assert levers(ill, "3b.host") == levers(ill, "4.host") == [HOST]

        load.content = starting(SLOW_BETWEEN)

        def between(found: Diagnosis) -> bool:
            return named_alone("4.host", found) and calm(found, "3", "3b.host")

        ill = watch.until(between)
        assert between(ill), ill.headline
        assert levers(ill, "4.host") == [HOST]

        load.content = fresh
        well = watch.until(calm)
    assert calm(well), well.headline


def test_a_step_that_raises_ends_all_requests_with_errors(faulty: Program, engine: str) -> None:
    """The loop ends with it: what ran and whatever comes later has failed, also once nothing of
    before is left in the window. Last of the module, since the engine is gone then."""
    load, slos = Load(faulty.url, 4, 40, 20, pause_s=0.1, comes_back=True), ["ttft_p95<60s"]
    with load.offered(), Watch(faulty.url, slos) as watch:
        well = watch.until(calm)
        assert calm(well), well.headline

        load.content = starting(FAILS)

        def dead(found: Diagnosis) -> bool:
            return named_alone("2.errors", found) and watch.signals.value("generated") == 0.0

        ill = watch.until(dead)
        assert dead(ill), ill.headline
        assert ill.node("2.errors").state is State.CRITICAL
        assert levers(ill, "2.errors") == ["read the server's log"]
        assert COMPLAINT in faulty.output()

        load.url = engine
        well = look(engine, slos, calm)
    assert calm(well), well.headline
