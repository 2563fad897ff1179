"""Small HTML pieces: tiles, status pills, tables. Pure strings, everything from outside escaped.

Classes are those of style.css; colours come only from there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from dashboard.format import Shown

_CODE = re.compile("`([^`]+)`")

__all__ = [
    "definition",
    "escape",
    "message",
    "pill",
    "sentence",
    "shown",
    "stacked_bar",
    "table",
    "tile",
]


def shown(figure: Shown) -> str:
    unit = f'<span class="unit">{escape(figure.unit)}</span>' if figure.unit else ""
    return f'<span class="fig {figure.kind}">{escape(figure.text)}{unit}</span>'


def tile(label: str, figure: Shown, note: str, title: str = "", extra: str = "") -> str:
    """A labelled figure with its provenance below; title is the query, shown on hover."""
    return (
        f'<div class="tile {figure.kind}" title="{escape(title)}">'
        f'<div class="label">{escape(label)}</div><div class="number">{shown(figure)}{extra}</div>'
        f'<div class="note">{escape(note)}</div></div>'
    )


def tiles(items: Iterable[str]) -> str:
    return f'<div class="tiles">{"".join(items)}</div>'


def pill(text: str, tone: str) -> str:
    """tone: good | warn | bad | neutral | info."""
    return f'<span class="pill {tone}">{escape(text)}</span>'


def definition(pairs: Iterable[tuple[str, str]]) -> str:
    """A line of `name value` pairs; values are HTML already."""
    cells = "".join(f'<span class="pair"><b>{escape(k)}</b>{v}</span>' for k, v in pairs)
    return f'<div class="defs">{cells}</div>'


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, numeric: Iterable[int] = ()
) -> str:
    """Cells are HTML already; columns in `numeric` are set right-aligned."""
    right = set(numeric)

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=num' if index in right else ''}>{cell}</{tag}>"
            for index, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    header = cells("th", [escape(name) for name in head])
    return (
        f'<div class="scroll"><table class="grid"><thead><tr>{header}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def stacked_bar(shares: Sequence[tuple[str, float]], tones: dict[str, str]) -> str:
    """Shares (name, 0..1) as one bar with a legend that carries the percentages."""
    parts = "".join(
        f'<i class="seg {tones.get(name, "neutral")}" style="width:{share * 100:.2f}%" '
        f'title="{escape(name)} {share:.1%}"></i>'
        for name, share in shares
    )
    legend = "".join(
        f'<span><i class="dot {tones.get(name, "neutral")}"></i>{escape(name)} '
        f"<b>{share * 100:.1f} %</b></span>"
        for name, share in shares
    )
    return f'<div class="bar">{parts}</div><div class="legend">{legend}</div>'


def message(title: str, text: str, tone: str = "neutral") -> str:
    """Words of the text between backticks are set as code."""
    body = _CODE.sub(r'<span class="mono">\1</span>', escape(text))
    return f'<div class="message {tone}"><b>{escape(title)}</b><span>{body}</span></div>'


def sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def heading(title: str, note: str = "") -> str:
    return f'<div class="section"><h2>{escape(title)}</h2><span>{escape(note)}</span></div>'
