"""The options of `tuner optimize`, read and checked before anything starts.

A resumed study fills the gaps; what contradicts it is refused with what to do instead.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from storage import Database, Study
from storage.errors import readable
from tuner.cli.common import check_measurable, study_quality
from tuner.cli.invocation import study_name
from tuner.cli.resuming import check_made_by, original_config
from tuner.errors import UserError
from tuner.quality import Task
from tuner.search.budget import Budget, parse_budget
from tuner.search.calibrate import DEFAULT_WORKLOAD
from tuner.search.capacity import Capacity
from tuner.search.each_load import EachLoad
from tuner.search.goal import Goal
from tuner.search.objective import (
    CAPACITY,
    Objective,
    objective_from_text,
    parse_objectives,
)
from tuner.search.space import check_names
from tuner.search.trials import Config
from tuner.slo import SloSet, parse_slos
from tuner.units import parse_duration_s
from tuner.workload import Workload, parse_workload

DEFAULT_BUDGET = "10m"


@dataclass(slots=True)
class Request:
    """What is asked for. loads: at least one; calibrate: none is sized for this study yet; quality:
    the file of task; resumed: the stored study of that name."""

    slos: SloSet
    objectives: tuple[Objective, ...]
    price_per_hour: float | None
    loads: tuple[Workload, ...]
    budget: Budget
    window_s: float | None
    warmup_s: float | None
    seed: int
    knobs: list[str]
    constraints: list[str]
    calibrate: bool
    name: str
    quality: str | None
    task: Task | None
    resumed: Study | None

    @property
    def original(self) -> Config | None:
        """The first sitting's baseline: the server's own configuration as it was found."""
        return original_config(self.resumed)

    @property
    def goal(self) -> Goal:
        if self.objectives[0].key == CAPACITY:
            return Capacity(self.slos, self.loads[0])
        return EachLoad(self.objectives, self.slos, self.loads)

    def stored_goal(self) -> dict[str, Any]:
        """What of it the study's columns do not hold."""
        return {
            "objectives": [str(objective) for objective in self.objectives],
            "price_per_hour": self.price_per_hour,
            "quality": self.quality,
        }

    def stored_loads(self) -> dict[str, Any]:
        first, *others = [load.as_dict() for load in self.loads]
        return first | ({"also": others} if others else {})


def read_request(args: argparse.Namespace, database: Database) -> Request:
    """Options, and what a study of that name has stored. Raises UserError."""
    check_names(args.knob)
    study = database.get_study(args.study) if args.study else None
    if study is None:
        return _request(args, None)
    check_made_by(study, "optimize")
    with readable(f"study {study.name!r}"):
        return _request(args, study)


def _request(args: argparse.Namespace, study: Study | None) -> Request:
    stored: dict[str, Any] = (study.budget or {}) if study is not None else {}
    space: dict[str, Any] = (study.space or {}) if study is not None else {}
    price = args.price_per_hour if args.price_per_hour is not None else space.get("price_per_hour")
    quality, task = study_quality(args, space.get("quality"))
    request = Request(
        slos=parse_slos(args.slo or ([study.slos] if study is not None and study.slos else [])),
        objectives=_objectives(args, study, price),
        price_per_hour=price,
        loads=_loads(args, study),
        budget=parse_budget(
            args.budget if args.budget is not None else stored.get("text") or DEFAULT_BUDGET
        ),
        window_s=_duration(args.duration, "--duration", stored.get("window_s")),
        warmup_s=_duration(args.warmup, "--warmup", stored.get("warmup_s"), zero_allowed=True),
        seed=args.seed if study is None else study.seed or 0,
        knobs=args.knob or list(space.get("axes", [])),
        constraints=args.constraint or list(space.get("constraints", [])),
        calibrate=args.calibrate and (study is None or study.workload is None),
        name=args.study or study_name("optimize"),
        quality=quality,
        task=task,
        resumed=study,
    )
    _check(request)
    return request


def _objectives(
    args: argparse.Namespace, study: Study | None, price: float | None
) -> tuple[Objective, ...]:
    if args.maximize or args.minimize or study is None or not study.objective:
        return parse_objectives(args.maximize, args.minimize, price_per_hour=price)
    stored = (study.space or {}).get("objectives") or [study.objective]
    return tuple(objective_from_text(text) for text in stored)


def _loads(args: argparse.Namespace, study: Study | None) -> tuple[Workload, ...]:
    given = tuple(parse_workload(text) for text in args.workload)
    if twice := {str(load) for load in given if given.count(load) > 1}:
        raise UserError(f"--workload {min(twice)!r} is given twice; once is enough")
    if study is None or study.workload is None:
        default = DEFAULT_WORKLOAD if args.calibrate else None
        return given or (parse_workload(default),)
    kept: dict[str, Any] = study.workload
    stored = tuple(Workload.from_dict(values) for values in (kept, *kept.get("also", [])))
    if given and given != stored:
        raise UserError(
            f"study {study.name!r} was measured under --workload "
            f"{' and '.join(repr(str(load)) for load in stored)}; another load needs another "
            "--study"
        )
    return stored


def _check(request: Request) -> None:
    """Options that contradict each other, or lack one that another needs."""
    check_measurable(
        request.slos,
        quality=request.quality is not None,
        price=request.price_per_hour is not None,
    )
    if len(request.loads) > 1 and request.calibrate:
        raise UserError("--calibrate sizes one load: give one --workload, or sized ones without it")
    if request.objectives[0].key != CAPACITY:
        return
    if not request.slos:
        raise UserError(
            "capacity is the highest load that meets the SLOs: give one, e.g. --slo "
            '"ttft_p95<500ms"'
        )
    if len(request.loads) > 1:
        raise UserError("capacity is searched for one load: give one --workload")
    if request.calibrate:
        raise UserError("capacity searches for the load itself: leave out --calibrate")
    arrivals = request.loads[0].arrivals
    if arrivals.kind in ("at_once", "trace") or arrivals.profile is not None:
        raise UserError(
            "capacity needs a load with one steady level: rate=2 or concurrency=8, not a trace, a "
            "profile or all at once"
        )


def _duration(
    text: str | None, flag: str, stored: float | None, *, zero_allowed: bool = False
) -> float | None:
    return stored if text is None else parse_duration_s(text, flag, zero_allowed=zero_allowed)
