"""The "Verify" button beside a cause whose knob turns live, its progress and its answer.

The page starts the same `tuner verify` that its command line shows; it measures nothing itself.
Offered only for an engine that is watched by its URL and lets its knobs be changed; of several
replicas the page turns none, and shows the command for one of them.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from typing import Any

import streamlit as st

from dashboard import markup
from dashboard.answer import VERIFIED_TONES
from dashboard.connect import Unavailable, database
from dashboard.format import duration
from dashboard.prove import Subject
from dashboard.settings import current
from dashboard.verify_run import Verifications, View, words
from engine.knobs import LIVE_KNOBS
from storage import StorageError
from tuner.diagnosis import NodeResult
from tuner.report.verify import TITLES
from tuner.report.words import OUTCOMES
from tuner.units import count_text
from tuner.verify.history import Record, records
from tuner.workload.grammar import DEFAULT

ON_ONE = (
    "Several replicas are watched, so this page changes none. Run it on one of them: its clients "
    "share it with the test load meanwhile, and its settings are put back at the end:"
)


@st.cache_resource(show_spinner=False, on_release=lambda runs: runs.close())
def verifications() -> Verifications:
    return Verifications()


def offered(node: NodeResult, subject: Subject) -> bool:
    """Whether the node's advice can be tried: a live knob of an engine that is watched by its URL
    and was started with --enable-admin."""
    return subject.changeable and any(lever.knob in LIVE_KNOBS for lever in node.levers)


def offer(node: NodeResult, subject: Subject) -> None:
    """Beside a cause: what became of its advice so far, and the button, or the command for one of
    several replicas."""
    for record in _known(node):
        st.html(f'<div class="sub">{markup.escape(_record_text(record))}</div>')
    if not offered(node, subject):
        return
    if current().urls:
        st.html(f'<div class="sub">{ON_ONE}</div>')
        st.code(shlex.join(_command(node.key, DEFAULT, subject)), language=None, wrap_lines=True)
        return
    left, right = st.columns([5, 1], vertical_alignment="bottom")
    workload = left.text_input(
        "Load that the verification sends, beside what the server gets now",
        DEFAULT, key=f"verify-load-{node.key}",
    )  # fmt: skip
    view = verifications().view()
    right.button(
        "Verify", key=f"verify-{node.key}", disabled=view is not None and view.running,
        width="stretch", help=f"$ {shlex.join(_command(node.key, workload, subject))}",
        on_click=_start, args=(node.key, subject),
    )  # fmt: skip


def _start(node: str, subject: Subject) -> None:
    """With the load as it stands in the field now."""
    verifications().start(node, _command(node, st.session_state[f"verify-load-{node}"], subject))


def _command(node: str, workload: str, subject: Subject) -> list[str]:
    settings = current()
    return words(str(subject.url), node, workload, settings.slos, settings.database)


def panel() -> None:
    """The newest verification: its progress, then its answer; nothing before the first."""
    view = verifications().view()
    if view is None:
        return
    if view.running:
        took = duration(time.time() - view.began_s)
        now = view.told[-1] if view.told else "starting"
        st.html(markup.message(f"Verifying {view.node}, for {took}", now, "info"))
        st.button(
            "Stop and put the settings back", key="verify-stop", on_click=verifications().stop
        )
        return
    st.html(_ended(view))


def _ended(view: View) -> str:
    if view.fault:
        return markup.message(f"{view.node} was not verified", view.fault, "warn")
    outcome = str(view.result.get("outcome", ""))
    title = f"{TITLES.get(outcome, outcome)}: {view.result.get('change', '')}"
    text = f"{view.result.get('reason', '')}. {_figures(view.result)}"
    return markup.message(title, text, VERIFIED_TONES.get(outcome, "info"))


def _figures(result: Mapping[str, Any]) -> str:
    """Predicted and realised, side effects that are shown, and whether the node cleared."""
    parts = []
    predicted, realised = result.get("predicted"), result.get("realised")
    if predicted:
        parts.append(f"predicted × {predicted['low']:.3g} to {predicted['high']:.3g}")
    if realised and realised.get("ratio") is not None:
        ends = (realised.get("low"), realised.get("high"))
        known = None not in ends
        interval = f" [{ends[0]:.3g}, {ends[1]:.3g}]" if known else ""
        parts.append(
            f"{result.get('figure')} × {realised['ratio']:.3g}{interval} "
            f"from {count_text(int(realised.get('pairs') or 0), 'pair')}"
        )
    for key, found in (result.get("side_effects") or {}).items():
        if found.get("outcome") in ("improved", "worse") and found.get("ratio") is not None:
            parts.append(f"{key} × {found['ratio']:.3g} {OUTCOMES[found['outcome']]}")
    before, after = result.get("node_before"), result.get("node_after")
    if before and after:
        parts.append(f"{result.get('node')} {before} → {after}".replace("_", " "))
    return "; ".join(parts)


def _known(node: NodeResult) -> list[Record]:
    """What became of this node's advice; nothing where the database cannot be read."""
    opened = database()
    if isinstance(opened, Unavailable):
        return []
    try:
        rows = opened.list_verifications()
    except StorageError:
        return []
    return [record for record in records(rows) if record.node == node.key]


def _record_text(record: Record) -> str:
    ratio = "" if record.median_ratio is None else f", median {record.figure} × "
    ratio += "" if record.median_ratio is None else f"{record.median_ratio:.3g}"
    return (
        f"Verified before: {record.knob} {record.direction} held {record.holds} of "
        f"{record.decided} times{ratio}: {record.told}"
    )
