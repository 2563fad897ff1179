"""A stored study of `tuner verify`: predicted against realised, side effects, the node, as text and
JSON.

Invariant: the comparison and the answer are made again from the records; the prediction and the
node's states, which rest on metrics that are not kept, are those that were stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from storage.rows import Study, Verification
from tuner.exchange.bundle import StoredStudy
from tuner.report.findings import findings_dict, findings_lines
from tuner.report.recorded import Recorded, recorded
from tuner.report.study_health import Check, check_dicts, check_lines, measured_checks
from tuner.report.study_text import began_as, not_done
from tuner.report.verify import TITLES, verify_dict, verify_lines
from tuner.search.each_load import EachLoad
from tuner.search.objective import objective_from_text
from tuner.search.trials import Config, distinct, trials_of
from tuner.verify.predict import Prediction
from tuner.verify.proof import Answer, Proof, answered
from tuner.verify.proposal import Proposal, direction_of

NODE = "node "
"""What the stored text begins with of a verification that was asked for by its node."""


@dataclass(slots=True)
class StoredProof(Proof):
    """kept: what was stored at its end; None of a verification that did not come to it."""

    kept: Verification | None = None

    def node_state(self, config: Config) -> str | None:
        if self.kept is None:
            return None
        before = config == self.proposal.before
        return self.kept.node_before if before else self.kept.node_after


@dataclass(frozen=True, slots=True)
class VerifyReport(Recorded):
    """proof and answer None: nothing was compared, and no_answer says why."""

    proof: StoredProof | None
    answer: Answer | None
    no_answer: str

    @property
    def headline(self) -> str:
        if self.answer is None:
            return f"No answer: {self.no_answer}"
        return f"{TITLES[self.answer.outcome]}: {self.answer.reason}"

    @property
    def changed(self) -> str:
        """Where its records, judged again, answer otherwise than was told at its end."""
        kept = self.proof.kept if self.proof is not None else None
        if kept is None or self.answer is None or kept.outcome == self.answer.outcome:
            return ""
        return (
            f"when it ended its answer was {TITLES[kept.outcome]!r}; judged again from its records "
            "it is this"
        )

    @property
    def applied(self) -> bool:
        return self.proof is not None and self.proof.kept is not None and self.proof.kept.applied

    @property
    def checks(self) -> list[Check]:
        return measured_checks(self.outcomes)


def verify_report(stored: StoredStudy) -> VerifyReport:
    """Raises UserError, StorageError."""
    base = recorded(stored)
    own = [row for row in base.verifications if row.study_id == base.study.id]
    kept = own[-1] if own else None
    proposal, why = _proposal(base, kept)
    if proposal is None:
        return VerifyReport(**base.parts(), proof=None, answer=None, no_answer=why)
    goal = EachLoad((proposal.objective,), base.slos, base.workloads)
    seen = [None for _ in base.outcomes]
    prediction = _prediction(base.study, kept)
    proof = StoredProof(proposal, goal, base.outcomes, list(seen), prediction, kept)
    return VerifyReport(**base.parts(), proof=proof, answer=answered(proof), no_answer="")


def _proposal(base: Recorded, kept: Verification | None) -> tuple[Proposal | None, str]:
    """What was turned; or why nothing was."""
    if not base.outcomes:
        return None, f"no data: the verification is {base.study.state} and holds no measurement"
    before = dict(kept.before) if kept is not None else base.baseline
    others = [config for config in distinct(trials_of(base.outcomes)) if config != before]
    after = dict(kept.after) if kept is not None else (others[0] if others else before)
    changed = [name for name in after if after[name] != before.get(name)]
    if not changed:
        return None, "only the present setting was measured"
    knob = kept.knob if kept is not None else changed[0]
    asked = next(iter((base.study.space or {}).get("axes") or []), "")
    node = asked.removeprefix(NODE) if asked.startswith(NODE) else ""
    node = (kept.node or "") if kept is not None else node
    objective = objective_from_text(base.study.objective or "")
    advice = _advice(base, node, (knob, direction_of(before[knob], after[knob])))
    return Proposal(knob, before, after, objective, node, advice), ""


def _advice(base: Recorded, node: str, what: tuple[str, str]) -> str:
    """The lever's effect, as the diagnosis told it."""
    nodes = base.diagnosis.nodes if base.diagnosis is not None else ()
    levers = [lever for one in nodes if one.key == node for lever in one.levers]
    return next((lever.effect for lever in levers if (lever.knob, lever.direction) == what), "")


def _prediction(study: Study, kept: Verification | None) -> Prediction | str:
    if kept is not None and kept.predicted:
        told = kept.predicted
        return Prediction(float(told["low"]), float(told["high"]), str(told["ground"]))
    return str((study.result or {}).get("why_no_prediction") or "none is stored")


def verify_report_lines(report: VerifyReport) -> list[str]:
    if report.proof is None or report.answer is None:
        lines = [report.headline]
    else:
        lines = verify_lines(report.proof, report.answer, report.load, report.study.name)
    lines += not_done(report)
    if report.changed:
        lines.append(f"caution: {report.changed}")
    lines += findings_lines(report)
    return [*lines, *check_lines(report.checks), "", *began_as(report)]


def verify_report_dict(report: VerifyReport) -> dict[str, Any]:
    """JSON-able."""
    told: dict[str, Any] = {"outcome": None, "reason": report.no_answer}
    if report.proof is not None and report.answer is not None:
        told = verify_dict(report.proof, report.answer, report.load, report.applied)
    about = {"study": report.study.name, "state": report.study.state}
    checks = check_dicts(report.checks)
    return about | told | {"checks": checks} | findings_dict(report)
