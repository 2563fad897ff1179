"""Which cause the diagnosis names first, against the one that was planted.

    python benchmarks/diagnosis_confusion.py [--seeds 10] [--json]

Runs every provoked experiment of tests/tuner/diagnosis/experiments.py with each seed: the engine's
own scheduler, core and metrics around a device of known physics, in virtual time, so that a busy
machine changes nothing but the duration. Rows are planted causes, columns what was named first.
A healthy run is one in which nothing may be named, at any of its looks. Then the proposed lever is
pulled, and `cleared` counts the runs in which nothing fires any more.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.tuner.diagnosis.experiments import (
    EXPERIMENTS,
    NOTHING,
    Experiment,
    first_cause,
    named_in,
    watched,
)
from tuner.diagnosis import History
from tuner.stats.rates import clopper_pearson

EXIT_CONFUSED = 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10, help="runs per experiment (default 10)")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    args = parser.parse_args()
    named: dict[str, Counter[str]] = {}
    cleared: Counter[str] = Counter()
    for experiment in EXPERIMENTS:
        named[experiment.name] = Counter()
        for seed in range(args.seeds):
            cause, mended = run(experiment, seed)
            named[experiment.name][cause] += 1
            cleared[experiment.name] += mended
        print(f"{experiment.name}: {dict(named[experiment.name])}", file=sys.stderr, flush=True)
    if args.json:
        print(json.dumps({"named": named, "cleared": cleared, "seeds": args.seeds}))
    else:
        print("\n".join(table(named, cleared, args.seeds)))
    right = sum(named[e.name][e.node] for e in EXPERIMENTS)
    return 0 if right == args.seeds * len(EXPERIMENTS) else EXIT_CONFUSED


def run(experiment: Experiment, seed: int) -> tuple[str, bool]:
    """(key of the cause named, whether pulling its lever leaves nothing firing)."""
    lab, history = experiment.plant(seed), History()
    cause = named_in(lab, experiment, history)
    experiment.mend(lab)
    after = first_cause(watched(lab, experiment, experiment.mended_s, history))
    return cause, after == NOTHING


def table(named: dict[str, Counter[str]], cleared: Counter[str], seeds: int) -> list[str]:
    columns = list(dict.fromkeys(e.node for e in EXPERIMENTS))
    columns += sorted({key for counts in named.values() for key in counts} - set(columns))
    lines = [
        f"| planted ({seeds} seeds each) | " + " | ".join(columns) + " | cleared |",
        "|---|" + "---|" * (len(columns) + 1),
    ]
    for experiment in EXPERIMENTS:
        counts = named[experiment.name]
        cells = [str(counts[key] or "") for key in columns]
        lines.append(
            f"| {experiment.name} | " + " | ".join(cells) + f" | {cleared[experiment.name]} |"
        )
    healthy = [e for e in EXPERIMENTS if e.node == NOTHING]
    ill = [e for e in EXPERIMENTS if e.node != NOTHING]
    right = sum(named[e.name][e.node] for e in ill)
    wrong = sum(seeds - named[e.name][NOTHING] for e in healthy)
    lines += ["", verdict("planted causes named first", right, seeds * len(ill))]
    return [*lines, verdict("healthy runs called ill", wrong, seeds * len(healthy))]


def verdict(what: str, count: int, total: int) -> str:
    low, high = clopper_pearson(count, total)
    return (
        f"{what}: {count} of {total}, {count / total:.0%} [{low:.0%}, {high:.0%}] "
        "(95 %, Clopper-Pearson)"
    )


if __name__ == "__main__":
    sys.exit(main())
