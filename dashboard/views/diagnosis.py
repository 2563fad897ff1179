"""The diagnosis tree, live: every node with its value, its evidence and what would move it.

The tree itself is the tuner's (`tuner diagnose` prints the same); this page keeps the run of
evaluations that hysteresis needs, once per process, so two browser tabs agree.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import streamlit as st

from dashboard import markup
from dashboard.connect import evaluate, metric_source
from dashboard.format import duration, quantity
from dashboard.prove import sweep_command
from dashboard.settings import current
from tuner.diagnosis import Diagnosis, Lever, NodeResult

TONES = {
    "critical": "bad",
    "warning": "warn",
    "ok": "good",
    "cant_tell": "info",
    "not_applicable": "neutral",
}
BADGES = {
    "critical": ":red-badge[critical]",
    "warning": ":orange-badge[warning]",
    "ok": ":green-badge[ok]",
    "cant_tell": ":blue-badge[can't tell]",
    "not_applicable": ":gray-badge[not applicable]",
}


def page() -> None:
    if metric_source() is None:
        st.html(markup.heading("Diagnosis"))
        st.html(
            markup.message(
                "No target",
                "Start with `dashboard serve --url http://127.0.0.1:8000` to diagnose an engine, "
                "or with --prometheus URL.",
            )
        )
        return
    st.fragment(_tree, run_every=max(5.0, current().refresh_s))()


def _tree() -> None:
    diagnosis = evaluate()
    if diagnosis is None:
        return
    st.html(_summary(diagnosis))
    for node in diagnosis.nodes:
        _node(node)


def _summary(diagnosis: Diagnosis) -> str:
    at = time.strftime("%H:%M:%S UTC", time.gmtime(diagnosis.at_s))
    note = f"evaluated {at} over the last {duration(diagnosis.window_s)}"
    counts = {state: sum(node.state == state for node in diagnosis.nodes) for state in TONES}
    pills = "".join(
        markup.pill(f"{count} {state.replace('_', ' ')}", TONES[state])
        for state, count in counts.items()
        if count
    )
    return markup.heading("Diagnosis", note) + f'<div class="pills">{pills}</div>'


def _node(node: NodeResult) -> None:
    with st.expander(_label(node), key=f"node-{node.key}", expanded=node.state == "critical"):
        st.html(_evidence(node))
        for index, lever in enumerate(node.levers):
            _lever(node, lever, index)
        if node.queries:
            st.html(_queries(node.queries))


def _label(node: NodeResult) -> str:
    return f"{BADGES[node.state]} **{node.title}** {node.summary}"
