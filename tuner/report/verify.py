"""What `tuner verify` prints: the advice, what was predicted, what came of it, side effects."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from storage import Verification
from tuner.diagnosis.model import State
from tuner.report.table import aligned, factor_text
from tuner.report.words import OUTCOMES, VERDICTS
from tuner.slo import VerdictState
from tuner.stats import Comparison
from tuner.targets.base import config_text
from tuner.units import count_text, digits, show, signed_digits
from tuner.verify.history import records
from tuner.verify.predict import Prediction, kept
from tuner.verify.proof import Answer, Proof
from tuner.verify.proposal import Proposal

TITLES = {
    "holds": "The advice holds",
    "refuted": "The advice does not hold",
    "harmful": "The advice does harm",
    "undecided": "Undecided",
}


def realised_dict(proof: Proof) -> dict[str, Any] | None:
    """JSON-able; None before a pair has a result on both sides."""
    gain = proof.gain
    if gain is None:
        return None
    found = _comparison(gain) | {
        "pairs": proof.pairs, "confidence": gain.confidence, "method": gain.method,
    }  # fmt: skip
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
        rows.insert(0, ["advice", advice_text(proposal)])
    rows.append(["predicted", predicted_text(proof)])
    rows.append(["realised", realised_text(proposal.objective.key, realised_dict(proof))])
    rows += [["side effect", text] for text in _side_effects(proof)]
    rows += [["SLOs", text] for text in _slos(proof)]
    if text := node_text(proof):
        rows.append(["node", text])
    return [
        f"{proposal.change}, judged by {proposal.objective.key}",
        f"  {load}",
        *aligned(rows),
        "",
        f"{TITLES[answer.outcome]}: {answer.reason}",
        f"  study {study}",
    ]


def advice_text(proposal: Proposal) -> str:
    """The node and the lever's effect; "" where the user named the knob."""
    return ": ".join(part for part in (proposal.node, proposal.advice) if part)


def predicted_text(proof: Proof) -> str:
    found, key = proof.prediction, proof.proposal.objective.key
    if isinstance(found, Prediction):
        return f"{key} {factor_text(found.low)} to {digits(found.high)}: {found.ground}"
    return f"no prediction: {found}"


def realised_text(key: str, found: Mapping[str, Any] | None) -> str:
    """Of the figure that decides, what realised_dict() holds, fresh or stored."""
    if found is None:
        return "no pair has a result on both sides"
    ratio, low, high = (_number(found.get(name)) for name in ("ratio", "low", "high"))
    pairs = count_text(found["pairs"], "interleaved pair")
    if math.isnan(ratio):
        return f"{key}: no ratio ({found.get('method') or 'it is not measured on a side'})"
    if found["pairs"] < 2:
        return f"{key} {factor_text(ratio)} ({pairs}, no interval)"
    level = show(found["confidence"], "share")
    told = f"{level} interval, {pairs}, same arrivals and prompts"
    text = f"{key} {factor_text(ratio, low, high)} ({told}): {OUTCOMES[found['outcome']]}"
    return f"{text}; {found['prediction']}" if found.get("prediction") else text


def _number(stored: float | None) -> float:
    """JSON keeps what is not finite as null."""
    return math.nan if stored is None else stored


def verify_dict(proof: Proof, answer: Answer, load: str, applied: bool) -> dict[str, Any]:
    """JSON-able."""
    proposal, predicted = proof.proposal, proof.prediction
    return {
        "node": proposal.node, "change": proposal.change,
        "before": proposal.before, "after": proposal.after,
        "figure": proposal.objective.key, "outcome": answer.outcome, "reason": answer.reason,
        "predicted": predicted.as_dict() if isinstance(predicted, Prediction) else None,
        "why_no_prediction": predicted if isinstance(predicted, str) else "",
        "realised": realised_dict(proof), "side_effects": side_effect_dict(proof),
        "node_before": proof.node_state(proposal.before),
        "node_after": proof.node_state(proposal.after),
        "applied": applied, "load": load,
    }  # fmt: skip


def _side_effects(proof: Proof) -> list[str]:
    lines = []
    for key, found in proof.side_effects().items():
        if found.difference is not None:
            change, low, high = (signed_digits(100 * part) for part in found.difference)
            figures = f"{change} [{low}, {high}] percentage points"
        elif not math.isnan(found.ratio):
            figures = factor_text(found.ratio, found.low, found.high)
        else:
            continue
        lines.append(f"{key} {figures}: {OUTCOMES[found.outcome]}")
    return lines


def _slos(proof: Proof) -> list[str]:
    return [
        f"{text}: {VERDICTS[before]} → {VERDICTS[after]}"
        for text, before, after in clause_states(proof)
    ]


def clause_states(proof: Proof) -> list[tuple[str, VerdictState, VerdictState]]:
    """(clause, before, after) of each SLO, over all pairs; [] before both sides have a result."""
    first, second = proof.pooled
    if not proof.goal.slos or first is None or second is None:
        return []
    before, after = (
        {c.clause.text: c.state for c in side.verdict.clauses} for side in (first, second)
    )
    return [(text, before[text], after[text]) for text in before if text in after]


def node_text(proof: Proof) -> str:
    """Whether the node that was turned for cleared; "" where nothing tells."""
    before = proof.node_state(proof.proposal.before)
    after = proof.node_state(proof.proposal.after)
    if not proof.proposal.node or before is None or after is None:
        return ""
    cleared = "cleared" if after in ("ok", "not_applicable") else "not cleared"
    if after == "cant_tell":
        cleared = "whether it cleared cannot be told"
    words = {state.value: state.word for state in State}
    states = " → ".join(words.get(state, state) for state in (before, after))
    return f"{proof.proposal.node} {states}: {cleared}"


def history_lines(rows: Sequence[Verification]) -> list[str]:
    """Which advice holds up."""
    if not rows:
        return ["no advice was verified yet: tuner verify --url URL --node NODE"]
    table = [["node", "advice", "figure", "holds", "refuted", "harmful", "undecided",
              "median ×", "as predicted", ""]]  # fmt: skip
    for record in records(rows):
        ratio = "–" if record.median_ratio is None else digits(record.median_ratio)
        agreed = f"{record.as_predicted} of {record.predicted}" if record.predicted else "–"
        counts = map(str, (record.holds, record.refuted, record.harmful, record.undecided))
        table.append(
            [record.node or "–", f"{record.knob} {record.direction}", record.figure, *counts,
             ratio, agreed, record.told]
        )  # fmt: skip
    return aligned(table)
