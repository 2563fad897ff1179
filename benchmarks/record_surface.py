"""Measures a full grid of knob settings on this engine, several times over, in random order.

    python benchmarks/record_surface.py --database surface.db

The study it leaves (raw records of every run) is what benchmarks/tuner_efficiency.py replays. Each
repetition visits the whole grid before the next begins, so that a slow drift of the machine is
noise of every point and not of some. Run again after an end of any kind, it goes on.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
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
GRID: dict[str, tuple[Setting, ...]] = {
    "max_num_seqs": (2, 4, 8, 16, 32),
    "chunk_size": (64, 128, 256, 512, 1024),
    "gpu_memory_utilization": (0.58, 0.65, 0.9),
}
SERVE_ARGS = (
    "--device-memory", "750MiB", "--max-model-len", "1024", "--chunk-size-limit", "1024",
    "--max-num-seqs-limit", "32", "--max-num-seqs", "32", "--chunk-size", "1024",
    "--no-enable-prefix-caching",
)  # fmt: skip
"""Little enough memory that its lowest share holds about a third of the load's sequences."""

WORKLOAD = "prompt=lognormal(200,0.5),output=lognormal(24,0.4),concurrency=16"
SLOS = ("ttft_p95<2s", "tpot_p95<120ms")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--database", default="surface.db", help="SQLite file (%(default)s)")
    parser.add_argument("--repeat", type=int, default=2, help="runs of each point (%(default)s)")
    parser.add_argument("--window", type=float, default=9.0, help="seconds (%(default)s)")
    parser.add_argument("--warmup", type=float, default=2.5, help="seconds (%(default)s)")
    args = parser.parse_args()
    target = open_target(TargetOptions(kind="slotune", serve_args=SERVE_ARGS))
    slos, workload = parse_slos(list(SLOS)), parse_workload(WORKLOAD)
    lab = Lab(target, workload, slos, measure, args.window, args.warmup)
    with open_database(args.database) as database:
        try:
            target.start()
            study = _study(database, target.describe(), workload.as_dict(), str(slos), vars(args))
            record(lab, database, study, args.repeat)
        finally:
            target.stop()
    return 0


def record(lab: Lab, database: Database, study: Study, repeat: int) -> None:
    """The runs still to be made; the study's state says at the end whether all of them are."""
    ledger = StudyLedger(database, study, lab.slos, lab.workload)
    state: StudyState = "stopped"
    database.update_study(study.id, state="running")
    try:
        for place, (seed, config) in enumerate(left(ledger, repeat), 1):
            outcome = run_trial(lab, config, stage="search", seed=seed)
            ledger.add(outcome)
            print(place, time.strftime("%H:%M:%S"), config, _told(outcome.measurement))
        state = "done"
    finally:
        database.update_study(study.id, state=state)


def left(ledger: StudyLedger, repeat: int) -> list[tuple[int, dict[str, Setting]]]:
    """(seed, configuration) of the runs still to be made, repetition by repetition."""
    made = {(one.seed, tuple(sorted(one.config.items()))) for one in ledger.outcomes}
    points = [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]
    found = []
    for seed in range(repeat):
        random.Random(seed).shuffle(points)
        found += [(seed, dict(point)) for point in points]
    return [one for one in found if (one[0], tuple(sorted(one[1].items()))) not in made]


def _study(
    database: Database, target: dict[str, object], load: dict[str, object], slos: str,
    options: dict[str, object],
) -> Study:  # fmt: skip
    kept = database.get_study(STUDY)
    if kept is not None:
        return kept
    return database.create_study(
        STUDY, command=" ".join(sys.argv), target=target, workload=load, slos=slos,
        objective="maximize output_tps", space={"grid": {n: list(v) for n, v in GRID.items()}},
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
