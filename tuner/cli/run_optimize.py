"""What `tuner optimize` does, from parsed options to the report.

Invariant: whatever ends it (the end, Ctrl-C, a fault), the study's state is stored and a server
that was there before gets its own configuration back, unless --apply found a better one.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

from storage import Database, Study, open_database
from tuner.calibrate import (
    DEFAULT_WORKLOAD,
    Calibration,
    calibrate,
    load_dial,
    prompt_dial,
)
from tuner.cli.common import EXIT_ANSWER_IS_NO, EXIT_DONE, ProgressLine, print_json
from tuner.cli.invocation import command_text, resume_text, study_name
from tuner.cli.narrate import Narrator
from tuner.cli.targets import leave, target_from
from tuner.errors import UserError
from tuner.measure import Measurement, measure
from tuner.report.optimize import report_lines, result_dict
from tuner.report.words import load_text
from tuner.search.budget import Budget, Plan, parse_budget, plan
from tuner.search.candidates import closest
from tuner.search.decide import Config, Decision
from tuner.search.ledger import StudyLedger
from tuner.search.objective import Objective, parse_objective
from tuner.search.optimize import Search, optimize
from tuner.search.pace import Pace
from tuner.search.proposals import Proposer, history_name
from tuner.search.space import Space, check_names, joint_space, useful_limits
from tuner.slo import SloSet, parse_slos
from tuner.targets import Target, TargetError
from tuner.trial import Lab
from tuner.units import count_text, parse_duration_s
from tuner.workload import Workload, parse_workload

DEFAULT_BUDGET = "10m"


@dataclass(slots=True)
class Request:
    """The options, read and checked before anything starts; a resumed study fills the gaps."""

    slos: SloSet
    objective: Objective
    workload: Workload
    budget: Budget
    window_s: float | None
    warmup_s: float | None
    seed: int
    knobs: list[str]
    calibrate: bool
    name: str
    resumed: Study | None

    @property
    def original(self) -> Config | None:
        """The server's own configuration as the first sitting found it."""
        target = self.resumed.target if self.resumed is not None else None
        return dict(target["original_config"]) if target else None


def run_optimize(args: argparse.Namespace) -> int:
    """The exit code. Raises UserError, StorageError, KeyboardInterrupt."""
    parse_slos(args.slo)  # the options' faults before the database's
    with open_database(args.database) as database:
        request = read_request(args, database)
        target = target_from(args)
        if args.apply and args.url is None:
            raise UserError("--apply needs --url: a server the tuner starts is stopped at the end")
        if target.kind == "vllm":
            joint_space(target.knobs(), request.knobs)
        try:
            target.start()
            return _tune(args, request, database, target)
        except TargetError as error:
            tail = f"\nend of the server's log:\n{error.log_tail}" if error.log_tail else ""
            raise UserError(f"{error.reason}{tail}") from error
        finally:
            target.stop()


def read_request(args: argparse.Namespace, database: Database) -> Request:
    """Options, and what a study of that name has stored. Raises UserError."""
    check_names(args.knob)
    study = database.get_study(args.study) if args.study else None
    stored: dict[str, Any] = (study.budget or {}) if study is not None else {}
    slos = parse_slos(args.slo or ([study.slos] if study is not None and study.slos else []))
    objective = parse_objective(args.maximize, args.minimize)
    if study is not None and study.objective and not (args.maximize or args.minimize):
        direction, _, key = study.objective.partition(" ")
        objective = Objective(key, "minimize" if direction == "minimize" else "maximize")
    return Request(
        slos=slos,
        objective=objective,
        workload=_workload(args, study),
        budget=parse_budget(args.budget or stored.get("text") or DEFAULT_BUDGET),
        window_s=_duration(args.duration, "--duration", stored.get("window_s")),
        warmup_s=_duration(args.warmup, "--warmup", stored.get("warmup_s"), zero_allowed=True),
        seed=args.seed if study is None else study.seed or 0,
        knobs=args.knob or list((study.space or {}).get("axes", []) if study is not None else []),
        calibrate=args.calibrate and study is None,
        name=args.study or study_name("optimize"),
        resumed=study,
    )


def _workload(args: argparse.Namespace, study: Study | None) -> Workload:
    if study is None:
        default = DEFAULT_WORKLOAD if args.calibrate else None
        return parse_workload(args.workload or default)
    stored = Workload.from_dict(study.workload or {})
    if args.workload and parse_workload(args.workload) != stored:
        raise UserError(
            f"study {study.name!r} was measured under --workload {str(stored)!r}; another load "
            "needs another --study"
        )
    return stored


def _duration(
    text: str | None, flag: str, stored: float | None, *, zero_allowed: bool = False
) -> float | None:
    return stored if text is None else parse_duration_s(text, flag, zero_allowed=zero_allowed)


def _tune(args: argparse.Namespace, request: Request, database: Database, target: Target) -> int:
    knobs = target.knobs()
    original = request.original or {name: knob.value for name, knob in knobs.items()}
    line = ProgressLine(quiet=args.quiet)
    keep: Config = original
    try:
        joint_space(knobs, request.knobs)  # faults before the load
        calibration = None
        if request.calibrate:
            calibration = _calibrated(
                request, target, original, line, sized_by_load=args.workload is not None
            )
            request.workload = calibration.workload
        space = joint_space(knobs, request.knobs, useful_limits(request.workload))
        session = _Session(args, request, database, target, line, space, original, calibration)
        decision = session.run()
        if args.apply and decision.answer == "improved":
            keep = decision.chosen_config
        return EXIT_DONE if decision.met else EXIT_ANSWER_IS_NO
    finally:
        line.clear()
        leave(target, keep, line)


def _calibrated(
    request: Request, target: Target, original: Config, line: ProgressLine, *, sized_by_load: bool
) -> Calibration:
    """The load that binds, found at the baseline's settings."""
    target.apply(original)
    dial = load_dial(request.workload) if sized_by_load else prompt_dial(request.workload)

    def probe(workload: Workload, window_s: float, warmup_s: float, seed: int) -> Measurement:
        line.update(f"calibrating: {workload}")
        return measure(
            target.endpoint, workload, duration_s=window_s, warmup_s=warmup_s, seed=seed,
            slos=request.slos,
        )  # fmt: skip

    found = calibrate(
        probe, dial, request.slos, seed=request.seed,
        on_level=lambda level, ratio: line.note(
            f"  calibrating: {level:g} {dial.unit}: worst latency {ratio:.2f} × its bound"
        ),
    )  # fmt: skip
    line.note(f"  load: {found.workload} {found.note}".rstrip())
    return found


class _Session:
    """One sitting of a study: its record in the database, the search, the report."""

    def __init__(
        self,
        args: argparse.Namespace,
        request: Request,
        database: Database,
        target: Target,
        line: ProgressLine,
        space: Space,
        original: Config,
        calibration: Calibration | None,
    ) -> None:
        self.args, self.request, self.database = args, request, database
        self.target, self.line, self.space, self.original = target, line, space, original
        stored = (request.resumed.budget or {}) if request.resumed is not None else {}
        calibrated_s = calibration.spent_s if calibration else stored.get("calibration_s", 0.0)
        self.plan: Plan = plan(
            request.budget, calibrated_s, window_s=request.window_s, warmup_s=request.warmup_s
        )
        self.study = self._record(calibrated_s)
        self.ledger = StudyLedger(database, self.study, request.slos, request.workload)
        self.calibrated_s = calibrated_s
        self.before_s = calibrated_s + self.ledger.spent_s

    def run(self) -> Decision:
        """Search and report; the study's state follows."""
        search = self._search()
        if self.request.resumed is not None and search.pace.left() < 1:
            self.line.note(
                f"nothing is measured: {self.request.name} has used its --budget "
                f"{self.request.budget.text} ({self._used()}); a larger one goes on"
            )
        try:
            decision = optimize(search)
        except KeyboardInterrupt:
            self.database.update_study(self.study.id, state="stopped")
            self.line.note(f"kept: {self._used()}; go on with: {self._resume()}")
            raise
        except Exception:
            self.database.update_study(self.study.id, state="failed")
            raise
        self._report(decision)
        return decision

    def _search(self) -> Search:
        narrator = Narrator(self.line, self.request.objective, self.request.slos)
        for outcome in self.ledger.outcomes:
            narrator.remember(outcome)
        lab = Lab(
            self.target, self.request.workload, self.request.slos, measure,
            self.plan.window_s, self.plan.warmup_s, narrator.progress,
        )  # fmt: skip
        proposer = Proposer(
            self.space, self.request.objective, self.request.slos,
            sampler_name=self.args.sampler, seed=self.request.seed,
            name=self.study.optuna_study_name, storage=self.database.optuna_storage(),
        )  # fmt: skip
        proposer.recover(self.ledger.outcomes)
        pace = Pace(self.request.budget, self.plan, self.ledger, time.monotonic, self.before_s)
        return Search(
            lab, self.ledger, proposer, self.space, self.request.objective, self.plan, pace,
            narrator, self.original, self.request.seed,
        )  # fmt: skip

    def _record(self, calibrated_s: float) -> Study:
        """Create the study, or take up the stored one."""
        request = self.request
        fields: dict[str, Any] = {
            "slos": str(request.slos),
            "objective": str(request.objective),
            "space": self.space.as_dict(),
            "budget": {
                "text": request.budget.text, "calibration_s": calibrated_s, **self.plan.as_dict(),
            },
            "optuna_study_name": history_name(
                request.name, self.space, request.objective, request.slos
            ),
            "state": "running",
        }  # fmt: skip
        if request.resumed is not None:
            return self.database.update_study(request.resumed.id, **fields)
        return self.database.create_study(
            request.name,
            command=command_text(),
            target=self.target.describe() | {"original_config": self.original},
            workload=request.workload.as_dict(),
            seed=request.seed,
            **fields,
        )

    def _report(self, decision: Decision) -> None:
        about = self.target.describe()
        model, engine = str(about.get("model") or ""), str(about.get("kind"))
        nearest = closest(self.ledger.outcomes)
        result = result_dict(
            decision, self.request.objective, model=model, engine=engine,
            outcomes=self.ledger.outcomes, nearest=nearest,
        )  # fmt: skip
        self.database.update_study(self.study.id, state="done", result=result)
        self.line.clear()
        if self.args.json:
            print_json({"study": self.study.name, "workload": str(self.request.workload)} | result)
            return
        lines = report_lines(
            decision, self.request.objective, self.request.slos, model=model, engine=engine,
            load=load_text(
                self.request.workload, self.request.seed, self.plan.window_s, self.plan.warmup_s
            ),
            study=self.study.name, resume=self._resume(), outcomes=self.ledger.outcomes,
            nearest=nearest,
        )  # fmt: skip
        print("\n".join(lines))

    def _used(self) -> str:
        """What the study has cost so far, all sittings together."""
        spent_s = self.calibrated_s + self.ledger.spent_s
        return f"{count_text(len(self.ledger.outcomes), 'measurement')} in {spent_s:.0f} s"

    def _resume(self) -> str:
        return (
            f"{resume_text(self.args, self.study.name)}\n"
            f"  TIME counts the whole study, which has taken {self._used()} so far"
        )
