"""What held a step back: each reason, its threshold, and which goes first."""

from __future__ import annotations

from typing import Any

import pytest

from engine.scheduler.binding import binding_limit
from engine.scheduler.plan import BindingLimit

CALM: dict[str, Any] = {
    "preempted": False,
    "waiting": True,
    "kv_blocked": False,
    "kv_usage": 0.5,
    "seats_left": 3,
    "tokens_left": 50,
    "chunk_size": 100,
}


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({}, BindingLimit.OTHER),
        ({"waiting": False}, BindingLimit.UNDERLOADED),
        ({"waiting": False, "kv_usage": 0.99, "tokens_left": 0}, BindingLimit.UNDERLOADED),
        ({"waiting": False, "preempted": True}, BindingLimit.KV_PRESSURE),
        ({"kv_usage": 0.95}, BindingLimit.OTHER),
        ({"kv_usage": 0.951}, BindingLimit.KV_PRESSURE),
        ({"kv_blocked": True}, BindingLimit.KV_PRESSURE),
        ({"kv_usage": 0.96, "seats_left": 0}, BindingLimit.KV_PRESSURE),
        ({"seats_left": 0, "tokens_left": 0}, BindingLimit.SEQ_CAP),
        ({"seats_left": -2}, BindingLimit.SEQ_CAP),
        ({"tokens_left": 5}, BindingLimit.TOKEN_BUDGET),
        ({"tokens_left": 6}, BindingLimit.OTHER),
    ],
)
def test_reason(state: dict[str, Any], reason: BindingLimit) -> None:
    assert binding_limit(**{**CALM, **state}) is reason
