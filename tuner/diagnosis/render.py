"""The tree as text, at most 100 columns; colours only where the caller says so."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator

from tuner.diagnosis.model import Diagnosis, Lever, NodeResult, State
from tuner.diagnosis.proof import proof
from tuner.printable import shown

WIDTH = 100
URL_TO_GIVE = "http://HOST:PORT"
ON_WATCH, ON_WATCH_COLOUR = "on watch", "33"
_COLOURS = {
    State.CRITICAL: "1;31",
    State.WARNING: "33",
    State.OK: "32",
    State.CANT_TELL: "36",
    State.NOT_APPLICABLE: "2",
}


def render(
    diagnosis: Diagnosis, *, colour: bool = False, verbose: bool = False, url: str = ""
) -> str:
    """verbose adds queries and evidence of every node, and the nodes that nothing can be said of
    because there is no traffic; levers are shown for causes always. url: the server's own, where
    it is known: the target may be a Prometheus."""
    lines = list(_head(diagnosis))
    idle = diagnosis.traffic == "no_traffic" and not verbose
    for node in diagnosis.nodes:
        if idle and node.state is State.NOT_APPLICABLE:
            continue
        lines += _node(node, diagnosis, colour, verbose, url or URL_TO_GIVE)
    return "\n".join(lines)


def _head(diagnosis: Diagnosis) -> Iterator[str]:
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(diagnosis.at_s))
    target = diagnosis.target or "target"
    yield f"{shown(target)} ({diagnosis.dialect}), {diagnosis.window_s:.3g} s window, {at}"
    yield from textwrap.wrap(shown(diagnosis.headline), WIDTH)
    if diagnosis.traffic == "no_traffic":
        yield "Ask again while requests run, for example beside `tuner bench URL` in another shell."
    yield from diagnosis.unjudged
    yield ""


def _node(
    node: NodeResult, diagnosis: Diagnosis, colour: bool, verbose: bool, url: str
) -> Iterator[str]:
    depth = _depth(node, diagnosis)
    indent = "  " * depth
    state = ON_WATCH if node.on_watch else node.state.word
    painting = ON_WATCH_COLOUR if node.on_watch else _COLOURS[node.state]
    label = f"{indent}{node.key.split('.')[0] if depth == 0 else '·'} {node.title}"
    tail = _tail(node)
    text = f"{node.summary}{tail}"
    left = f"{label[:34]:<34} {state:<10} "
    beside = textwrap.wrap(shown(text), WIDTH - len(left)) or [""]
    painted = f"\x1b[{painting}m{state:<10}\x1b[0m" if colour else f"{state:<10}"
    yield f"{label[:34]:<34} {painted} {beside[0]}".rstrip()
    for more in beside[1:]:
        yield " " * len(left) + more
    if node.how_to_get:
        yield from wrapped("to know: " + node.how_to_get, len(left))
    if node.evidence and (verbose or node.firing or depth == 0):
        yield from wrapped(", ".join(f"{k} {v}" for k, v in node.evidence), len(left))
    if node.firing and not node.symptom_of:
        yield from _levers(node, len(indent) + 4)
        command, flags = proof(node, diagnosis.dialect, url)
        if command:
            yield from wrapped(f"to prove it, with your {flags}:", len(indent) + 4)
            yield f"{indent}      {shown(command)}"
    if verbose:
        for query in node.queries:
            yield from wrapped("asked: " + query, len(left))


def _tail(node: NodeResult) -> str:
    parts = []
    if node.symptom_of:
        parts.append(f"symptom of {node.symptom_of}")
    if node.confidence:
        seen = f", n={node.seen_over}" if node.seen_over else ""
        parts.append(f"{node.confidence.value}{seen}")
    return f" [{'; '.join(parts)}]" if parts else ""


def _levers(node: NodeResult, column: int) -> Iterator[str]:
    for lever in node.levers:
        yield from _lever(lever, column)
    for text in node.will_not_help:
        yield from wrapped(f"✗ will not help: {text}", column)


def _lever(lever: Lever, column: int) -> Iterator[str]:
    yield from wrapped(f"→ {lever.title}: {lever.effect}", column)
    costs = f"costs: {lever.cost}"
    if lever.binds_next:
        costs += f"; next limit: {lever.binds_next}"
    yield from wrapped(costs, column + 2)
    if lever.will_not_help:
        yield from wrapped(f"✗ will not help: {lever.will_not_help}", column + 2)


def wrapped(text: str, column: int) -> list[str]:
    """Lines of at most WIDTH columns, the further ones indented by two more."""
    pad = " " * column
    return textwrap.wrap(shown(text), WIDTH, initial_indent=pad, subsequent_indent=pad + "  ")


def _depth(node: NodeResult, diagnosis: Diagnosis) -> int:
    parents = {other.key: other.parent for other in diagnosis.nodes}
    depth, key = 0, node.key
    while parents.get(key):
        depth, key = depth + 1, parents[key]
    return depth
