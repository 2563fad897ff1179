"""The page of a verification: what was predicted, what came of it, what else moved, the node."""

from __future__ import annotations

from html import escape

from tuner.report.compare import ratio_text
from tuner.report.html import charts
from tuner.report.html.compare_page import reach_of
from tuner.report.html.page import (
    callout,
    document,
    facts,
    head,
    panel,
    pill,
    section,
    table,
)
from tuner.report.html.study_parts import (
    FINDINGS,
    FINDINGS_LEAD,
    findings,
    health,
    provenance,
    timeline,
)
from tuner.report.html.study_tables import cell
from tuner.report.study_text import not_done
from tuner.report.verify import (
    advice_text,
    clause_states,
    node_text,
    predicted_text,
    realised_dict,
    realised_text,
)
from tuner.report.verify_study import StoredProof, VerifyReport
from tuner.stats import Comparison
from tuner.targets.base import config_text

BADGES = {
    "holds": ("pass", "✔ holds"), "refuted": ("inconclusive", "refuted"),
    "harmful": ("fail", "✘ harmful"), "undecided": ("inconclusive", "? undecided"),
}  # fmt: skip
RATIOS = (
    "After / before over the same pairs, with its interval; the mark's line is 1, no difference. "
    "The first figure decides, at the level that its looks share; the others inform, each at 95 %. "
    "For shares the difference in percentage points."
)


def render_verify_html(report: VerifyReport) -> str:
    proof = report.proof
    gain = proof.gain if proof is not None else None
    doubts = [*([report.changed] if report.changed else []), *not_done(report)]
    body = [
        _head(report),
        callout("warn", doubts),
        section("Predicted and realised", _claims(proof) if proof else ""),
        section("What moved", panel(_moved(proof, gain)) if proof and gain else "", RATIOS),
        section("SLOs", _slos(proof) if proof else "", "Over all pairs together."),
        section(FINDINGS, findings(report), FINDINGS_LEAD),
        section("Checks", health(report.checks)),
        section("Timeline", timeline(report), "Seconds since the study's first measurement."),
        section("Provenance", provenance(report, [("judged by", report.study.objective)])),
    ]
    return document(f"slotune · verification {report.study.name}", body)


def _head(report: VerifyReport) -> str:
    study, target = report.study, report.study.target or {}
    named = (f"study {study.name}", study.state, *(target.get(n) for n in ("model", "url")))
    lines = [" · ".join(str(part) for part in named if part), report.load]
    if report.proof is not None:
        key = report.proof.proposal.objective.key
        lines.insert(0, f"{report.proof.proposal.change}, judged by {key}")
    badge = BADGES[report.answer.outcome] if report.answer is not None else ("", "no answer")
    return head(report.headline, lines, pill(*badge, big=True))


def _claims(proof: StoredProof) -> str:
    proposal = proof.proposal
    return panel(facts([
        ("advice", advice_text(proposal)), ("before", config_text(proposal.before)),
        ("after", config_text(proposal.after)), ("predicted", predicted_text(proof)),
        ("realised", realised_text(proposal.objective.key, realised_dict(proof))),
        ("node", node_text(proof)),
    ]))  # fmt: skip


def _moved(proof: StoredProof, gain: Comparison) -> str:
    """The figure that decides, then the side effects."""
    key = proof.proposal.objective.key
    sides = [pooled.summary.get(key) if pooled is not None else None for pooled in proof.pooled]
    others = proof.side_effects()
    reach = reach_of([gain, *others.values()])
    rows = [_row(f"<b>{escape(key)}</b>", gain, cell(sides[0]), cell(sides[1]), reach)]
    rows += [
        _row(escape(name), one, cell(one.a), cell(one.b), reach) for name, one in others.items()
    ]
    header = ("figure", "before", "after", "after / before", "interval", "", "")
    return table(header, rows, ("key", "num", "num", "num", "num dim", "", ""))


def _row(name: str, found: Comparison, before: str, after: str, reach: float) -> list[str]:
    ratio, interval = ratio_text(found)
    drawn = "" if found.difference is not None else charts.forest(
        found.ratio, found.low, found.high, reach, found.outcome
    )  # fmt: skip
    return [name, before, after, escape(ratio), escape(interval), drawn, pill(found.outcome)]


def _slos(proof: StoredProof) -> str:
    rows = [
        [escape(text), pill(before), pill(after)] for text, before, after in clause_states(proof)
    ]
    return panel(table(("", "before", "after"), rows, ("key", "", ""))) if rows else ""
