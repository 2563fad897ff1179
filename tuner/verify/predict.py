"""What a turn of a knob should give, from signals measured before it, and on what ground.

A prediction is a range of the ratio after / before: what arithmetic allows, from nothing gained to
all of it. Invariant: without the signals it rests on there is no prediction, and the reason says
which; never a guess from experience.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from engine.knobs import REPLACING
from tuner.diagnosis import Signals
from tuner.units import count_text
from tuner.verify.proposal import Proposal

KV_USABLE = 0.95
"""Share of the KV blocks up to which requests are admitted without preemption in sight."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """low ≤ after / before ≤ high of the proposal's figure."""

    low: float
    high: float
    ground: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


POOL_SIZES = ("gpu_memory_utilization", *REPLACING)
"""What the size of the KV pool follows from."""


class _MissingError(Exception):
    """A signal that a prediction rests on was not measured."""


@dataclass(frozen=True, slots=True)
class _Read:
    """Signals that must be there."""

    signals: Signals

    def __call__(self, *names: str) -> float:
        """The first of the signals that has a value."""
        for name in names:
            if (value := self.signals.value(name)) is not None:
                return value
        raise _MissingError(f"{names[0]} was not measured")


Model = Callable[[Proposal, _Read], Prediction | str]


def predict(proposal: Proposal, signals: Signals | None) -> Prediction | str:
    """The prediction, or why there is none."""
    if signals is None:
        return "the server exports no metrics to predict from"
    kind = "rate" if proposal.objective.higher_is_better else proposal.objective.key.split("_")[0]
    model = _MODELS.get((proposal.knob, proposal.direction, kind))
    if model is None:
        return (
            f"nothing says by how much {proposal.knob} {proposal.direction} moves "
            f"{proposal.objective.key}"
        )
    try:
        return model(proposal, _Read(signals))
    except _MissingError as missing:
        return str(missing)


def _more_at_once(proposal: Proposal, read: _Read) -> tuple[float, float, float, str]:
    """(running, waiting, at once then, in words) when the cap or the KV allows more sequences."""
    running, waiting = read("running_mean", "running"), read("waiting_mean", "waiting")
    kv = read("kv_usage_mean", "kv_usage")
    if running <= 0:
        raise _MissingError("nothing ran while it was measured, so that nothing")
    old, new = float(proposal.before[proposal.knob]), float(proposal.after[proposal.knob])
    if proposal.knob == "max_num_seqs":
        room = running * KV_USABLE / kv if kv > 0 else math.inf
        cap = new
    else:
        room = running * new / old
        told = proposal.before.get("max_num_seqs")
        cap = float(told) if isinstance(told, int | float) else math.inf
    at_once = max(running, min(running + waiting, room, cap))
    words = (
        f"{running:.1f} run and {waiting:.1f} wait with {kv:.0%} of the KV used: "
        f"{at_once:.1f} could run at once"
    )
    return running, waiting, at_once, words


def _throughput_of_more(proposal: Proposal, read: _Read) -> Prediction | str:
    running, _, at_once, told = _more_at_once(proposal, read)
    high = at_once / running
    return Prediction(
        1.0, high,
        f"{told}; × {high:.3g} if a step takes no longer, × 1 if it grows with its sequences",
    )  # fmt: skip


def _ttft_of_more(proposal: Proposal, read: _Read) -> Prediction | str:
    running, waiting, at_once, told = _more_at_once(proposal, read)
    queue, prefill = read("queue"), read("prefill")
    total = queue + prefill
    if total <= 0 or waiting <= 0:
        return "no request waited, so that a shorter queue gains nothing"
    left = max(0.0, waiting - (at_once - running)) / waiting
    fastest = (queue * left * running / at_once + prefill) / total
    return Prediction(
        fastest, 1.0,
        f"{told}; the queue, {queue / total:.0%} of mean TTFT, would shrink to {left:.0%}, if "
        "prefill takes no longer",
    )  # fmt: skip


def _latency_of_fewer(proposal: Proposal, read: _Read) -> Prediction | str:
    running = read("running_mean", "running")
    cap = float(proposal.after[proposal.knob])
    if running <= cap:
        return f"{running:.1f} ran at once, no more than the new limit allows"
    return Prediction(
        cap / running, 1.0,
        f"a step holds {cap:g} sequences instead of {running:.1f}: as much shorter where it grows "
        "with its sequences, no shorter where it does not",
    )  # fmt: skip


def _gaps_of_smaller_chunks(proposal: Proposal, read: _Read) -> Prediction | str:
    """Steps with prefill in them make the long gaps, decode-only steps the short ones."""
    short, long = read("itl_p50"), read("itl_p99")
    prompt, running = read("prompt_tokens"), read("running_mean", "running")
    old, new = float(proposal.before["chunk_size"]), float(proposal.after["chunk_size"])
    filled = min(old, max(prompt, read("step_tokens_p90") - running))
    if filled <= new:
        return f"steps hold about {filled:.0f} prefill tokens, fewer than the new chunk"
    if long <= short:
        return "the long gaps are no longer than the short ones"
    best = (short + (long - short) * new / filled) / long
    return Prediction(
        best, 1.0,
        f"gaps are {short * 1e3:.3g} ms without and {long * 1e3:.3g} ms with prefill of about "
        f"{filled:.0f} tokens in the step; {new:.0f} tokens take their share of the difference",
    )  # fmt: skip


def _ttft_of_larger_chunks(proposal: Proposal, read: _Read) -> Prediction | str:
    queue, prefill, prompt = read("queue"), read("prefill"), read("prompt_tokens")
    old, new = float(proposal.before["chunk_size"]), float(proposal.after["chunk_size"])
    steps, then = math.ceil(prompt / old), math.ceil(prompt / new)
    if then >= steps or queue + prefill <= 0:
        return f"a mean prompt of {prompt:.0f} tokens takes {count_text(then, 'step')} either way"
    best = (queue + prefill * then / steps) / (queue + prefill)
    return Prediction(
        best, 1.0,
        f"a mean prompt of {prompt:.0f} tokens takes {count_text(then, 'step')} instead of "
        f"{steps}; prefill is "
        f"{prefill / (queue + prefill):.0%} of queue + prefill",
    )  # fmt: skip


_MODELS: dict[tuple[str, str, str], Model] = {
    ("max_num_seqs", "up", "rate"): _throughput_of_more,
    ("max_num_seqs", "up", "ttft"): _ttft_of_more,
    ("max_num_seqs", "down", "itl"): _latency_of_fewer,
    ("max_num_seqs", "down", "tpot"): _latency_of_fewer,
    **{(pool, "up", "rate"): _throughput_of_more for pool in POOL_SIZES},
    **{(pool, "up", "ttft"): _ttft_of_more for pool in POOL_SIZES},
    ("chunk_size", "down", "itl"): _gaps_of_smaller_chunks,
    ("chunk_size", "up", "ttft"): _ttft_of_larger_chunks,
}
"""By knob, direction and what decides."""


def kept(prediction: Prediction, low: float, high: float) -> str:
    """How an interval of the realised ratio stands to a prediction: as predicted, below, above."""
    if high < prediction.low:
        return "below"
    if low > prediction.high:
        return "above"
    return "as predicted"
