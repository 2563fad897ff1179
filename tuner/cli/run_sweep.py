"""What `tuner sweep` does. Whatever ends it, the server gets its own configuration back."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from storage import Database, open_database
from tuner.cli.common import EXIT_ANSWER_IS_NO, EXIT_DONE, ProgressLine, print_json
from tuner.cli.invocation import command_text, study_name
from tuner.cli.narrate import Narrator
from tuner.cli.targets import leave, target_from
from tuner.errors import UserError
from tuner.measure import measure
from tuner.report.sweep import best_point, sweep_dict, sweep_lines
from tuner.report.words import load_text
from tuner.search.budget import DEFAULT_WARMUP_S, DEFAULT_WINDOW_S, Budget, plan
from tuner.search.ledger import StudyLedger
from tuner.search.objective import Objective
from tuner.search.pace import Pace
from tuner.search.space import Axis, check_names, joint_space
from tuner.search.sweep import Config, SweepPoint, configurations, points_of, sweep
from tuner.slo import SloSet, parse_slos
from tuner.targets import Target, TargetError
from tuner.trial import Lab
from tuner.units import count_text, parse_duration_s
from tuner.workload import Workload, parse_workload


def run_sweep(args: argparse.Namespace) -> int:
    """The exit code. Raises UserError, StorageError, KeyboardInterrupt."""
    if len(args.knob) != 1:
        raise UserError("a sweep varies one --knob; `tuner optimize` varies several together")
    if args.repeat < 1:
        raise UserError(f"--repeat must be at least 1, got {args.repeat}")
    slos, workload = parse_slos(args.slo), parse_workload(args.workload)
    check_names(args.knob)
    window_s, warmup_s = _durations(args)
    with open_database(args.database) as database:
        target = target_from(args)
        if target.kind == "vllm":
            joint_space(target.knobs(), args.knob)
        try:
            target.start()
            return _sweep(args, database, target, slos, workload, (window_s, warmup_s))
        except TargetError as error:
            tail = f"\nend of the server's log:\n{error.log_tail}" if error.log_tail else ""
            raise UserError(f"{error.reason}{tail}") from error
        finally:
            target.stop()


def _sweep(
    args: argparse.Namespace,
    database: Database,
    target: Target,
    slos: SloSet,
    workload: Workload,
    durations_s: tuple[float, float],
) -> int:
    knobs = target.knobs()
    baseline: Config = {name: knob.value for name, knob in knobs.items()}
    axis = joint_space(knobs, args.knob).axes[0]
    configs = configurations(axis, args.points, baseline)
    objective, line = Objective(), ProgressLine(quiet=args.quiet)
    study = database.create_study(
        study_name("sweep"), command=command_text(), slos=str(slos), seed=args.seed,
        target=target.describe() | {"original_config": baseline}, workload=workload.as_dict(),
        objective=str(objective), space={"axes": [str(axis)], "fixed": baseline},
    )  # fmt: skip
    ledger = StudyLedger(database, study, slos, workload)
    narrator = Narrator(line, objective, slos)
    lab = Lab(target, workload, slos, measure, *durations_s, narrator.progress)
    budget = Budget("", trials=len(configs) * args.repeat)
    trial_plan = plan(budget, window_s=durations_s[0], warmup_s=durations_s[1])
    state = "failed"
    try:
        outcomes = sweep(
            lab, ledger, configs, repeat=args.repeat, seed=args.seed, events=narrator,
            pace=Pace(budget, trial_plan, ledger, time.monotonic),
        )  # fmt: skip
        points = points_of(axis, configs, outcomes, lab)
        state = "done"
        database.update_study(
            study.id, result={"answer": "swept"} | _stored(axis, points, objective)
        )
    except KeyboardInterrupt:
        state = "stopped"
        kept = count_text(len(ledger.outcomes), "measurement")
        line.note(f"kept: {kept} of {budget.trials}, in study {study.name}")
        raise
    finally:
        database.update_study(study.id, state=state)
        line.clear()
        leave(target, baseline, line)
    load = load_text(workload, args.seed, *durations_s)
    return _show(args, axis, points, slos, objective, study.name, load)


def _show(
    args: argparse.Namespace,
    axis: Axis,
    points: Sequence[SweepPoint],
    slos: SloSet,
    objective: Objective,
    study: str,
    load: str,
) -> int:
    if args.json:
        print_json({"study": study} | sweep_dict(axis.name, points, objective))
    else:
        lines = sweep_lines(axis.name, points, slos, objective, load)
        print("\n".join([*lines, f"  study {study}"]))
    found = best_point(points, objective) if slos else any(point.pooled for point in points)
    return EXIT_DONE if found else EXIT_ANSWER_IS_NO


def _stored(axis: Axis, points: Sequence[SweepPoint], objective: Objective) -> dict[str, object]:
    whole = sweep_dict(axis.name, points, objective)
    return {"knob": whole["knob"], "best": whole["best"]}


def _durations(args: argparse.Namespace) -> tuple[float, float]:
    window_s, warmup_s = DEFAULT_WINDOW_S, DEFAULT_WARMUP_S
    if args.duration is not None:
        window_s = parse_duration_s(args.duration, "--duration")
    if args.warmup is not None:
        warmup_s = parse_duration_s(args.warmup, "--warmup", zero_allowed=True)
    return window_s, warmup_s
