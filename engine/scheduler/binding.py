"""What held a step back: the first reason that holds, worst first, judged when it is planned."""

from __future__ import annotations

from engine.scheduler.plan import BindingLimit

KV_PRESSURE_USAGE = 0.95
TOKEN_BUDGET_SHARE = 0.95


def binding_limit(
    *,
    preempted: bool,
    waiting: bool,
    kv_blocked: bool,
    kv_usage: float,
    seats_left: int,
    tokens_left: int,
    chunk_size: int,
) -> BindingLimit:
    """The reason, given the state after admission.

    kv_blocked: the first waiting sequence found no room, however low the usage is. seats_left and
    tokens_left are what remains of max_num_seqs and of the step's chunk_size.
    """
    if preempted or (waiting and (kv_blocked or kv_usage > KV_PRESSURE_USAGE)):
        return BindingLimit.KV_PRESSURE
    if not waiting:
        return BindingLimit.UNDERLOADED
    if seats_left <= 0:
        return BindingLimit.SEQ_CAP
    if chunk_size - tokens_left >= TOKEN_BUDGET_SHARE * chunk_size:
        return BindingLimit.TOKEN_BUDGET
    return BindingLimit.OTHER
