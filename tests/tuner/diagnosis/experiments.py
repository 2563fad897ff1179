"""Provoked experiments: a planted cause, the node that must name it first, and what mends it.

`plant` builds a lab and offers its load for some virtual seconds; `mend` turns the proposed knob
live, or does what the lever says where no knob can. Sizes vary with the seed, causes do not.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.tuner.diagnosis.fleet import Fleet
from tests.tuner.diagnosis.lab import EVALUATE_S, Device, Lab, Load, Mix, Request
from tuner.diagnosis import Diagnosis, History
from tuner.diagnosis.thresholds import DEFAULT, Thresholds
from tuner.slo import SloSet, parse_slos

NOTHING = "nothing"
FAST = Device()
SLOW = Device(flops_per_s=2.5e11, bytes_per_s=2.5e9, overhead_s=0.001)
SOON = Thresholds({"overload_growth_s": 60.0})
"""A queue that grows for a minute is an overload here: five would only take longer."""


@dataclass(frozen=True)
class Experiment:
    """node: the first cause's key, or NOTHING. lever: title of one it must propose."""

    name: str
    node: str
    slos: tuple[str, ...]
    plant: Callable[[int], Lab | Fleet]
    mend: Callable[[Any], None]
    lever: str = ""
    for_s: float = 30.0
    mended_s: float = 50.0
    thresholds: Thresholds = DEFAULT


def sizes(prompt: int, output: int) -> Mix:
    """Lengths within a tenth of these."""
    return lambda r: Request(around(r, prompt), around(r, output))


def around(r: random.Random, tokens: int) -> int:
    return max(1, round(tokens * r.uniform(0.9, 1.1)))


def offering(lab: Lab, load: Load) -> Lab:
    lab.offer(load)
    return lab


def _chat_with_documents(r: random.Random) -> Request:
    """Three of ten requests bring a long document, the rest a line."""
    long = r.random() < 0.3
    return Request(around(r, 1500 if long else 20), around(r, 80))


def _prefixes(groups: int) -> Mix:
    return lambda r: Request(around(r, 50) + 1500, 4, r.randrange(groups), 1500)


def _thrashing(seed: int) -> Lab:
    """Room for twelve prefixes: five fit, thirty do not."""
    lab = offering(Lab(kv_blocks=1200, seed=seed), Load(_prefixes(5), rate=5))
    lab.run(25)
    return offering(lab, Load(_prefixes(30), rate=5))


def _stalled(seed: int) -> Lab:
    lab = offering(Lab(seed=seed), Load(sizes(100, 400), clients=4))
    lab.run(20)
    lab.stalled = True
    return lab


def _resume(lab: Lab) -> None:
    lab.stalled = False


def _two(seed: int, first: Load, second: Load, device: Device = FAST, seqs: int = 64) -> Fleet:
    """Two replicas and what each is given; device: the second one's."""
    labs = [Lab(max_num_seqs=seqs, seed=seed), Lab(max_num_seqs=seqs, seed=~seed, device=device)]
    return Fleet(labs, [first, second])


def _repair(fleet: Fleet) -> None:
    fleet.labs[1].device = FAST


def _raise_caps(fleet: Fleet) -> None:
    for lab in fleet.labs:
        lab.set(max_num_seqs=64)


CHAT = sizes(100, 100)
MANY, EACH = Load(CHAT, clients=24), Load(sizes(500, 30), rate=3)
ROUTER = "the router's policy (least loaded, prefix-aware)"
SCALE = "scale out or shed load (--max-num-queued-reqs)"

EXPERIMENTS = (
    Experiment(
        "tiny chunk, long prompts", "3b.long_prompt", ("ttft_p95<100ms",),
        lambda seed: offering(
            Lab(chunk_size=32, max_num_seqs=32, seed=seed), Load(sizes(800, 8), clients=1)
        ),
        lambda lab: lab.set(chunk_size=1024), "chunk_size up",
    ),
    Experiment(
        "sequence cap", "3a.seq_cap", ("ttft_p95<200ms",),
        lambda seed: offering(Lab(max_num_seqs=4, seed=seed), Load(sizes(100, 100), clients=24)),
        lambda lab: lab.set(max_num_seqs=64), "max_num_seqs up",
    ),
    Experiment(
        "KV starvation", "3a.kv", ("ttft_p95<200ms",),
        lambda seed: offering(Lab(kv_blocks=600, seed=seed), Load(sizes(200, 400), clients=24)),
        lambda lab: lab.set(kv_blocks=4096), "gpu_memory_utilization up",
    ),
    Experiment(
        "prefix thrash", "3b.thrash", ("ttft_p95<60ms",), _thrashing,
        lambda lab: lab.set(kv_blocks=4096), "gpu_memory_utilization up", for_s=25, mended_s=75,
    ),
    Experiment(
        "prefill interference", "4.interference", ("itl_p99<30ms",),
        lambda seed: offering(Lab(seed=seed), Load(_chat_with_documents, clients=8)),
        lambda lab: lab.set(chunk_size=128), "chunk_size down",
    ),
    Experiment(
        "prompts beyond the arithmetic", "3a.compute", ("ttft_p95<500ms",),
        lambda seed: offering(Lab(seed=seed), Load(sizes(2000, 4), rate=9)),
        lambda lab: lab.offer(Load(sizes(2000, 4), rate=1.5)),
        SCALE,
    ),
    Experiment(
        "overload at the highest cap", "3a.overload", ("ttft_p95<2s",),
        lambda seed: offering(
            Lab(max_num_seqs=32, max_num_seqs_high=32, device=SLOW, seed=seed),
            Load(sizes(100, 100), rate=8),
        ),
        lambda lab: lab.offer(Load(sizes(100, 100), rate=0.5)),
        SCALE, for_s=120, mended_s=240, thresholds=SOON,
    ),
    Experiment(
        "stall", "1", ("ttft_p95<1s",), _stalled, _resume, for_s=25,
    ),
    Experiment(
        "uneven load", "7.load", ("ttft_p95<200ms",),
        lambda seed: _two(seed, MANY, Load(CHAT, clients=3), seqs=8),
        lambda fleet: fleet.route(Load(CHAT, clients=7), Load(CHAT, clients=7)), ROUTER,
    ),
    Experiment(
        "slow replica", "7.slow", ("ttft_p95<200ms",),
        lambda seed: _two(seed, EACH, EACH, device=SLOW),
        _repair, "the slow replica itself",
    ),
    Experiment(
        "both replicas at their cap", "3a.seq_cap", ("ttft_p95<200ms",),
        lambda seed: _two(seed, MANY, MANY, seqs=8),
        _raise_caps, "max_num_seqs up",
    ),
    Experiment(
        "too little load", NOTHING, ("ttft_p95<200ms", "itl_p99<50ms"),
        lambda seed: offering(Lab(seed=seed), Load(sizes(100, 50), rate=1)),
        lambda lab: None,
    ),
)  # fmt: skip


def watched(lab: Lab | Fleet, experiment: Experiment, for_s: float, history: History) -> Diagnosis:
    """The last of the judgements made every five virtual seconds."""
    slos: SloSet = parse_slos(list(experiment.slos))
    diagnosis = None
    for _ in range(max(1, round(for_s / EVALUATE_S))):
        lab.run(EVALUATE_S)
        diagnosis = lab.judge(slos, history, experiment.thresholds)
    assert diagnosis is not None
    return diagnosis


def first_cause(diagnosis: Diagnosis) -> str:
    return diagnosis.causes[0].key if diagnosis.causes else NOTHING
