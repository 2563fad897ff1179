"""How much machine time `tuner optimize` needs, against other procedures, on recorded surfaces.

    python benchmarks/tuner_efficiency.py [--seeds 20] [--jobs 2] [--json]
    python benchmarks/tuner_efficiency.py export --database surface.db --out FILE.json.gz

A surface is a whole grid of knob settings measured on a real engine (benchmarks/record_surface.py).
Every contestant tunes a replay of it in virtual time: no server is needed. docs/efficiency.md says
how, and what is not shown.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.efficiency import rivals
from benchmarks.efficiency.course import Contestant, Course, Task
from benchmarks.efficiency.ours import from_anywhere, slotune
from benchmarks.efficiency.score import Score, score, summary
from benchmarks.efficiency.surface import read, write
from benchmarks.efficiency.table import GRID_SHARE, goals, table
from benchmarks.efficiency.truth import Truth
from tuner.errors import UserError
from tuner.search.objective import parse_objectives
from tuner.slo import parse_slos

EXIT_USAGE = 2
SURFACE = Path(__file__).parents[1] / "fixtures" / "surfaces" / "engine-smollm2.json.gz"
OURS = "tuner optimize"
ANYWHERE = f"{OURS}, begun anywhere"
CONTESTANTS: dict[str, Contestant] = {
    OURS: partial(slotune, "auto"),
    f"{OURS} --sampler tpe": partial(slotune, "tpe"),
    f"{OURS} --sampler random": partial(slotune, "random"),
    ANYWHERE: partial(from_anywhere, "auto"),
    f"{OURS} --sampler tpe, begun anywhere": partial(from_anywhere, "tpe"),
    "random search": rivals.random_search,
    "TPE, misses score 0": rivals.tpe_penalised,
    "TPE, filtered after": rivals.tpe_filtered,
    "whole grid": rivals.grid,
}
TPE = "TPE, misses score 0"


def main() -> int:
    args = _arguments()
    try:
        return _export(args) if args.command == "export" else _compare(args)
    except (UserError, ValueError, OSError) as error:
        print(f"tuner_efficiency: {error}", file=sys.stderr)
        return EXIT_USAGE


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--surface", type=Path, default=SURFACE, help="(default: %(default)s)")
    parser.add_argument("--slo", action="append", help="(default: those of the recording)")
    parser.add_argument("--maximize", default="output_tps", help="(default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=20, help="studies each (%(default)s)")
    parser.add_argument(
        "--share", type=float, default=GRID_SHARE,
        help="the tuner's --budget, as a share of the grid's machine time (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--trials", type=int, default=50, help="of TPE and random search (%(default)s)"
    )
    parser.add_argument("--only", action="append", choices=CONTESTANTS, help="some contestants")
    parser.add_argument("--jobs", type=int, default=1, help="processes (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    commands = parser.add_subparsers(dest="command")
    export = commands.add_parser("export", help="turn a recorded study into a surface file")
    export.add_argument("--database", required=True)
    export.add_argument("--study", default="surface")
    export.add_argument("--out", type=Path, default=SURFACE)
    return parser.parse_args()


def _export(args: argparse.Namespace) -> int:
    from benchmarks.efficiency.export import exported
    from storage import open_database

    with open_database(args.database) as database:
        surface = exported(database, args.study)
    write(surface, args.out)
    print(f"{args.out}: {len(surface.points)} points, {len(surface.runs)} runs")
    return 0


def _compare(args: argparse.Namespace) -> int:
    surface = read(args.surface)
    slos = parse_slos(args.slo) if args.slo else surface.slos
    (objective,) = parse_objectives([args.maximize], [])
    task = Task(surface, slos, objective, args.share * surface.grid_s, args.trials)
    truth = Truth(surface, slos, objective)
    names = args.only or list(CONTESTANTS)
    courses = _courses(names, task, args.seeds, args.jobs)
    ours = courses.get(OURS)
    early_s = statistics.median(course.spent_s for course in ours) if ours else None
    scores = {
        name: [score(course, truth, seed, early_s) for seed, course in enumerate(found)]
        for name, found in courses.items()
    }
    print(_json(task, truth, scores) if args.json else _text(task, truth, scores))
    return 0


def _courses(names: list[str], task: Task, seeds: int, jobs: int) -> dict[str, list[Course]]:
    """Of each contestant, by seed."""
    fresh = multiprocessing.get_context("spawn")  # a fork inherits the samplers' threads, stuck
    with ProcessPoolExecutor(jobs, fresh, initializer=_given, initargs=(task,)) as pool:
        running = {
            name: [pool.submit(_course, name, seed) for seed in range(seeds)] for name in names
        }
        found = {}
        for name, studies in running.items():
            found[name] = [study.result() for study in studies]
            print(f"{name}: {seeds} studies done", file=sys.stderr, flush=True)
    return found


_tasks: list[Task] = []
"""Of this process: handed over once, for a surface is large."""


def _given(task: Task) -> None:
    _tasks[:] = [task]


def _course(name: str, seed: int) -> Course:
    return CONTESTANTS[name](_tasks[0], seed)


def _text(task: Task, truth: Truth, scores: dict[str, list[Score]]) -> str:
    surface, grid_s = task.surface, task.surface.grid_s
    rows = {name: summary(name, found) for name, found in scores.items()}
    config, value = truth.best
    feasible = sum(truth.feasible(dict(key)) for key in surface.points)
    told = " ".join(f"{name}={setting}" for name, setting in config.items())
    lines = [
        f"{surface.about}",
        f"load {surface.workload} · SLOs {task.slos} · {task.objective}",
        f"{len(surface.points)} points, {len(surface.runs)} runs; whole grid once "
        f"{grid_s / 60:.1f} min; {feasible} points meet the SLOs, the best is {told}: {value:.4g}",
        f"tuner's --budget {task.budget_s / 60:.1f} min; machine times in minutes: median (range)",
        "",
        *table(list(rows.values()), grid_s),
        "",
        f"vLLM's auto_tune procedure on this surface: at least "
        f"{rivals.auto_tune_least_s(task) / 60:.0f} min, server starts not counted",
    ]
    for name in (OURS, ANYWHERE):
        if name in rows:
            lines += ["", *goals(rows[name], rows.get(TPE), grid_s)]
    return "\n".join(lines)


def _json(task: Task, truth: Truth, scores: dict[str, list[Score]]) -> str:
    config, value = truth.best
    told: dict[str, Any] = {
        "surface": task.surface.about,
        "workload": str(task.surface.workload),
        "slos": str(task.slos),
        "objective": str(task.objective),
        "budget_s": task.budget_s,
        "trials": task.trials,
        "grid_s": task.surface.grid_s,
        "auto_tune_least_s": rivals.auto_tune_least_s(task),
        "best": {"config": config, "value": value},
        "contestants": [summary(name, found).as_dict() for name, found in scores.items()],
        "studies": {name: [asdict(one) for one in found] for name, found in scores.items()},
    }
    return json.dumps(told)


if __name__ == "__main__":
    sys.exit(main())
