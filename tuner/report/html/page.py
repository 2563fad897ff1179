"""The frame of a page and the pieces both pages are made of.

Invariant: whatever a server, a file or a user has written reaches the page escaped, and the page
asks nothing of the network: a policy in its head forbids it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from html import escape
from importlib.metadata import version
from pathlib import Path

from tuner.report import words
from tuner.stats.estimate import Estimate
from tuner.units import show

_STYLE = Path(__file__).with_name("style.css")
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
MARKS = words.MARKS | {"improved": "▲", "worse": "▼"}
_WORDS = {**words.OUTCOMES, **words.VERDICTS}


def document(title: str, body: Iterable[str]) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{escape(title)}</title><style>{_STYLE.read_text()}</style></head>"
        f"<body><main>{''.join(body)}{_footer()}</main></body></html>\n"
    )


def head(title: str, lines: Sequence[str], right: str = "") -> str:
    """lines: plain text under the title; right: markup."""
    subs = "".join(f'<p class="sub">{escape(line)}</p>' for line in lines if line)
    return (
        f'<header><div><div class="brand">slotune</div><h1>{escape(title)}</h1>{subs}</div>'
        f"<div>{right}</div></header>"
    )


def section(title: str, body: str, lead: str = "") -> str:
    """A section; nothing at all where its body is empty."""
    if not body:
        return ""
    told = f'<p class="lead">{escape(lead)}</p>' if lead else ""
    return f"<section><h2>{escape(title)}</h2>{told}{body}</section>"


def panel(body: str, title: str = "", line: str = "") -> str:
    """title and line are plain text above the body."""
    heading = f"<h3>{escape(title)}</h3>" if title else ""
    told = f'<div class="dim">{escape(line)}</div>' if line else ""
    return f'<div class="panel">{heading}{told}{body}</div>'


def stacked(parts: Sequence[str]) -> str:
    """Parts one below the other; nothing at all where there is none."""
    return f'<div class="stack">{"".join(parts)}</div>' if parts else ""


def in_twos(parts: Sequence[str]) -> str:
    """Parts side by side; nothing at all where there is none."""
    return f'<div class="grid2">{"".join(parts)}</div>' if parts else ""


def pill(state: str, text: str = "", *, big: bool = False) -> str:
    shown = text or f"{MARKS.get(state, '')} {_WORDS.get(state, state)}".strip()
    size = " big" if big else ""
    return f'<span class="pill {escape(state, quote=True)}{size}">{escape(shown)}</span>'


def callout(kind: str, texts: Sequence[str]) -> str:
    """kind: bad or warn."""
    if not texts:
        return ""
    lines = "".join(f"<p>{escape(text)}</p>" for text in texts)
    return f'<div class="callout {kind}">{lines}</div>'


def table(header: Sequence[str], rows: Sequence[Sequence[str]], looks: Sequence[str]) -> str:
    """Cells are markup already; header is plain text. looks: a class for each column."""
    if not rows:
        return ""
    head_cells = "".join(
        f'<th class="{look}">{escape(cell)}</th>' for cell, look in zip(header, looks, strict=True)
    )
    lines = "".join(
        "<tr>"
        + "".join(f'<td class="{look}">{cell}</td>' for cell, look in zip(row, looks, strict=True))
        + "</tr>"
        for row in rows
    )
    top = f"<thead><tr>{head_cells}</tr></thead>" if any(header) else ""
    return f"<table>{top}<tbody>{lines}</tbody></table>"


def facts(pairs: Sequence[tuple[str, object]]) -> str:
    """Name and value, those that have one."""
    rows = [[escape(name), escape(str(value))] for name, value in pairs if value not in (None, "")]
    return table(("", ""), rows, ("fact", "wrap"))


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """(colour class, text)."""
    items = "".join(
        f'<span class="{look}"><i></i><b>{escape(text)}</b></span>' for look, text in entries
    )
    return f'<div class="key-line">{items}</div>'


def range_text(estimate: Estimate) -> str:
    if not estimate.measured:
        return ""
    return f"{show(estimate.low, estimate.unit)} … {show(estimate.high, estimate.unit)}"


def when(unix_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(unix_s)) if unix_s > 0 else ""


def _footer() -> str:
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    texts = (
        "Latencies start at the scheduled send; percentiles are observed values (inverted "
        "empirical CDF). A failed request has infinite latency. "
        "Throughput counts tokens of good requests at their arrival.",
        "Curves of more than 400 values, and dots of more than 1,200 requests, are thinned for "
        "drawing; the slowest are always kept, and every figure is computed from all requests.",
        f"slotune {version('slotune')} · page made {made}",
    )
    return "<footer>" + "".join(f"<p>{escape(text)}</p>" for text in texts) + "</footer>"
