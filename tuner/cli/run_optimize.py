"""What `tuner optimize` does, from parsed options to the exit code.

Invariant: whatever ends it (the end, Ctrl-C, a fault), the study's state is stored and a server
that was there before gets its own configuration back, unless --apply found a better one.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

from storage import Database, StudyExistsError, open_database
from tuner.cli.common import EXIT_ANSWER_IS_NO, EXIT_DONE, ProgressLine
from tuner.cli.cut_off import put_back
from tuner.cli.executor_options import RAY, check_executor
from tuner.cli.optimize_request import Request, read_request
from tuner.cli.optimize_session import Sitting
from tuner.cli.resuming import check_alike, config_to_leave
from tuner.cli.targets import STARTS_LATER, leave, started, target_from
from tuner.errors import UserError
from tuner.measure import Measurement, measure
from tuner.search.calibrate import Calibration, calibrate, load_dial, prompt_dial
from tuner.search.decide import Config
from tuner.search.knob_text import check_texts
from tuner.search.objective import CAPACITY
from tuner.search.space import Space, joint_space
from tuner.search.usual import useful_limits
from tuner.slo import parse_slos
from tuner.targets import Target
from tuner.targets.base import KnobRange
from tuner.workload import Workload


class Ended(NamedTuple):
    """A study that came to its end, by the name it is stored under."""

    exit_code: int
    study: str


def run_optimize(args: argparse.Namespace) -> Ended:
    """Raises UserError, StorageError, KeyboardInterrupt."""
    parse_slos(args.slo)  # the options' faults before the database's
    check_executor(args)
    if args.executor == RAY:
        from tuner.cli.run_on_ray import run_on_ray

        return run_on_ray(args)
    return run_sitting(args)


def run_sitting(args: argparse.Namespace, *, joins: bool = False) -> Ended:
    """One sitting in this process. joins: of a study that is begun, and never another one."""
    with open_database(args.database) as database:
        request = read_request(args, database)
        if joins and request.resumed is None:
            raise UserError(
                f"study {request.name!r}, which this worker was to join, is not in "
                f"{database.location} as it is seen from here: give a --database that every "
                "machine reaches"
            )
        target = check_before_start(args, request)
        with started(target):
            line = ProgressLine(quiet=args.quiet)
            check_alike(request.resumed, target, line)
            put_back(database, target, line, request.resumed)
            return Ended(_tune(args, request, database, target), request.name)


def check_before_start(args: argparse.Namespace, request: Request, *, here: bool = True) -> Target:
    """The target, with all that can be wrong before one starts, here or elsewhere, looked at.
    Raises UserError."""
    target = target_from(args, request.knobs, here=here)
    if args.apply and args.url is None:
        raise UserError("--apply needs --url: a server the tuner starts is stopped at the end")
    if target.kind in STARTS_LATER:
        _space(request, target.knobs())
    elif args.url is None:
        check_texts(request.knobs, request.constraints)
    return target


def _tune(args: argparse.Namespace, request: Request, database: Database, target: Target) -> int:
    line = ProgressLine(quiet=args.quiet)
    keep = config_to_leave(request.resumed, target)
    try:
        try:
            sitting = _begun(args, request, database, target, line)
        except StudyExistsError:
            if args.study is None:
                raise
            # Another worker has made it since it was looked for: what it has stored counts.
            request = read_request(args, database)
            keep = config_to_leave(request.resumed, target)
            sitting = _begun(args, request, database, target, line)
        try:
            decision = sitting.run()
        finally:
            sitting.close()
        if args.apply and decision.answer == "improved":
            keep = decision.chosen_config
        return EXIT_DONE if decision.met else EXIT_ANSWER_IS_NO
    finally:
        line.clear()
        leave(target, keep, line)


def _begun(
    args: argparse.Namespace,
    request: Request,
    database: Database,
    target: Target,
    line: ProgressLine,
) -> Sitting:
    """StudyExistsError when another worker has begun the same study meanwhile."""
    knobs = target.knobs()
    original = request.original or {name: knob.value for name, knob in knobs.items()}
    _space(request, knobs)  # faults before the load
    calibration = None
    if request.calibrate:
        calibration = _calibrated(
            request, target, original, line, sized_by_load=bool(args.workload)
        )
        request.loads = (calibration.workload,)
    space = _space(request, knobs)
    prepared_s = calibration.spent_s if calibration is not None else 0.0
    return Sitting(args, request, database, target, line, space, original, prepared_s)


def _space(request: Request, knobs: dict[str, KnobRange]) -> Space:
    """Default ranges end where no load is large enough for more."""
    limits = [useful_limits(load) for load in request.loads]
    useful = {}
    if request.objectives[0].key != CAPACITY:  # where the load is searched for, too
        shared = set.intersection(*(set(limit) for limit in limits))
        useful = {name: max(limit[name] for limit in limits) for name in shared}
    return joint_space(knobs, request.knobs, useful, request.constraints)


def _calibrated(
    request: Request, target: Target, original: Config, line: ProgressLine, *, sized_by_load: bool
) -> Calibration:
    """The load that binds, found at the baseline's settings."""
    target.apply(original)
    load = request.loads[0]
    dial = load_dial(load) if sized_by_load else prompt_dial(load)

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
