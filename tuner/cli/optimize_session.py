"""One sitting of a study: its record in the database, the search, the report.

Several sittings may run at once, each with a server of its own: they share the record, the
measurements and the sampler's history (tuner.search.workers).
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Mapping
from typing import Any

from storage import Database, StorageError, Study, StudyExistsError
from tuner.cli.baseline_diagnosis import BaselineDiagnosis, stored_levers
from tuner.cli.common import ProgressLine, print_json, print_lines
from tuner.cli.invocation import command_text, resume_text
from tuner.cli.narrate import Narrator
from tuner.cli.optimize_record import plan_of
from tuner.cli.optimize_request import Request
from tuner.cli.targets import STARTS_LATER
from tuner.measure import measure
from tuner.quality.check import check_of
from tuner.report.flags import Served
from tuner.report.optimize import report_lines, result_dict
from tuner.report.words import load_text
from tuner.search.budget import Plan, shortage
from tuner.search.candidates import closest
from tuner.search.capacity import MOST_PROBES
from tuner.search.decide import Config, Decision
from tuner.search.ledger import StudyLedger, keep_whole
from tuner.search.levels import LOOKS
from tuner.search.objective import CAPACITY
from tuner.search.optimize import Search, optimize
from tuner.search.pace import Pace
from tuner.search.proposals import Proposer, history_name
from tuner.search.ruled_out import arithmetic
from tuner.search.space import Space
from tuner.search.trial import Lab
from tuner.search.trials import number_of, trials_of
from tuner.search.workers import Workers
from tuner.targets import Target, TargetError
from tuner.units import count_text

START = "start_s"
"""In a study's budget: what a start of the server took."""

SEED_STEP = 10_007
"""Between the samplers of workers that joined one after the other."""


class Sitting:
    def __init__(
        self,
        args: argparse.Namespace,
        request: Request,
        database: Database,
        target: Target,
        line: ProgressLine,
        space: Space,
        original: Config,
        prepared_s: float,
    ) -> None:
        """prepared_s: see plan_of; of a study that is resumed, its own counts. It is stored as
        calibration_s, a start of the server included."""
        self.args, self.request, self.database = args, request, database
        self.target, self.line, self.space, self.original = target, line, space, original
        self.goal = request.goal
        stored = (request.resumed.budget or {}) if request.resumed is not None else {}
        self.prepared_s = prepared_s or stored.get("calibration_s", 0.0)
        self.plan = self._planned(stored)
        self.workers = Workers(request.name, database.optuna_storage())
        try:
            with self.workers.turn():
                self.study = self._record()
        except BaseException:
            self.workers.close()
            raise
        self.ledger = StudyLedger(
            database, self.study, request.slos, request.loads[0], request.price_per_hour
        )
        self.before_s = self.prepared_s + self.ledger.spent_s
        self.arithmetic = arithmetic(target.describe(), _highest_share(target), request.loads)

    def run(self) -> Decision:
        """Search and report; the study's state follows."""
        try:
            self._see_start()
            search = self._search()
            if self.request.resumed is not None and search.pace.left() < 1:
                self.line.note(
                    f"nothing is measured: {self.request.name} has used its --budget "
                    f"{self.request.budget.text} ({self._used()}); a larger one goes on"
                )
            elif short := self._shortage():
                self.line.note(f"caution: {short}")
            decision = optimize(search)
        except KeyboardInterrupt as stopped:
            self._ended("stopped")
            keep_whole(self.ledger, stopped)
            self.line.note(f"kept: {self._used()}; go on with: {self._resume()}")
            raise
        except Exception:
            with contextlib.suppress(StorageError):  # what ended it is told
                self._ended("failed")
            raise
        self._report(decision)
        return decision

    def _planned(self, stored: Mapping[str, Any]) -> Plan:
        """stored: the study's budget, which tells what a start takes once one was seen."""
        knobs = self.target.knobs()
        slow = [knobs[name].cost_s for name in self.space.names if not knobs[name].live]
        return plan_of(self.request, self.prepared_s, stored.get(START, max(slow, default=0.0)))

    def _see_start(self) -> None:
        """Of a server that is started for each configuration, before anything is measured: start it
        for the baseline and plan with the time that took. A start that fails is told by the
        baseline's measurement, which tries it again."""
        begun = START in (self.study.budget or {}) or self.ledger.outcomes
        if self.target.kind not in STARTS_LATER or begun or self.arithmetic.why_not(self.original):
            return
        self.line.note(
            f"  starting {self.target.kind} for the baseline; logs are in {self.args.log_dir}"
        )
        began_s = time.monotonic()
        try:
            self.target.apply(self.original)
        except TargetError:
            return
        finally:
            self.prepared_s += time.monotonic() - began_s
            self.before_s = self.prepared_s
        with self.workers.turn():
            now = self.database.get_study(self.study.id) or self.study
            self.plan = self._planned(now.budget or {})
            budget = (now.budget or {}) | self.plan.as_dict()
            budget |= {START: self.plan.change_s, "calibration_s": self.prepared_s}
            self.study = self.database.update_study(self.study.id, budget=budget)

    def _shortage(self) -> str:
        most = MOST_PROBES if self.goal.until_decided else None
        return shortage(self.request.budget, self.plan, LOOKS[0], most)

    def close(self) -> None:
        self.workers.close()

    def _ended(self, state: str) -> None:
        """Of the study, unless another worker is still at it."""
        if not self.workers.others_alive():
            self.database.update_study(self.study.id, state=state)

    def _search(self) -> Search:
        narrator = Narrator(self.line, self.goal.objectives[0], self.goal.slos, self.goal)
        for outcome in self.ledger.outcomes:
            narrator.remember(outcome)
        watched = BaselineDiagnosis(self.database, narrator, measure, self.request.slos)
        lab = Lab(
            self.target, self.request.loads[0], self.request.slos, watched.measure,
            self.plan.window_s, self.plan.warmup_s, narrator.progress,
            price_per_hour=self.request.price_per_hour,
            quality=check_of(self.request.task, self.ledger.outcomes),
        )  # fmt: skip
        proposer = Proposer(
            self.space, self.goal, sampler_name=self.args.sampler,
            seed=self.request.seed + SEED_STEP * self.workers.place,
            name=self.study.optuna_study_name, storage=self.database.optuna_storage(),
            rules_out=self.arithmetic.rules_out, worker=self.workers.me, alive=self.workers.alive,
        )  # fmt: skip
        with self.workers.turn():
            proposer.recover(trials_of(self.ledger.outcomes))
        pace = Pace(self.request.budget, self.plan, self.ledger, time.monotonic, self.before_s)
        return Search(
            lab, self.ledger, proposer, self.space, self.goal, self.plan, pace, watched,
            self.original, self.request.seed, self.workers, self.arithmetic,
            levers=lambda: stored_levers(self.database, self.ledger.outcomes),
        )  # fmt: skip

    def _record(self) -> Study:
        """Create the study, or take up the stored one; inside a turn. StudyExistsError where
        another worker has sized its load meanwhile."""
        request = self.request
        fields: dict[str, Any] = {
            "slos": str(request.slos),
            "objective": str(request.objectives[0]),
            "space": self.space.as_dict() | request.stored_goal(),
            "budget": {
                "text": request.budget.text, "calibration_s": self.prepared_s,
                **self.plan.as_dict(),
            },
            "optuna_study_name": history_name(request.name, self.space, self.goal),
            "state": "running",
        }  # fmt: skip
        target = self.target.describe() | {"original_config": self.original}
        if request.resumed is None:
            return self.database.create_study(
                request.name, command=command_text(), target=target,
                workload=request.stored_loads(), seed=request.seed, **fields,
            )  # fmt: skip
        now = self.database.get_study(request.resumed.id) or request.resumed
        if now.workload is None:
            fields["workload"] = request.stored_loads()
        elif request.calibrate:
            raise StudyExistsError(f"another worker has sized the load of study {now.name!r}")
        if now.target is None:
            fields["target"] = target
        else:
            self.original = dict(now.target["original_config"])
        return self.database.update_study(now.id, **fields)

    def _report(self, decision: Decision) -> None:
        about = self.target.describe()
        served = Served.by(about)
        outcomes, ruled_out = self.ledger.outcomes, self.arithmetic.told
        nearest = closest(outcomes)
        result = result_dict(
            decision,
            self.goal,
            served=served,
            outcomes=outcomes,
            nearest=nearest,
            ruled_out=ruled_out,
        )
        self.database.update_study(self.study.id, state="done", result=result)
        self.line.clear()
        loads = " and ".join(map(str, self.request.loads))
        if self.args.json:
            print_json({"study": self.study.name, "workload": loads} | result)
            return
        lines = report_lines(
            decision, self.goal, served=served,
            load=load_text(
                loads, self.request.seed, self.plan.window_s, self.plan.warmup_s,
                searched=self.goal.objectives[0].key == CAPACITY,
            ),
            study=self.study.name, resume=self._resume(), outcomes=outcomes, nearest=nearest,
            ruled_out=ruled_out,
        )  # fmt: skip
        print_lines(lines)

    def _used(self) -> str:
        """What the study has cost so far, all sittings together."""
        spent_s = self.prepared_s + self.ledger.spent_s
        return f"{count_text(len(self.ledger.outcomes), 'measurement')} in {spent_s:.0f} s"

    def _resume(self) -> str:
        unit = "TIME" if self.request.budget.trials is None else "N trials"
        used = count_text(len(trials_of(self.ledger.outcomes)), "trial")
        return (
            f"{resume_text(self.args, self.study.name, unit)}\n"
            f"  {unit.split()[0]} counts the whole study, which has taken {used}, {self._used()} "
            "so far"
        )


def _highest_share(target: Target) -> float:
    """Of device memory that the server may be told to use; 0 where it does not say."""
    knob = target.knobs().get("gpu_memory_utilization")
    if knob is None or knob.live is False:
        return 0.0
    return number_of({"share": knob.high}, "share") or 0.0
