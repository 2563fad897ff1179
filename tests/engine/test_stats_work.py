"""FLOPs and bytes of a step, counted by hand for small shapes."""

from __future__ import annotations

import pytest

from engine.sampling_params import SamplingParams
from engine.scheduler.plan import BindingLimit, ScheduledSeq, StepPlan
from engine.stats_work import ModelCosts

COSTS = ModelCosts.of(
    num_layer_parameters=1000, hidden_size=8, vocab_size=50, num_layers=2, num_heads=4,
    head_dim=2, element_bytes=2, kv_bytes_per_token=32,
)  # fmt: skip


def share(before: int, count: int, *, outputs: int = 0, sample: bool = True) -> ScheduledSeq:
    return ScheduledSeq(
        0, before, (1,) * count, (0,), sample, SamplingParams(), num_output_tokens=outputs
    )


def plan(*shares: ScheduledSeq) -> StepPlan:
    return StepPlan(shares, sum(len(s.token_ids) for s in shares), BindingLimit.OTHER)


def test_a_decode_step_reads_weights_once_and_every_context() -> None:
    work = COSTS.of_step(plan(share(9, 1, outputs=1), share(19, 1, outputs=5)))
    assert work.kind == "decode"
    assert work.flops == 2 * 2 * 1000 + 2 * 2 * 8 * 50 + (10 + 20) * 4 * 2 * 4 * 2
    assert work.read_bytes == (1000 + 400) * 2 + (10 + 20) * 32
    assert work.write_bytes == 2 * 32


def test_a_prompt_attends_to_itself_causally() -> None:
    work = COSTS.of_step(plan(share(4, 3, sample=False)))
    assert work.kind == "prefill"
    assert work.flops == 3 * 2 * 1000 + (5 + 6 + 7) * 4 * 2 * 4 * 2
    assert work.write_bytes == 3 * 32


@pytest.mark.parametrize(
    ("shares", "kind"),
    [
        ((share(9, 1, outputs=1), share(0, 5)), "mixed"),
        ((share(9, 1),), "prefill"),  # a prompt's last token, not a decode
    ],
)
def test_kinds(shares: tuple[ScheduledSeq, ...], kind: str) -> None:
    assert COSTS.of_step(plan(*shares)).kind == kind
