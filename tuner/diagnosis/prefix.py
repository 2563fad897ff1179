"""Leaves of node 3b about shared prefixes: reused at all, and kept for as long as they are asked
for.

Invariant: a hit rate that is low and has been is no proof. Prompts that share nothing look the same
from outside, so only blocks seen to be reused until about when they are evicted make it possible.
"""

from __future__ import annotations

from dataclasses import replace

from tuner.diagnosis import levers
from tuner.diagnosis.context import Case, Check, Frame

_RESIDENCY = ("reuse_gap_p90", "evict_idle_p50")
_TO_TELL = (
    "watch over a change of load or settings (--watch, or a dashboard); try more KV with `tuner "
    "verify --knob`, where a cache that thrashes gains hits; or start vLLM with "
    "--kv-cache-metrics, which tells when blocks are reused and when they are evicted"
)


def cache_off(case: Case) -> Check:
    """3b.cache_off."""
    frame = Frame(
        "3b.cache_off", "Prefixes not reused", "3b", ("prompt_tokens",),
        ("prefix_hits", "prefix_queries"), "", (levers.PREFIX_CACHE,), exact=False,
    )  # fmt: skip
    setting = case.s.config.get("enable_prefix_caching", "").lower()
    if not setting:
        return frame.differs(case, "enable_prefix_caching") or frame.cant_tell(
            case, "whether prefix caching is on is not known", ("enable_prefix_caching",),
            "slotune and vLLM export it, SGLang tells it by --url; else --set "
            "enable_prefix_caching=true, or --settings FILE",
        )  # fmt: skip
    if setting in ("true", "1"):
        rate = case.s.value("hit_rate")
        shown = "no look-up in the window" if rate is None else f"hit rate {rate:.0%}"
        return frame.judge(case, lambda: 0.0, 1.0, says=lambda _: f"prefix caching is on, {shown}")
    check = frame.judge(
        case, lambda: 1.0, 1.0,
        says=lambda _: "prefix caching is off; whether prompts share prefixes cannot be seen then",
    )  # fmt: skip
    return replace(check, guess=True)


def thrash(case: Case) -> Check:
    """3b.thrash, by the fall of the hit rate; where no better times were seen, see _not_seen."""
    frame = Frame("3b.thrash", "Prefix cache thrashes", "3b", ("kv_usage", "hit_rate"),
                  ("hit_rate_before", "kv_blocks", "prefix_written"), "fall of the hit rate",
                  (levers.MORE_KV, levers.PREFIX_ROUTING), exact=False)  # fmt: skip
    if (unread := frame.unread(case)) is not None:
        return unread
    now, before = case.s.value("hit_rate") or 0.0, case.hit_rate_before()
    fall, least = 1.0 - now / before if before else 0.0, 1.0 - case.t("hit_rate_fall")
    filled, said = _filled(case)
    full = filled >= case.t("kv_free_enough")
    was = "" if before is None else f", {before:.0%} before"
    may_be_worse = fall < least and now < case.t("hit_rate_fall") and case.best_hit_rate is None
    if full and may_be_worse:
        return _not_seen(case, frame, f"hit rate {now:.0%}{was}; {said}")
    check = frame.judge(
        case, lambda: fall, least, when=full, says=lambda _: f"hit rate {now:.0%}{was}; {said}"
    )
    return replace(check, by_past=True)


def _not_seen(case: Case, frame: Frame, said: str) -> Check:
    """A full cache with a low hit rate that has not fallen while it was watched.

    Blocks are evicted in the order of their last use. Where the gaps between two uses reach to the
    time after which an unused block is evicted, others of them lie beyond and cost a new prefill.
    """
    gap, idle = (case.s[name] for name in _RESIDENCY)
    seen = min(gap.samples, idle.samples) if gap.value is not None and idle.value else 0
    ratio = (gap.value or 0.0) / idle.value if idle.value else 0.0
    if seen < case.t("likely_requests") or ratio < case.t("reuse_at_eviction"):
        known = seen >= case.t("likely_requests")
        absent = [case.s[name].query or name for name in _RESIDENCY if not case.s[name].ok]
        why = f"; blocks are reused within {ratio:.0%} of the time until eviction" if known else ""
        also = "; better times were not seen, and prompts that share nothing look the same"
        return frame.cant_tell(case, f"{said}{why}{also}", ("hit_rate_before", *absent), _TO_TELL)
    by_age = replace(frame, uses=_RESIDENCY, also=frame.uses, unit="reuse gap / idle at eviction")
    check = by_age.judge(
        case, lambda: ratio, case.t("reuse_at_eviction"),
        says=lambda _: f"{said}; nine of ten reuses come within {gap.value:.3g} s, and what is "
        f"unused for {idle.value:.3g} s is evicted",
    )  # fmt: skip
    return replace(check, guess=True)


def _filled(case: Case) -> tuple[float, str]:
    """(share of the KV blocks that hold requests or prefixes, the same in words).

    Where the engine does not tell cached blocks from free ones: blocks are taken in the order they
    were freed, so that prompts written as large as the whole pool leave none that holds nothing.
    """
    held = "of the KV blocks hold requests or prefixes"
    blocks = case.s.of("kv_blocks")
    if total := sum(blocks.values()):
        share = 1.0 - blocks.get("free", 0.0) / total
        return share, f"{share:.0%} {held}"
    used, pool, written = case.kv_usage(), case.pools_tokens(), case.s.value("prefix_written")
    if not pool or written is None or written / pool <= used:
        return used, f"{used:.0%} {held}"
    return min(1.0, written / pool), f"prompts wrote {written / pool:.1f} × the KV pool"
