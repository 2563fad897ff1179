"""The overview's error budgets: what is left, and how fast each pair of windows burns it.

The tuner's own figures (`tuner diagnose --burn` prints the same); the page only lays them out.
"""

from __future__ import annotations

import re
import time

import streamlit as st

from dashboard import markup
from dashboard.budget_watch import BudgetWatch
from dashboard.format import number
from tuner.budget.burn import BURN_WINDOWS
from tuner.budget.live import BUDGET_WINDOW_S, Budget, Burn, Burning, Seen, Share
from tuner.budget.render import SEEN_WORDS, absent, attained_interval, percent, span, title, watched

SEEN_TONES = {Seen.STALE: "warn", Seen.UNREACHABLE: "bad", Seen.SHORT: "info"}
SEVERITY_TONES = {"page": "bad", "ticket": "warn"}


def draw(watch: BudgetWatch) -> None:
    look = watch.latest()
    budgets = look.budgets
    at = time.strftime("%H:%M:%S UTC", time.gmtime(look.at_s))
    note = (
        f"burn 1×: used up in exactly {span(BUDGET_WINDOW_S)}; an alert fires where both "
        f"windows burn faster than its factor; all models and replicas together; at {at}"
    )
    blocks = [markup.heading("Error budgets", note)]
    if budgets.fault:
        blocks.append(markup.message("No error budget can be told", budgets.fault))
    if budgets.found:
        head = ["SLO", "attained", "budget left", *(title(window) for window in BURN_WINDOWS)]
        blocks.append(markup.table(head, [_row(budget) for budget in budgets.found]))
    left_out = "; ".join(f"{text}: {why}" for text, why in budgets.left_out.items())
    if left_out:
        blocks.append(f'<div class="sub">Without an error budget: {markup.escape(left_out)}.</div>')
    st.html('<div class="stack">' + "".join(blocks) + "</div>")


def _row(budget: Budget) -> list[str]:
    sli = budget.sli
    slo = (
        f"<b>{markup.escape(sli.clause.text)}</b>"
        f'<div class="sub">{number(sli.budget * 100)} % may be bad; '
        f"{markup.escape(sli.bad_is)}</div>"
    )
    return [slo, _attained(budget), _left(budget), *(_burn(burn) for burn in budget.burns)]


def _attained(budget: Budget) -> str:
    share = budget.over
    if share.value is None:
        return _absent(share)
    counted = f"n={_count(share.events)} {budget.sli.events}"
    told = [counted, watched(share), attained_interval(budget)]
    lines = "<br>".join(_unbroken(line) for line in told if line)
    return f'{percent(1 - share.value, budget)}<div class="sub">{lines}</div>'


def _left(budget: Budget) -> str:
    if budget.over.value is None:
        return _absent(budget.over)
    watched, month = span(budget.over.watched_s), span(budget.over.window_s)
    bad = f"{_count(budget.over.bad)} bad of {_count(budget.allowed)} allowed"
    if not budget.whole:
        bad += f" in {watched}, not in {month}"
    if budget.left is None:
        left = markup.pill("too short to tell", "neutral")
    else:
        over = "" if budget.left >= 0 else f"<br>{markup.pill('overspent', 'bad')}"
        left = f"{number(budget.left * 100)} %{over}"
    return f'{left}<div class="sub">{_unbroken(bad)}</div>'


def _burn(burn: Burn) -> str:
    if burn.state is Burning.UNKNOWN:
        return _absent(burn.long if burn.long.value is None else burn.short)
    pill = {
        Burning.FIRES: markup.pill(burn.window.severity, SEVERITY_TONES[burn.window.severity]),
        Burning.CALM: markup.pill("no alert", "good"),
        Burning.FEW: markup.pill("too few events", "neutral"),
    }[burn.state]
    rates = " · ".join(_rate(burn, share) for share in (burn.long, burn.short))
    least = f" of at least {burn.least}" if burn.state is Burning.FEW else ""
    counts = " · ".join(_count(share.events) for share in (burn.long, burn.short))
    return f'{pill} <span class="nowrap">{rates}</span><div class="sub">n={counts}{least}</div>'


def _rate(burn: Burn, share: Share) -> str:
    rate = burn.rate(share)
    return SEEN_WORDS[share.seen] if rate is None else f"{number(rate)}×"


def _absent(share: Share) -> str:
    tone = SEEN_TONES.get(share.seen, "neutral")
    if share.seen is Seen.SHORT:
        return markup.pill(absent(share), tone)
    reason = f'<div class="sub">{markup.escape(share.reason)}</div>' if share.reason else ""
    return markup.pill(SEEN_WORDS[share.seen], tone) + reason


def _unbroken(text: str) -> str:
    """A number stays on the line of its unit."""
    return re.sub(r"(?<=\d) (?=[a-z%])", "\N{NO-BREAK SPACE}", text)


def _count(events: float) -> str:
    """Increases are extrapolated to the window's edges, hence parts of an event."""
    return number(round(events) if events >= 10 else round(events, 1))
