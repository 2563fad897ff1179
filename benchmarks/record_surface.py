"""Measures a full grid of knob settings on a server, several times over, in random order.

    python benchmarks/record_surface.py --database surface.db
    python benchmarks/record_surface.py --database v.db --target vllm --vllm-binary vllm --model M

The study it leaves (raw records of every run) is what benchmarks/tuner_efficiency.py replays. On
this engine, whose knobs are live, each repetition visits the whole grid before the next begins, so
that a slow drift of the machine is noise of every point and not of some. vLLM is started once for
each point, which then has all its runs. Run again after an end of any kind, it goes on.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from storage import Database, Study, open_database
from storage.rows import StudyState
from tuner.measure import Measurement, measure
from tuner.search.ledger import StudyLedger
from tuner.search.trial import Lab, run_trial
from tuner.slo import parse_slos
from tuner.targets import TargetOptions, open_target
from tuner.targets.base import Setting
from tuner.workload import parse_workload

STUDY = "surface"


@dataclass(frozen=True)
class Grid:
    """What is measured on a target. together: all runs of a point in a row, on one start."""

    axes: dict[str, tuple[Setting, ...]]
    serve_args: tuple[str, ...]
    together: bool = False


GRIDS = {
    "slotune": Grid(
        {
            "max_num_seqs": (2, 4, 8, 16, 32),
            "chunk_size": (64, 128, 256, 512, 1024),
            "gpu_memory_utilization": (0.58, 0.65, 0.9),
        },
        (
            "--device-memory", "750MiB", "--max-model-len", "1024", "--chunk-size-limit", "1024",
            "--max-num-seqs-limit", "32", "--max-num-seqs", "32", "--chunk-size", "1024",
            "--no-enable-prefix-caching",
        ),
    ),
    "vllm": Grid(
        {"max_num_seqs": (2, 4, 8, 12, 16), "chunk_size": (64, 128, 256, 512, 1024, 2048)},
        ("--max-model-len", "1024", "--no-enable-prefix-caching", "--enforce-eager"),
        together=True,
    ),
}  # fmt: skip
"""The engine has so little memory that its lowest share holds a third of the load's sequences;
vLLM does without compilation, so that its starts are short."""

WORKLOAD = "prompt=lognormal(200,0.5),output=lognormal(24,0.4),concurrency=16"
SLOS = ("ttft_p95<2s", "itl_p99<180ms")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--database", default="surface.db", help="SQLite file (%(default)s)")
    parser.add_argument("--target", choices=GRIDS, default="slotune", help="(%(default)s)")
    parser.add_argument("--vllm-binary", default="vllm", help="(%(default)s)")
    parser.add_argument("--model", help="what vLLM serves: a hub id or a folder")
    parser.add_argument("--repeat", type=int, default=2, help="runs of each point (%(default)s)")
    parser.add_argument("--window", type=float, default=9.0, help="seconds (%(default)s)")
    parser.add_argument("--warmup", type=float, default=2.5, help="seconds (%(default)s)")
    args = parser.parse_args()
    grid = GRIDS[args.target]
    target = open_target(
        TargetOptions(
            kind=args.target, model=args.model, serve_args=grid.serve_args,
            vllm_binary=args.vllm_binary,
        )
    )  # fmt: skip
    slos, workload = parse_slos(list(SLOS)), parse_workload(WORKLOAD)
    lab = Lab(target, workload, slos, measure, args.window, args.warmup)
    with open_database(args.database) as database:
        try:
            target.start()
            study = _study(database, grid, lab, vars(args))
            record(lab, database, study, grid, args.repeat)
        finally:
            target.stop()
    return 0


def record(lab: Lab, database: Database, study: Study, grid: Grid, repeat: int) -> None:
    """The runs still to be made; the study's state says at the end whether all of them are."""
    ledger = StudyLedger(database, study, lab.slos, lab.workload)
    state: StudyState = "stopped"
    database.update_study(study.id, state="running")
    try:
        for place, (seed, config) in enumerate(left(ledger, grid, repeat), 1):
            outcome = run_trial(lab, config, stage="search", seed=seed)
            ledger.add(outcome)
            print(place, time.strftime("%H:%M:%S"), config, _told(outcome.measurement))
        state = "done"
    finally:
        database.update_study(study.id, state=state)


def left(ledger: StudyLedger, grid: Grid, repeat: int) -> list[tuple[int, dict[str, Setting]]]:
    """(seed, configuration) of the runs still to be made, repetition by repetition or point by
    point."""
    made = {(one.seed, tuple(sorted(one.config.items()))) for one in ledger.outcomes}
    if grid.together:
        found = [(seed, point) for point in _shuffled(grid, 0) for seed in range(repeat)]
    else:
        found = [(seed, point) for seed in range(repeat) for point in _shuffled(grid, seed)]
    return [one for one in found if (one[0], tuple(sorted(one[1].items()))) not in made]


def _shuffled(grid: Grid, seed: int) -> list[dict[str, Setting]]:
    names, values = grid.axes.keys(), grid.axes.values()
    points = [dict(zip(names, settings, strict=True)) for settings in itertools.product(*values)]
    random.Random(seed).shuffle(points)
    return points


def _study(database: Database, grid: Grid, lab: Lab, options: dict[str, object]) -> Study:
    kept = database.get_study(STUDY)
    if kept is not None:
        if (kind := (kept.target or {}).get("kind")) != lab.target.kind:
            raise SystemExit(
                f"{database.location} holds a surface of {kind}; give --database another file for "
                f"one of {lab.target.kind}"
            )
        return kept
    return database.create_study(
        STUDY, command=" ".join(sys.argv), target=lab.target.describe(),
        workload=lab.workload.as_dict(), slos=str(lab.slos), objective="maximize output_tps",
        space={"grid": {name: list(values) for name, values in grid.axes.items()}},
        budget=dict(options), seed=0, state="running",
    )  # fmt: skip


def _told(made: Measurement | None) -> str:
    figures = made.summary if made is not None else {}
    return " · ".join(
        f"{key} {figures[key].value:.3g} [{figures[key].low:.3g}, {figures[key].high:.3g}]"
        for key in ("output_tps", "ttft_p95", "tpot_p95")
        if key in figures
    )


if __name__ == "__main__":
    sys.exit(main())
