"""What `tuner verify` does. Whatever ends it, what was measured is kept, and the server is left at
its own settings unless the better ones were to stay."""

from __future__ import annotations

import argparse
import contextlib
from dataclasses import asdict

from storage import Database, NewVerification, StorageError, Study, open_database
from tuner.cli.baseline_diagnosis import store_diagnosis
from tuner.cli.common import (
    EXIT_ANSWER_IS_NO,
    EXIT_DONE,
    ProgressLine,
    check_measurable,
    print_json,
    print_lines,
    task_from,
)
from tuner.cli.cut_off import put_back
from tuner.cli.invocation import command_text, study_name
from tuner.cli.targets import STARTS_LATER, leave, started, target_from
from tuner.errors import UserError
from tuner.measure import measure
from tuner.measure.progress import Progress
from tuner.quality import Task
from tuner.quality.check import check_of
from tuner.report.flags import Served
from tuner.report.optimize import result_dict
from tuner.report.verify import (
    history_lines,
    realised_dict,
    side_effect_dict,
    verify_dict,
    verify_lines,
)
from tuner.report.words import load_text
from tuner.search.budget import DEFAULT_WARMUP_S, DEFAULT_WINDOW_S
from tuner.search.candidates import closest
from tuner.search.each_load import EachLoad
from tuner.search.ledger import StudyLedger, keep_whole
from tuner.search.levels import LOOKS, MAX_ROUNDS
from tuner.search.objective import Objective
from tuner.search.trial import Lab, Outcome
from tuner.search.workers import alone
from tuner.slo import SloSet, parse_slos
from tuner.targets import Target
from tuner.targets.base import config_text
from tuner.units import parse_duration_s, show
from tuner.verify.history import records
from tuner.verify.predict import Prediction
from tuner.verify.proof import Answer, Proof, measured, prove
from tuner.verify.proposal import Config, Proposal, objective_of, of_knob, of_node
from tuner.verify.watch import Seen, Watched
from tuner.workload import Workload, parse_workload


def show_history(args: argparse.Namespace) -> int:
    """Which advice has held up."""
    with open_database(args.database, read_only=True) as database:
        rows = database.list_verifications()
    if args.json:
        print_json({
            "advice": [record.as_dict() for record in records(rows)],
            "verifications": [asdict(row) for row in rows],
        })  # fmt: skip
    else:
        print_lines(history_lines(rows))
    return EXIT_DONE


def run_verify(args: argparse.Namespace) -> int:
    """The exit code: 0 when the advice holds, 1 when not. Raises UserError, StorageError,
    KeyboardInterrupt."""
    if not args.node and not args.knob:
        raise UserError("what is to be verified? Give --node KEY, --knob NAME=VALUE or --history")
    if not LOOKS[0] <= args.pairs <= MAX_ROUNDS:
        raise UserError(f"--pairs must be {LOOKS[0]} to {MAX_ROUNDS}, got {args.pairs}")
    slos, workload = parse_slos(args.slo), parse_workload(args.workload)
    objective = objective_of(args.node or "", slos, args.figure)
    window_s, warmup_s = _durations(args)
    task = task_from(args.quality)
    check_measurable(slos, quality=task is not None, price=None)
    with open_database(args.database) as database:
        target = target_from(args, [args.knob] if args.knob else [])
        if target.kind in STARTS_LATER and args.knob:
            of_knob(args.knob, target.knobs(), objective)
        with started(target):
            put_back(database, target, ProgressLine(quiet=args.quiet))
            sitting = _Sitting(args, database, target, slos, workload, objective, task)
            with alone(sitting.name, database.optuna_storage()):  # seen to be alive
                return sitting.run(window_s, warmup_s)


class _Sitting:
    """One verification: its study, its measurements, its answer."""

    def __init__(
        self,
        args: argparse.Namespace,
        database: Database,
        target: Target,
        slos: SloSet,
        workload: Workload,
        objective: Objective,
        task: Task | None,
    ) -> None:
        self.args, self.database, self.target, self.task = args, database, target, task
        self.name = study_name("verify")
        self.slos, self.workload, self.objective = slos, workload, objective
        self.knobs = target.knobs()
        self.before: Config = {name: knob.value for name, knob in self.knobs.items()}
        self.proposal = of_knob(args.knob, self.knobs, objective) if args.knob else None
        self.line = ProgressLine(quiet=args.quiet)
        self.now = ""

    def run(self, window_s: float, warmup_s: float) -> int:
        watched = Watched(measure, self.slos)
        lab = Lab(
            self.target, self.workload, self.slos, watched, window_s, warmup_s, self._progress,
            quality=check_of(self.task, ()),
        )  # fmt: skip
        study = self._study(window_s, warmup_s)
        ledger = StudyLedger(self.database, study, self.slos, self.workload)
        keep = self.before
        try:
            self._began(1, self.before)
            first = measured(lab, self.before, self.args.seed)
            ledger.add(first)
            self._done(first)
            if watched.seen is not None:
                store_diagnosis(self.database, first, watched.seen.diagnosis)
            proof = Proof(self._proposal(watched.seen), self._goal())
            answer = prove(
                lab, ledger, proof, first, pairs=self.args.pairs, seed=self.args.seed,
                began=self._began, done=self._done,
            )  # fmt: skip
            applied = self.args.apply and answer.outcome == "holds"
            keep = proof.proposal.after if applied else self.before
            self._store(study.id, proof, answer, applied)
            self.database.update_study(study.id, state="done")
        except KeyboardInterrupt as stopped:
            self.database.update_study(study.id, state="stopped")
            keep_whole(ledger, stopped)
            raise
        except Exception:
            with contextlib.suppress(StorageError):  # what ended it is told
                self.database.update_study(study.id, state="failed")
            raise
        finally:
            self.line.clear()
            leave(self.target, keep, self.line)
        load = load_text(self.workload, self.args.seed, window_s, warmup_s)
        return self._show(proof, answer, load, study.name, applied)

    def _proposal(self, seen: Seen | None) -> Proposal:
        """The knob's, or that of the node, which must fire under this load."""
        if self.proposal is not None:
            return self.proposal
        key = str(self.args.node)
        if seen is None:
            raise UserError("the server exports no metrics, so that no node can be judged")
        node = next((n for n in seen.diagnosis.nodes if n.key == key), None)
        if node is None:
            known = ", ".join(n.key for n in seen.diagnosis.nodes)
            raise UserError(f"--node {key!r} is no node of the tree; it has {known}")
        if not node.firing:
            firing = [n.key for n in seen.diagnosis.causes if n.levers]
            rest = f"these fire: {', '.join(firing)}" if firing else "no node fires that has a knob"
            raise UserError(
                f"node {key} ({node.title}) does not fire under {self.workload}: {node.summary}; "
                f"{rest}. Give the --workload and --slo under which it does, or --knob NAME=VALUE"
            )
        return of_node(node, self.knobs, self.objective, self.target.kind)

    def _goal(self) -> EachLoad:
        return EachLoad((self.objective,), self.slos, (self.workload,))

    def _study(self, window_s: float, warmup_s: float) -> Study:
        what = f"node {self.args.node}" if self.args.node else str(self.args.knob)
        return self.database.create_study(
            self.name, command=command_text(), slos=str(self.slos),
            seed=self.args.seed, target=self.target.describe() | {"original_config": self.before},
            workload=self.workload.as_dict(), objective=str(self.objective),
            space={"axes": [what], "fixed": self.before},
            budget={"pairs": self.args.pairs, "window_s": window_s, "warmup_s": warmup_s},
        )  # fmt: skip

    def _began(self, pair: int, config: Config) -> None:
        self.now = f"pair {pair} of at most {self.args.pairs}, {self._named(config)}"
        self.line.update(self.now)

    def _named(self, config: Config) -> str:
        side = "before" if config == self.before else "after"
        changed = {n: v for n, v in config.items() if self.before.get(n) != v}
        return f"{side} ({config_text(changed)})" if changed else side

    def _progress(self, progress: Progress) -> None:
        self.line.update(f"{self.now} · {progress.clock()}")

    def _done(self, outcome: Outcome) -> None:
        made = outcome.measurement
        figure = made.summary.get(self.objective.key) if made is not None else None
        told = f"{outcome.state}: {outcome.failure_reason}"
        if outcome.ok and figure is not None:
            told = f"{self.objective.key} {show(figure.value, figure.unit)}"
        self.line.note(f"  {self.now}: {told}")

    def _store(self, study_id: int, proof: Proof, answer: Answer, applied: bool) -> None:
        proposal, about = proof.proposal, self.target.describe()
        predicted = proof.prediction
        self.database.add_verification(
            NewVerification(
                knob=proposal.knob, direction=proposal.direction, before=proposal.before,
                after=proposal.after, figure=proposal.objective.key, outcome=answer.outcome,
                study_id=study_id, target=about.get("url"), node=proposal.node or None,
                workload=self.workload.as_dict(), slos=str(self.slos),
                predicted=predicted.as_dict() if isinstance(predicted, Prediction) else None,
                realised=realised_dict(proof), side_effects=side_effect_dict(proof),
                node_before=proof.node_state(proposal.before),
                node_after=proof.node_state(proposal.after), reason=answer.reason,
                applied=applied,
            )
        )  # fmt: skip
        decision = proof.decision
        if decision is None:
            return
        result = result_dict(
            decision, proof.goal, served=Served.by(about),
            outcomes=proof.outcomes, nearest=closest(proof.outcomes),
        )  # fmt: skip
        why_not = predicted if isinstance(predicted, str) else ""
        self.database.update_study(study_id, result=result | {"why_no_prediction": why_not})

    def _show(self, proof: Proof, answer: Answer, load: str, study: str, applied: bool) -> int:
        if self.args.json:
            print_json({"study": study} | verify_dict(proof, answer, load, applied))
        else:
            print_lines(verify_lines(proof, answer, load, study))
        return EXIT_DONE if answer.outcome == "holds" else EXIT_ANSWER_IS_NO


def _durations(args: argparse.Namespace) -> tuple[float, float]:
    window_s, warmup_s = DEFAULT_WINDOW_S, DEFAULT_WARMUP_S
    if args.duration is not None:
        window_s = parse_duration_s(args.duration, "--duration")
    if args.warmup is not None:
        warmup_s = parse_duration_s(args.warmup, "--warmup", zero_allowed=True)
    return window_s, warmup_s
