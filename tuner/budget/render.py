"""Error budgets as text of at most 100 columns, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tuner.budget.burn import WINDOW_S, BurnWindow
from tuner.budget.live import LEAST_WATCHED_S, Budget, Budgets, Burn, Burning, Seen, Share
from tuner.diagnosis.render import wrapped

SEEN_WORDS = {
    Seen.NO_TRAFFIC: "no traffic",
    Seen.NO_DATA: "no data",
    Seen.SHORT: "not watched long enough",
    Seen.STALE: "stale",
    Seen.UNREACHABLE: "unreachable",
}


def render(budgets: Budgets) -> str:
    lines = ["Error budgets (all models and replicas together)"]
    if budgets.fault:
        lines += wrapped(f"cannot be told: {budgets.fault}", 2)
    for budget in budgets.found:
        lines += _lines(budget)
    for text, why in budgets.left_out.items():
        lines += wrapped(f"{text} has none: {why}", 2)
    return "\n".join(lines)


def _lines(budget: Budget) -> Iterator[str]:
    sli = budget.sli
    may = f"{sli.budget * 100:.6g} % of {sli.events} may be bad"
    yield from wrapped(f"{sli.clause.text}: {may}; {sli.bad_is}", 2)
    yield from wrapped(_overall(budget), 4)
    for burn in budget.burns:
        yield from wrapped(f"{title(burn.window)}: {said(burn)}", 4)


def title(window: BurnWindow) -> str:
    """`14.4× over 1 h and 5 min`."""
    long, short = (span(WINDOW_S[name]) for name in (window.long, window.short))
    return f"{window.factor:g}× over {long} and {short}"


def watched(share: Share) -> str:
    """`30 d`, or `5 h watched of 30 d`."""
    part, whole = span(share.watched_s), span(share.window_s)
    return part if share.watched_s >= share.window_s else f"{part} watched of {whole}"


def _overall(budget: Budget) -> str:
    share = budget.over
    if share.value is None:
        return f"attained: {absent(share)}"
    within = "" if budget.interval is None else f" [{', '.join(_ends(budget))}]"
    return (
        f"attained {percent(1 - share.value, budget)}{within} of {share.events:,.0f} "
        f"{budget.sli.events} over {watched(share)}; {share.bad:,.0f} bad where "
        f"{budget.allowed:,.0f} may be: {left(budget)}"
    )


def percent(attained: float, budget: Budget) -> str:
    """A share of good events, in digits in which the budget shows."""
    digits = max(1, 1 - math.floor(math.log10(budget.sli.budget * 100)))
    return f"{100 * attained:.{digits}f} %"


def _ends(budget: Budget) -> list[str]:
    return [percent(1 - end, budget) for end in reversed(budget.interval or ())]


def attained_interval(budget: Budget) -> str:
    """`95 % interval 52.1 % to 57.4 %`; "" where there is none."""
    return f"95 % interval {' to '.join(_ends(budget))}" if budget.interval else ""


def left(budget: Budget) -> str:
    """What remains, and of what: of a window that was watched in part, of that part."""
    month, watched = span(budget.over.window_s), span(budget.over.watched_s)
    if budget.left is None:
        least = span(LEAST_WATCHED_S)
        return f"too short to tell what is left of the budget of {month} (from {least} on)"
    what = f"the budget of {month}" if budget.whole else f"what {watched} allow"
    if budget.left < 0:
        times = f"{budget.over.bad / budget.allowed:.3g} times {what}"
        return times if budget.whole else f"{times}, not of the budget of {month}"
    return f"{100 * budget.left:.3g} % of {what} left"


def said(burn: Burn) -> str:
    """`page: burns 20× and 31× (n=4,000 and 400)`."""
    if burn.state is Burning.UNKNOWN:
        return absent(burn.long if burn.long.value is None else burn.short)
    rates = " and ".join(
        SEEN_WORDS[share.seen] if (rate := burn.rate(share)) is None else f"{rate:.3g}×"
        for share in (burn.long, burn.short)
    )
    counts = " and ".join(f"{share.events:,.0f}" for share in (burn.long, burn.short))
    word = {
        Burning.FIRES: burn.window.severity,
        Burning.CALM: "no alert",
        Burning.FEW: f"fewer than {burn.least} events",
    }[burn.state]
    return f"{word}: burns {rates} (n={counts})"


def absent(share: Share) -> str:
    """Why there is no share."""
    if share.seen is Seen.SHORT:
        return f"watched {span(share.watched_s)} of {span(share.window_s)}"
    reason = f": {share.reason}" if share.reason else ""
    return f"{SEEN_WORDS[share.seen]}{reason}"


def span(seconds: float) -> str:
    """`5 min`, `6 h`, `2.5 d`."""
    for unit_s, unit in ((86_400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= unit_s:
            return f"{seconds / unit_s:.3g} {unit}"
    return f"{seconds:.3g} s"


def as_dict(budgets: Budgets) -> dict[str, Any]:
    """For --json; a share that is not known has the value null and says why."""
    return {
        "fault": budgets.fault,
        "left_out": dict(budgets.left_out),
        "budgets": [
            {
                "slo": budget.sli.clause.text,
                "budget": budget.sli.budget,
                "counted": budget.sli.bad_is,
                "over": _share(budget.over)
                | {"interval": budget.interval, "allowed": _allowed(budget)},
                "left": budget.left,
                "burns": [_burn(burn) for burn in budget.burns],
            }
            for budget in budgets.found
        ],
    }


def _allowed(budget: Budget) -> float | None:
    return None if budget.over.value is None else budget.allowed


def _burn(burn: Burn) -> dict[str, Any]:
    return {
        "factor": burn.window.factor,
        "severity": burn.window.severity,
        "state": burn.state.value,
        "least_events": burn.least,
        "long": _share(burn.long) | {"rate": burn.rate(burn.long)},
        "short": _share(burn.short) | {"rate": burn.rate(burn.short)},
    }


def _share(share: Share) -> dict[str, Any]:
    known = share.value is not None
    return {
        "seen": share.seen.value,
        "window_s": share.window_s,
        "watched_s": share.watched_s,
        "bad_share": share.value,
        "bad": share.bad if known else None,
        "events": share.events if known else None,
        "reason": share.reason,
    }
