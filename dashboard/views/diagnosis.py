"""The diagnosis tree, live: every node with its value, its evidence and what would move it.

The tree itself is the tuner's (`tuner diagnose` prints the same); the page only lays it out. What
binds now comes first, in full; below it the whole tree, one line a node, in the order it is asked.
"""

from __future__ import annotations

import re
import time
from collections import Counter

import streamlit as st

from dashboard import markup, verify
from dashboard.connect import evaluator
from dashboard.evaluator import BEAT_S, Evaluator
from dashboard.format import duration, scaled
from dashboard.prove import MODEL, Subject, subject_of, sweep_command
from dashboard.settings import current
from tuner.diagnosis import Diagnosis, Lever, NodeResult, State
from tuner.diagnosis.render import ON_WATCH

TONES = {
    State.CRITICAL: "bad",
    State.WARNING: "warn",
    State.OK: "good",
    State.CANT_TELL: "info",
    State.NOT_APPLICABLE: "neutral",
}
BADGES = {
    State.CRITICAL: "red",
    State.WARNING: "orange",
    State.OK: "green",
    State.CANT_TELL: "blue",
    State.NOT_APPLICABLE: "gray",
}
TRAFFIC = {"traffic": "yes", "no_traffic": "none in the window", "unknown": "not known"}
ARROWS = {"up": "↑", "down": "↓", "on": "on", "off": "off", "do": ""}


def page() -> None:
    running = evaluator()
    if running is None:
        st.html(markup.heading("Diagnosis"))
        st.html(
            markup.message(
                "No target",
                "Start with `dashboard serve --url http://127.0.0.1:8000` to diagnose an engine, "
                "or with --prometheus URL.",
            )
        )
        return
    st.fragment(_live, run_every=max(BEAT_S, current().refresh_s))(running)


def _live(running: Evaluator) -> None:
    diagnosis = running.latest()
    subject = subject_of(current(), diagnosis)
    st.html(f'<div class="stack">{_summary(diagnosis)}</div>')
    # One container, however many causes: what stands below keeps its place, and open nodes open.
    with st.container(key="causes"):
        verify.panel()
        if not diagnosis.causes:
            st.html(_nothing(diagnosis))
        for node in diagnosis.causes:
            st.html(_cause(node))
            _commands(node, diagnosis, subject)
            verify.offer(node, subject)
    st.html(markup.heading("The tree", "in the order it is asked; open a node for its evidence"))
    depths = _depths(diagnosis)
    with st.container(key="tree"):
        for node in diagnosis.nodes:
            _node(node, depths[node.key], diagnosis.up)


def _summary(diagnosis: Diagnosis) -> str:
    at = time.strftime("%H:%M:%S UTC", time.gmtime(diagnosis.at_s))
    note = f"evaluated at {at} over the last {duration(diagnosis.window_s)}"
    counts = Counter((_word(node), _tone(node)) for node in diagnosis.nodes)
    firing, calm = [[s.word for s in State if s.firing is fires] for fires in (True, False)]
    order = [*firing, ON_WATCH, *calm]
    pills = "".join(
        markup.pill(f"{count} {word}", tone)
        for (word, tone), count in sorted(counts.items(), key=lambda item: order.index(item[0][0]))
    )
    missing = "".join(
        f'<div class="sub">{markup.escape(text)}</div>' for text in diagnosis.unjudged
    )
    target = markup.definition(
        [
            ("target", f'<span class="mono">{markup.escape(diagnosis.target)}</span>'),
            *([("metrics of", markup.escape(diagnosis.dialect))] if diagnosis.up else []),
            ("traffic", TRAFFIC[diagnosis.traffic]),
        ]
    )
    return (
        markup.heading("Diagnosis", note)
        + f'<div class="statusline"><div class="pills">{pills}</div>{target}</div>{missing}'
    )


def _word(node: NodeResult) -> str:
    return ON_WATCH if node.on_watch else node.state.word


def _tone(node: NodeResult) -> str:
    return "warn" if node.on_watch else TONES[node.state]


def _nothing(diagnosis: Diagnosis) -> str:
    tone = "neutral" if diagnosis.traffic != "traffic" else "good"
    if any(node.on_watch for node in diagnosis.nodes):
        tone = "warn"
    return markup.message(diagnosis.headline, _why_nothing(diagnosis), tone)


def _why_nothing(diagnosis: Diagnosis) -> str:
    if diagnosis.traffic == "no_traffic":
        return "Nodes are judged as soon as requests arrive."
    pending = [node.title for node in diagnosis.nodes if node.on_watch]
    if pending:
        return f"On watch, not yet long enough to fire: {', '.join(pending)}."
    return "A node that cannot be told is not ok: open it to see what is missing."


def _cause(node: NodeResult) -> str:
    """What binds, with every lever: the part an operator acts on."""
    levers = "".join(_lever(lever) for lever in node.levers)
    no_use = "".join(
        f'<div class="nouse"><b>will not help</b> {markup.escape(text)}</div>'
        for text in node.will_not_help
    )
    head = (
        f"{markup.pill(node.state.word, TONES[node.state])} <b>{markup.escape(node.title)}</b> "
        f"{markup.escape(node.summary)}"
    )
    return (
        f'<div class="cause {TONES[node.state]}"><div>{head}</div>'
        f'{_facts(node)}<div class="levers">{levers}</div>{no_use}</div>'
    )


def _lever(lever: Lever) -> str:
    pairs = [
        ("expect", lever.effect),
        ("costs", lever.cost),
        ("binds next", lever.binds_next),
        ("will not help", lever.will_not_help),
    ]
    rows = "".join(f"<dt>{name}</dt><dd>{markup.escape(text)}</dd>" for name, text in pairs if text)
    title = f"{lever.knob} {ARROWS.get(lever.direction, lever.direction)}".strip()
    return f'<div class="lever"><b>{markup.escape(title)}</b><dl>{rows}</dl></div>'


def _commands(node: NodeResult, diagnosis: Diagnosis, subject: Subject) -> None:
    """What proves the cause's levers, ready to copy."""
    found = [
        command
        for lever in node.levers
        if (
            command := sweep_command(
                lever.knob,
                lever.direction,
                subject.config,
                url=subject.url,
                slos=current().slos,
                engine=diagnosis.dialect,
            )
        )
    ]
    if found:
        started = any(f" {MODEL} " in command for command in found)
        where = " on one replica" if current().urls else ""
        if started:
            where = f" on servers that the tuner starts ({MODEL}: what is served here)"
        told = f"To prove it, against the value of now{where}; add your --workload:"
        st.html(f'<div class="sub">{told}</div>')
        st.code("\n".join(found), language=None, wrap_lines=True)


def _facts(node: NodeResult) -> str:
    pairs = [
        ("value", _with_unit(node.value, node.unit)),
        ("threshold", _threshold(node)),
        ("window", duration(node.window_s) if node.window_s else "now"),
        ("seen over", node.seen_over or "–"),
        ("data age", "–" if node.age_s is None else duration(node.age_s)),
        ("confidence", node.confidence.value if node.confidence else "–"),
    ]
    pairs += list(node.evidence)
    return markup.definition((name, markup.escape(text)) for name, text in pairs)


def _threshold(node: NodeResult) -> str:
    if node.threshold is None:
        return "–"
    return f"{node.comparison} {_with_unit(node.threshold, node.unit)}"


def _with_unit(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    share, _, rest = unit.partition("share")
    if not share and rest != unit:  # "share", "share of steps": shown as a percentage
        return " ".join(scaled(value, "ratio")) + rest
    return " ".join(scaled(value, unit)).strip()


def _node(node: NodeResult, depth: int, up: bool) -> None:
    """up: whether the target answered; where not, one sentence above says why for all nodes."""
    summary = node.summary if up else ""
    with st.expander(_label(node, depth, summary), key=f"d{depth}-{node.key.replace('.', '-')}"):
        parts = [f"<div>{markup.escape(node.summary)}</div>", _facts(node)]
        if node.symptom_of:
            parts.append(f'<div class="sub">A symptom of {markup.escape(node.symptom_of)}.</div>')
        if node.on_watch:
            parts.append('<div class="sub">Holds, but not yet for long enough to fire.</div>')
        if node.missing:
            title = f"Missing: {', '.join(node.missing)}"
            parts.append(markup.message(title, node.how_to_get, "info"))
        parts += [_lever(lever) for lever in node.levers]
        parts += [
            f'<div class="nouse"><b>will not help</b> {markup.escape(text)}</div>'
            for text in node.will_not_help
        ]
        parts += [f'<div class="query mono">{markup.escape(query)}</div>' for query in node.queries]
        st.html(f'<div class="stack">{"".join(parts)}</div>')


def _label(node: NodeResult, depth: int, summary: str) -> str:
    colour = BADGES[State.WARNING if node.on_watch else node.state]
    badge = f":{colour}-badge[{_word(node)}]"
    title = _plain(node.title if depth else f"{node.key} {node.title}")
    symptom = f" (symptom of {node.symptom_of})" if node.symptom_of else ""
    return f"{badge} **{title}** {_plain(summary + symptom)}"


def _plain(text: str) -> str:
    """Text that Streamlit's Markdown must show as it is."""
    return re.sub(r"([\\`*_\[\]$:~<>#])", r"\\\1", text)


def _depths(diagnosis: Diagnosis) -> dict[str, int]:
    depths: dict[str, int] = {}
    for node in diagnosis.nodes:  # parents come before their children
        depths[node.key] = depths[node.parent] + 1 if node.parent in depths else 0
    return depths
