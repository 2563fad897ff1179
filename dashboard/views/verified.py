"""What a verification gave: predicted against realised, and both sides' figures.

The tuner's own reading of the study (`tuner report` prints the same); the page only lays it out.
"""

from __future__ import annotations

import streamlit as st

from dashboard import markup
from dashboard.answer import VERIFIED_TONES, Side, side_of_pooled
from dashboard.views import comparison
from storage import Database, Study
from tuner.errors import UserError
from tuner.exchange.belonging import verified_by_study
from tuner.exchange.bundle import of_database
from tuner.report.recorded import is_verification
from tuner.report.verify import (
    advice_text,
    node_text,
    predicted_text,
    realised_dict,
    realised_text,
)
from tuner.report.verify_study import StoredProof, VerifyReport, verify_report


def report_of(opened: Database, study: Study, measured: int) -> VerifyReport | None:
    """measured: how many measurements it has; None for a study that is no verification, or is
    still running, or that this version cannot read."""
    ended = is_verification(study) and study.state != "running"
    if not ended and study.id not in verified_by_study(opened):
        return None
    return _report(opened, study.name, (study.id, study.updated_at_s, measured))


@st.cache_resource(show_spinner=False, max_entries=4)
def _report(_opened: Database, name: str, _as_of: tuple[int, float, int]) -> VerifyReport | None:
    try:
        return verify_report(of_database(_opened, name))
    except UserError:
        return None


def draw(report: VerifyReport) -> None:
    proof, answer = report.proof, report.answer
    if proof is None or answer is None:
        st.html(markup.message("No answer", report.no_answer, "warn"))
        return
    key = proof.proposal.objective.key
    note = f"{proof.proposal.change}, judged by {key}; {comparison.CHANGE}"
    st.html(markup.heading("Before and after", note))
    st.html(markup.message(report.headline, report.changed, VERIFIED_TONES[answer.outcome]))
    claims = [
        ("advice", advice_text(proof.proposal)),
        ("predicted", predicted_text(proof)),
        ("realised", realised_text(key, realised_dict(proof))),
        ("node", node_text(proof)),
    ]
    rows = [[name, markup.escape(text)] for name, text in claims if text]
    st.html(markup.table(["", "what was said and what came of it"], rows))
    if sides := _sides(proof):
        st.html(comparison.table(sides, key))


def _sides(proof: StoredProof) -> list[tuple[str, Side]]:
    named = zip(
        ("before", "after"), (proof.proposal.before, proof.proposal.after), proof.pooled,
        strict=True,
    )  # fmt: skip
    return [(name, side_of_pooled(config, one)) for name, config, one in named if one is not None]
