"""What reports of every kind of study begin with: its record, read once and judged again.

It takes a StoredStudy, which is the same from the database and from a bundle. Invariant: every
figure follows from the stored records and this version's code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from storage.rows import Study, Verification
from tuner.diagnosis import Diagnosis
from tuner.diagnosis.stored import diagnosis_of
from tuner.errors import UserError
from tuner.exchange.belonging import of_first
from tuner.exchange.bundle import WITH_FINDINGS, StoredStudy, machines
from tuner.exchange.judging import workload_of
from tuner.exchange.provenance import machine_text
from tuner.report.words import load_text
from tuner.search.ledger import stored_outcome
from tuner.search.objective import CAPACITY, Objective
from tuner.search.trial import Outcome
from tuner.search.trials import Config
from tuner.slo import SloSet, parse_slos
from tuner.workload import Workload, parse_workload

NOT_DIAGNOSED = (
    "the baseline was not diagnosed: its server exports nothing that tells, or the study is older"
)

Kind = Literal["search", "sweep", "verification"]


@dataclass(frozen=True, slots=True)
class Recorded:
    """loads: as they were given; workloads: the same, read. diagnosis: of the baseline, None where
    none was made. verifications: the study's own, and of what that diagnosis proposes. lacks: what
    an older bundle does not keep, "" for none. machines: that sent the load."""

    study: Study
    slos: SloSet
    loads: tuple[str, ...]
    workloads: tuple[Workload, ...]
    baseline: Config
    outcomes: list[Outcome]
    diagnosis: Diagnosis | None
    verifications: tuple[Verification, ...]
    lacks: str
    machines: tuple[str, ...]

    @property
    def load(self) -> str:
        """Under what its figures were measured."""
        budget = self.study.budget or {}
        loads = " and ".join(self.loads) or "not sized yet"
        seed, window_s = self.study.seed or 0, budget.get("window_s")
        if window_s is None:
            return f"load {loads} · seed {seed}"
        searched = str(Objective(CAPACITY)) in ((self.study.space or {}).get("objectives") or [])
        warmup_s = float(budget.get("warmup_s") or 0.0)
        return load_text(loads, seed, float(window_s), warmup_s, searched=searched)

    @property
    def not_diagnosed(self) -> str:
        """Why there is no diagnosis, where there is none."""
        return NOT_DIAGNOSED

    def parts(self) -> dict[str, Any]:
        """Its fields by name, of which a report is made that has further ones."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(Recorded)}


def is_sweep(study: Study) -> bool:
    """Whether `tuner sweep` made it: its own row tells."""
    space, budget = study.space or {}, study.budget or {}
    return "points" in budget and "load_knobs" in space and not space.get("objectives")


def is_verification(study: Study) -> bool:
    """Whether `tuner verify` made it: its own row tells."""
    command = (study.command or "").split()
    return "pairs" in (study.budget or {}) or command[1:2] == ["verify"]


def kind_of(stored: StoredStudy) -> Kind:
    """Which command made it. Raises UserError for none that is known."""
    study = stored.study
    if (study.space or {}).get("objectives"):
        return "search"
    if is_sweep(study):
        return "sweep"
    own = any(row.study_id == study.id for row in stored.verifications)
    if own or is_verification(study):
        return "verification"
    raise UserError(
        f"study {study.name} is of none of `tuner optimize`, `sweep` and `verify`, or of an older "
        f"one; `tuner studies {study.name}` shows it"
    )


def recorded(stored: StoredStudy) -> Recorded:
    """Raises UserError, StorageError."""
    study = stored.study
    slos = parse_slos([study.slos]) if study.slos else SloSet()
    told = study.workload or {}
    sized = study.workload is not None or stored.measurements  # else its load is yet to be found
    kept = (told, *(told.get("also") or [])) if sized else ()
    texts = tuple(str(one.get("text") or "") for one in kept)
    known = {text: _load(text, stored) for text in texts}
    outcomes = _outcomes(stored, slos, dict(known))
    lacks = ""
    if stored.format < WITH_FINDINGS:
        lacks = (
            f"its bundle has format {stored.format}, of an older slotune, which keeps neither the "
            "baseline's findings nor verifications"
        )
    return Recorded(
        study, slos, texts, tuple(known[text] for text in texts), _baseline(study, outcomes),
        outcomes, diagnosis_of(of_first(stored.findings)), stored.verifications, lacks,
        tuple(map(machine_text, machines(stored.measurements))),
    )  # fmt: skip


def _load(text: str, stored: StoredStudy) -> Workload:
    """The load a text names; where its file is not on this machine, one of the records' lengths:
    only its arrivals count for what was measured already."""
    try:
        return parse_workload(text or None)
    except UserError:
        row = next((r for r in stored.measurements if (r.workload or {}).get("text") == text), None)
        if row is None or row.summary is None:
            raise
        return workload_of(text, stored.load_records(row.id))


def _outcomes(stored: StoredStudy, slos: SloSet, known: dict[str, Workload]) -> list[Outcome]:
    price = (stored.study.space or {}).get("price_per_hour")
    first = next(iter(known), "")
    found = []
    for row in stored.measurements:
        text = str((row.workload or {}).get("text") or first)
        if text not in known:
            known[text] = _load(text, stored)
        found.append(stored_outcome(row, stored.load_records, slos, known[text], price))
    return found


def _baseline(study: Study, outcomes: Sequence[Outcome]) -> Config:
    told = (study.target or {}).get("original_config")
    if told:
        return dict(told)
    return next((dict(o.config) for o in outcomes if o.stage == "baseline"), {})
