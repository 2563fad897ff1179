"""Causes planted in a running engine: named first over its /metrics, cleared by their levers.

Every cause is a knob turned through the admin endpoint; the lever turns it back under the same
load, and the look after that is the control: with good knobs the load gives no such finding. Causes
are far from their thresholds (a TTFT of a second and more against half of one), so that a busy
machine, or a quick one, changes how long a look takes and not what it says.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.beside import beside
from tests.servers import running
from tests.tuner.diagnosis.real_engine import (
    FLAGS,
    GOOD,
    SMALL,
    Load,
    Watch,
    calm,
    levers,
    look,
    named_first,
    turn,
    utilization_of,
)
from tuner.diagnosis import Diagnosis
from tuner.diagnosis.thresholds import Thresholds

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@dataclass(frozen=True)
class Planted:
    """clients send prompts of so many tokens and ask for so many; bad: the knobs that plant the
    cause (0: the lowest there is); lever: the knob and direction that must be proposed."""

    node: str
    slo: str
    clients: int
    prompt_tokens: int
    output_tokens: int
    bad: dict[str, float]
    lever: str


PLANTED = (
    Planted("3b.long_prompt", "ttft_p95<500ms", 1, 3800, 4,
            {"chunk_size": 1, "max_num_seqs": 1}, "chunk_size up"),
    Planted("3a.seq_cap", "ttft_p95<500ms", 12, 40, 300, {"max_num_seqs": 1}, "max_num_seqs up"),
    Planted("3a.kv", "ttft_p95<500ms", 16, 300, 1200, {"gpu_memory_utilization": 0.0},
            "gpu_memory_utilization up"),
    Planted("3a.token_budget", "ttft_p95<500ms", 12, 600, 1,
            {"chunk_size": 4, "max_num_seqs": 4}, "chunk_size up"),
)  # fmt: skip


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.node)
def test_a_planted_cause_is_named_first_and_cleared_by_its_lever(
    engine: str, planted: Planted
) -> None:
    lowest = utilization_of(engine, 0)
    turn(engine, **GOOD)
    turn(engine, **{k: v or lowest for k, v in planted.bad.items()})
    load = Load(engine, planted.clients, planted.prompt_tokens, planted.output_tokens)
    with load.offered():
        ill = look(engine, [planted.slo], lambda found: named_first(planted.node, found))
        assert named_first(planted.node, ill), ill.headline
        knob = planted.lever.split()[0]
        assert planted.lever in levers(ill, planted.node)
        assert ill.node("3").firing
        if planted.node == "3a.kv":
            assert ill.node("6").symptom_of == planted.node, ill.node("6").summary
        turn(engine, **{knob: GOOD[knob]})

        def cleared(found: Diagnosis) -> bool:
            return not found.node(planted.node).firing and not found.node("3").firing

        well = look(engine, [planted.slo], cleared)
    assert cleared(well), well.headline


def test_too_little_load_is_no_fault(engine: str) -> None:
    turn(engine, **GOOD)
    with Load(engine, 2, 50, 20, pause_s=0.3).offered():
        found = look(engine, ["ttft_p95<1s"], lambda found: not found.causes)
    assert found.causes == (), found.headline
    assert "load-limited: not a server problem" in found.node("5").summary


def test_a_queue_that_only_grows_at_the_highest_cap_is_overload(
    small_model: Path, tmp_path: Path
) -> None:
    """A crowd that two places cannot serve; ten seconds of growth are an overload here. It leaves
    with the answers it waits for, and one client is left."""
    own = ("--max-num-seqs", "2", "--max-num-seqs-limit", "2", "--chunk-size", "256")
    arguments = ("serve", "--model", str(small_model), *FLAGS, *SMALL, *own)
    soon = Thresholds({"overload_growth_s": 10.0})
    with (
        running("engine", *arguments, log=tmp_path / "log") as program,
        Load(program.url, 1, 40, 20, pause_s=0.2).offered(),
        Watch(program.url, ["ttft_p95<500ms"], soon) as watch,
    ):
        with beside(partial(arriving, program.url)):
            ill = watch.until(lambda found: named_first("3a.overload", found))
        assert named_first("3a.overload", ill), ill.headline
        assert ill.node("3a.seq_cap").symptom_of == "3a.overload"
        assert levers(ill, "3a.overload") == ["scale out or shed load (--max-num-queued-reqs)"]

        def served(found: Diagnosis) -> bool:
            return calm(found, "3") and not watch.signals.value("waiting")

        well = watch.until(served)
        assert served(well), well.headline


def arriving(url: str, stop: threading.Event) -> None:
    """Three new clients a second, each of which stays: the queue grows however quick the engine."""
    while not stop.wait(0.3):
        stays = Load(url, 1, 40, 150).client
        threading.Thread(target=stays, args=(0, stop), daemon=True).start()
