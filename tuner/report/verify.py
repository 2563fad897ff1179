"""What `tuner verify` prints: the advice, what was predicted, what came of it, side effects."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from storage import Verification
from tuner.report.flags import config_text
from tuner.report.table import aligned
from tuner.report.words import VERDICTS
from tuner.stats import Comparison
from tuner.verify.history import records
from tuner.verify.predict import Prediction, kept
from tuner.verify.proof import Answer, Proof

TITLES = {
    "holds": "The advice holds",
    "refuted": "The advice does not hold",
    "harmful": "The advice does harm",
    "undecided": "Not decided yet",
}
WORDS = {
    "improved": "better", "worse": "worse", "no_difference": "no difference",
    "inconclusive": "not shown",
}  # fmt: skip
_STATES = {"cant_tell": "can't tell", "not_applicable": "not applicable"}


def realised_dict(proof: Proof) -> dict[str, Any] | None:
    """JSON-able; None before a pair has a result on both sides."""
    gain = proof.gain
    if gain is None:
        return None
    found = _comparison(gain) | {"pairs": proof.pairs, "confidence": gain.confidence}
    if isinstance(proof.prediction, Prediction):
        found["prediction"] = kept(proof.prediction, gain.low, gain.high)
    return found


def side_effect_dict(proof: Proof) -> dict[str, Any]:
    return {key: _comparison(found) for key, found in proof.side_effects().items()}


def _comparison(found: Comparison) -> dict[str, Any]:
    return {"ratio": found.ratio, "low": found.low, "high": found.high, "outcome": found.outcome}


def verify_lines(proof: Proof, answer: Answer, load: str, study: str) -> list[str]:
    """The report on one verification."""
    proposal = proof.proposal
    rows = [["before", config_text(proposal.before)], ["after", config_text(proposal.after)]]
    if proposal.node:
        rows.insert(0, ["advice", f"{proposal.node}: {proposal.advice}"])
    rows.append(["predicted", _predicted(proof)])
    rows.append(["realised", _realised(proof)])
    rows += [["side effect", text] for text in _side_effects(proof)]
    rows += [["SLOs", text] for text in _slos(proof)]
    if text := _node_text(proof):
        rows.append(["node", text])
    return [
        f"{proposal.change}, judged by {proposal.objective.key}",
        f"  {load}",
        *aligned(rows),
        "",
        f"{TITLES[answer.outcome]}: {answer.reason}",
        f"  study {study}",
    ]


def _predicted(proof: Proof) -> str:
    found, key = proof.prediction, proof.proposal.objective.key
    if isinstance(found, Prediction):
        return f"{key} × {found.low:.3g} to {found.high:.3g}: {found.ground}"
    return f"no prediction: {found}"


def _realised(proof: Proof) -> str:
    gain, key = proof.gain, proof.proposal.objective.key
    if gain is None:
        return "no pair has a result on both sides"
    pairs = f"{proof.pairs} interleaved pair{'s' if proof.pairs != 1 else ''}"
    if math.isnan(gain.ratio):
        return f"{key}: no ratio ({gain.method})"
    if proof.pairs < 2:
        return f"{key} × {gain.ratio:.3g} ({pairs}, no interval)"
    told = f"{100 * gain.confidence:.4g} % interval, {pairs}, same arrivals and prompts"
    text = f"{key} × {gain.ratio:.3g} [{gain.low:.3g}, {gain.high:.3g}] ({told})"
    text += f": {WORDS[gain.outcome]}"
    if isinstance(proof.prediction, Prediction):
        text += f"; {kept(proof.prediction, gain.low, gain.high)}"
    return text


def _side_effects(proof: Proof) -> list[str]:
    lines = []
    for key, found in proof.side_effects().items():
        if found.difference is not None:
            change, low, high = (100 * part for part in found.difference)
            figures = f"{change:+.3g} [{low:+.3g}, {high:+.3g}] percentage points"
        elif not math.isnan(found.ratio):
            figures = f"× {found.ratio:.3g} [{found.low:.3g}, {found.high:.3g}]"
        else:
            continue
        lines.append(f"{key} {figures}: {WORDS[found.outcome]}")
    return lines


def _slos(proof: Proof) -> list[str]:
    decision, found = proof.decision, proof.standing
    if not proof.goal.slos or decision is None or found is None:
        return []
    before = {c.clause.text: c.state for c in decision.baseline.verdict.clauses}
    after = {c.clause.text: c.state for c in found.pooled.verdict.clauses}
    return [
        f"{text}: {VERDICTS[before[text]]} → {VERDICTS[after[text]]}"
        for text in before
        if text in after
    ]


def _node_text(proof: Proof) -> str:
    before = proof.node_state(proof.proposal.before)
    after = proof.node_state(proof.proposal.after)
    if not proof.proposal.node or before is None or after is None:
        return ""
    cleared = "cleared" if after in ("ok", "not_applicable") else "not cleared"
    if after == "cant_tell":
        cleared = "whether it cleared cannot be told"
    states = [_STATES.get(state, state) for state in (before, after)]
    return f"{proof.proposal.node} {states[0]} → {states[1]}: {cleared}"


def history_lines(rows: Sequence[Verification]) -> list[str]:
    """Which advice holds up."""
    if not rows:
        return ["no advice was verified yet: tuner verify --url URL --node NODE"]
    table = [["node", "advice", "figure", "holds", "refuted", "harmful", "undecided",
              "median ×", "as predicted", ""]]  # fmt: skip
    for record in records(rows):
        ratio = "–" if record.median_ratio is None else f"{record.median_ratio:.3g}"
        agreed = f"{record.as_predicted} of {record.predicted}" if record.predicted else "–"
        counts = map(str, (record.holds, record.refuted, record.harmful, record.undecided))
        table.append(
            [record.node or "–", f"{record.knob} {record.direction}", record.figure, *counts,
             ratio, agreed, record.told]
        )  # fmt: skip
    return aligned(table)
