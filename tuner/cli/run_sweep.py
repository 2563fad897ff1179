"""What `tuner sweep` does. Whatever ends it, what was measured is kept and the server gets its own
configuration back."""

from __future__ import annotations

import argparse
import contextlib
import time
from dataclasses import replace
from typing import Any

from storage import Database, StorageError, Study, open_database
from tuner.cli.baseline_diagnosis import store_diagnosis
from tuner.cli.common import EXIT_ANSWER_IS_NO, EXIT_DONE, ProgressLine, print_json, print_lines
from tuner.cli.cut_off import put_back
from tuner.cli.invocation import command_text, resume_sweep_text
from tuner.cli.narrate import Narrator
from tuner.cli.resuming import check_alike, config_to_leave
from tuner.cli.sweep_plan import advise, diagnose_baseline
from tuner.cli.sweep_request import Request, read_request
from tuner.cli.targets import STARTS_LATER, leave, started, target_from
from tuner.errors import UserError
from tuner.measure import Measurement, measure
from tuner.quality.check import check_of
from tuner.report.sweep import best_point, sweep_dict, sweep_lines
from tuner.report.words import load_text
from tuner.search.budget import Budget, plan
from tuner.search.explore import baseline_failed
from tuner.search.knob_text import knob_name
from tuner.search.ledger import StudyLedger, keep_whole
from tuner.search.objective import Objective
from tuner.search.pace import Pace
from tuner.search.space import Space, joint_space, parse_axis
from tuner.search.sweep import (
    LOAD_KNOBS,
    LOAD_RANGES,
    Config,
    Line,
    SweepPoint,
    configs_of,
    count_of,
    lines_of,
    load_lines,
    points_of,
    sweep,
)  # fmt: skip
from tuner.search.trial import Lab, run_trial
from tuner.search.workers import alone
from tuner.slo import parse_slos
from tuner.targets import Target
from tuner.units import count_text


def run_sweep(args: argparse.Namespace) -> int:
    """The exit code. Raises UserError, StorageError, KeyboardInterrupt."""
    parse_slos(args.slo)  # the options' faults before the database's
    with open_database(args.database) as database:
        request = read_request(args, database)
        with alone(request.name, database.optuna_storage()) as first:
            if not first:
                raise UserError(
                    f"another tuner sweep is measuring study {request.name!r}: wait until it has "
                    "ended, or give another --study"
                )
            return _measured(args, request, database)


def _measured(args: argparse.Namespace, request: Request, database: Database) -> int:
    target = target_from(args, request.server_knobs)
    if target.kind in STARTS_LATER and request.server_knobs:
        _space(request, target)
    with started(target):
        line = ProgressLine(quiet=args.quiet)
        check_alike(request.resumed, target, line)
        put_back(database, target, line, request.resumed)
        return _Sitting(args, request, database, target).run()


def _space(request: Request, target: Target) -> Space | None:
    """Of the server's knobs; None where none is to be turned."""
    if not request.server_knobs:
        return None
    if target.kind == "url":
        target.apply({knob_name(text): 0 for text in request.server_knobs})  # says why not
    return joint_space(target.knobs(), request.server_knobs, constraints=request.constraints)


class _Sitting:
    """One sitting of a sweep: its record in the database, the measurements, the report."""

    def __init__(
        self, args: argparse.Namespace, request: Request, database: Database, target: Target
    ) -> None:
        self.args, self.request, self.database, self.target = args, request, database, target
        self.objective, self.line = Objective(), ProgressLine(quiet=args.quiet)
        self.knobs = target.knobs()
        found: Config = {name: knob.value for name, knob in self.knobs.items()}
        self.baseline: Config = dict(request.original or found)
        self.keep = config_to_leave(request.resumed, target)
        self.narrator = Narrator(self.line, self.objective, request.slos)
        self.lab = Lab(
            target, request.loads[0], request.slos, measure, request.window_s, request.warmup_s,
            self.narrator.progress,
        )  # fmt: skip

    def run(self) -> int:
        lines = self._lines() if self.request.server_knobs or self.request.load_knobs else []
        self.study = self._record(lines)
        self.ledger = StudyLedger(
            self.database, self.study, self.request.slos, self.request.loads[0]
        )
        for outcome in self.ledger.outcomes:
            self.narrator.remember(outcome)
        check = check_of(self.request.task, self.ledger.outcomes)
        self.lab = replace(self.lab, quality=check)
        state = "failed"
        try:
            lines = lines or self._diagnosed()
            self._measure(lines)
            state = "done"
            answer = self._show(lines)
            self._ended(state)
            return answer
        except KeyboardInterrupt as stopped:
            self._ended("stopped")
            keep_whole(self.ledger, stopped)
            self._tell_kept(lines)
            raise
        except Exception:
            with contextlib.suppress(StorageError):  # what ended it is told
                self._ended(state)
            raise
        finally:
            self.line.clear()
            leave(self.target, self.keep, self.line)

    def _ended(self, state: str) -> None:
        self.database.update_study(self.study.id, state=state)

    def _lines(self) -> list[Line]:
        request = self.request
        space = _space(request, self.target)
        lines = []
        if space is not None:
            lines += lines_of(space, request.loads, request.points, self.baseline)
        for text in request.load_knobs:
            lines += load_lines(
                parse_axis(text, LOAD_RANGES), request.loads, request.points, self.baseline
            )
        return lines

    def _diagnosed(self) -> list[Line]:
        """Measure the baseline, ask the tree, and sweep what it names."""
        self.target.apply(self.baseline)
        diagnosis = diagnose_baseline(self.target, self.request.slos, self._measure_baseline)
        if diagnosis is not None:
            store_diagnosis(self.database, self.ledger.outcomes[-1], diagnosis)
        advice = advise(diagnosis, self.knobs, self.request.points)
        for text in advice.told:
            self.line.note(text)
        if not advice.axes:
            return []
        self.request.server_knobs = [str(axis) for axis in advice.axes]
        lines = self._lines()
        self.database.update_study(self.study.id, space=self._stored_space(lines))
        return lines

    def _measure_baseline(self) -> Measurement | None:
        pace = self._pace(1)
        self.narrator.begin("baseline", self.baseline, pace)
        outcome = run_trial(
            self.lab, dict(self.baseline), stage="baseline", seed=self.request.seed,
            workload=self.request.loads[0],
        )  # fmt: skip
        self.ledger.add(outcome)
        self.narrator.done(outcome)
        if outcome.state == "failed":
            raise baseline_failed(outcome, "a longer --duration or a smaller --workload")
        if outcome.state == "invalid":
            raise UserError(f"the baseline could not be measured: {outcome.failure_reason}")
        return outcome.measurement

    def _measure(self, lines: list[Line]) -> None:
        request = self.request
        sweep(
            self.lab, self.ledger, lines, self.knobs, repeat=request.repeat, seed=request.seed,
            events=self.narrator, pace=self._pace(configs_of(lines) * request.repeat),
        )  # fmt: skip

    def _pace(self, trials: int) -> Pace:
        """A trial is a configuration under all its loads, as the ledger's pace counts them."""
        budget = Budget("", trials=trials)
        each = plan(budget, window_s=self.request.window_s, warmup_s=self.request.warmup_s)
        return Pace(budget, each, self.ledger, time.monotonic)

    def _record(self, lines: list[Line]) -> Study:
        request = self.request
        fields: dict[str, Any] = {"slos": str(request.slos), "state": "running"}
        if request.resumed is not None:
            return self.database.update_study(request.resumed.id, **fields)
        return self.database.create_study(
            request.name, command=command_text(), seed=request.seed,
            target=self.target.describe() | {"original_config": self.baseline},
            workload=request.stored_loads(), objective=str(self.objective),
            space=self._stored_space(lines), budget=request.stored(), **fields,
        )  # fmt: skip

    def _stored_space(self, lines: list[Line]) -> dict[str, Any]:
        """axes: --knob texts of the server's knobs, as a later sitting reads them."""
        request = self.request
        turned = {line.axis.name for line in lines} - set(LOAD_KNOBS)
        return {
            "axes": list(request.server_knobs), "load_knobs": list(request.load_knobs),
            "constraints": list(request.constraints),
            "fixed": {n: v for n, v in self.baseline.items() if n not in turned},
        }  # fmt: skip

    def _tell_kept(self, lines: list[Line]) -> None:
        kept = count_text(len(self.ledger.outcomes), "measurement")
        total = f" of {count_of(lines, self.request.repeat)}" if lines else ""
        go_on = resume_sweep_text(self.args, self.study.name)
        self.line.note(f"kept: {kept}{total}, in study {self.study.name}; go on with: {go_on}")

    def _show(self, lines: list[Line]) -> int:
        if not lines:
            self.line.clear()
            print("no knob of this server can be turned from here")
            return EXIT_ANSWER_IS_NO
        outcomes = self.ledger.outcomes
        found = [(line, points_of(line, outcomes, self.request.slos)) for line in lines]
        told = [sweep_dict(line, points, self.objective, self.baseline) for line, points in found]
        best = next((one for one in told if one["best"]), told[0])
        self.database.update_study(
            self.study.id,
            result={"answer": "swept", "knob": best["knob"], "best": best["best"]},
        )
        self.line.clear()
        if self.args.json:
            print_json({"study": self.study.name} | told[0] | {"sweeps": told})
        else:
            print_lines([*self._text(found), f"  study {self.study.name}"])
        return EXIT_DONE if all(map(self._answered, found)) else EXIT_ANSWER_IS_NO

    def _text(self, found: list[tuple[Line, list[SweepPoint]]]) -> list[str]:
        request, lines = self.request, []
        for line, points in found:
            load = load_text(line.workload, request.seed, request.window_s, request.warmup_s)
            lines += sweep_lines(line, points, request.slos, self.objective, load, self.baseline)
        return lines

    def _answered(self, pair: tuple[Line, list[SweepPoint]]) -> bool:
        """Whether a value meets the SLOs; without SLOs, whether anything was measured."""
        points = pair[1]
        if self.request.slos:
            return best_point(points, self.objective) is not None
        return any(point.pooled for point in points)
