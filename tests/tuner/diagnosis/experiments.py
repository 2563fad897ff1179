"""Provoked experiments: a planted cause, the node that must name it first, and what mends it.

`plant` builds a lab and offers its load for some virtual seconds; `mend` turns the proposed knob
live, or does what the lever says where no knob can. Sizes vary with the seed, causes do not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
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
    """node: the first cause's key, or NOTHING of a healthy run, of which node 5 `says` how it is.
    lever: title of one it must propose."""

    name: str
    node: str
    slos: tuple[str, ...]
    plant: Callable[[int], Lab | Fleet]
    mend: Callable[[Any], None]
    lever: str = ""
    for_s: float = 30.0
    mended_s: float = 50.0
    thresholds: Thresholds = DEFAULT
    says: str = ""


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


def _lines_and_documents(r: random.Random) -> Request:
    """A client that sends a line, and every sixth time a document."""
    return Request(around(r, 4000 if r.random() < 1 / 6 else 20), around(r, 20))


def _burst(seed: int) -> Lab:
    """Under little load 96 requests at once, of which a third runs and the rest waits."""
    lab = offering(Lab(max_num_seqs=32, seed=seed), Load(CHAT, rate=1))
    lab.run(20)
    lab.offer(Load(CHAT, clients=96))
    lab.run(0.2)
    return offering(lab, Load(CHAT, rate=1))


def _more_api_processes(lab: Lab) -> None:
    lab.front_end_s = 0.005


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
        "long prompts among short ones", "3c", ("ttft_p95<100ms",),
        lambda seed: offering(Lab(seed=seed), Load(_lines_and_documents, clients=1)),
        lambda lab: lab.offer(Load(sizes(20, 20), clients=1)),
        "a separate pool or a per-step cap for long prompts",
    ),
    Experiment(
        "busy front end", "3d", ("ttft_p95<100ms",),
        lambda seed: offering(Lab(front_end_s=0.15, seed=seed), Load(sizes(100, 20), rate=5)),
        _more_api_processes, "API processes and tokenizer (more CPU, --api-server-count)",
    ),
    Experiment(
        "too little load", NOTHING, ("ttft_p95<200ms", "itl_p99<50ms"),
        lambda seed: offering(Lab(seed=seed), Load(sizes(100, 50), rate=1)),
        lambda lab: None, says="load-limited: not a server problem",
    ),
    Experiment(
        "busy within its SLOs", NOTHING, ("ttft_p95<500ms", "itl_p99<100ms"),
        lambda seed: offering(Lab(seed=seed), Load(CHAT, clients=40)),
        lambda lab: None, says="compute-bound",
    ),
    Experiment(
        "a burst that drains", NOTHING, ("ttft_p95<4s",), _burst,
        lambda lab: None, says="load-limited: not a server problem",
    ),
)  # fmt: skip


def looks(
    lab: Lab | Fleet, experiment: Experiment, for_s: float, history: History
) -> Iterator[Diagnosis]:
    """The judgements made every five virtual seconds."""
    slos: SloSet = parse_slos(list(experiment.slos))
    for _ in range(max(1, round(for_s / EVALUATE_S))):
        lab.run(EVALUATE_S)
        yield lab.judge(slos, history, experiment.thresholds)


def watched(lab: Lab | Fleet, experiment: Experiment, for_s: float, history: History) -> Diagnosis:
    """The last of them."""
    return list(looks(lab, experiment, for_s, history))[-1]


def named_in(lab: Lab | Fleet, experiment: Experiment, history: History) -> str:
    """What is named first once the cause has been there for a while; of a healthy run, what is
    named at any look."""
    found = [first_cause(seen) for seen in looks(lab, experiment, experiment.for_s, history)]
    if experiment.node != NOTHING:
        return found[-1]
    return next((cause for cause in found if cause != NOTHING), NOTHING)


def first_cause(diagnosis: Diagnosis) -> str:
    return diagnosis.causes[0].key if diagnosis.causes else NOTHING
