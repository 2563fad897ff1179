"""What `tuner optimize --executor ray` does: one worker on each place of the cluster, one report.

The study is opened here, its options checked, before the first worker starts; each worker joins it
as a sitting with a server of its own. Invariants: no worker outlives this command, and when it
ends, the study's state says how.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

from storage import Database, StudyExistsError, open_database
from storage.rows import StudyState
from tuner.cli.common import ProgressLine
from tuner.cli.executor_options import CPUS_PER_WORKER
from tuner.cli.invocation import resume_text
from tuner.cli.optimize_record import open_record
from tuner.cli.optimize_request import Request, read_request
from tuner.cli.ray_worker import FAULT_MARK, MODULE, order_of
from tuner.cli.run_optimize import Ended, check_before_start
from tuner.errors import UserError
from tuner.executor.cluster import Cluster, RaySeat, find_ray, joined
from tuner.executor.crew import Crew, End
from tuner.executor.places import Share, share_of, workers_of
from tuner.printable import shown
from tuner.units import count_text


def run_on_ray(args: argparse.Namespace) -> Ended:
    """Raises UserError, StorageError, KeyboardInterrupt."""
    line = ProgressLine(quiet=args.quiet)
    with open_database(args.database) as database:
        request = read_request(args, database)
        check_before_start(args, request, here=False)
        find_ray()
        line.note("joining the Ray cluster" if args.ray_address else "looking for a Ray cluster")
        with joined(args.ray_address) as cluster:
            _check_reach(database, cluster)
            share, count = _places(args, cluster)
            name = _opened(args, request, database)
            line.note(_about(cluster, share, count, name))
            try:
                crew = Crew(_seats(args, name, cluster, share, count), _tell, FAULT_MARK)
                ends = _run(args, name, database, crew, line)
            finally:
                _settle(database, name, "failed")
    return Ended(_show(ends, args, name), name)


def _own_name(generated: str) -> str:
    """Of a study without --study. Its workers share whatever study has its name, so that another
    one begun in the same second must have another."""
    return f"{generated}-{secrets.token_hex(4)}"


def _opened(args: argparse.Namespace, request: Request, database: Database) -> str:
    """The name of the study, which is there for the workers to join."""
    if args.study is None:
        request.name = _own_name(request.name)
    try:
        open_record(request, database)
    except StudyExistsError:  # begun meanwhile by another command
        open_record(read_request(args, database), database)
    return request.name


def _check_reach(database: Database, cluster: Cluster) -> None:
    """UserError for a database that the workers on other machines could not open."""
    if database.path is not None and not cluster.all_here():
        raise UserError(
            f"the database {database.path} is a file of this machine, and the Ray cluster has "
            "others: give --database postgresql://USER@HOST/NAME, which all of them reach"
        )


def _places(args: argparse.Namespace, cluster: Cluster) -> tuple[Share, int]:
    """What each worker owns, and how many there are to be. Raises UserError."""
    machines = cluster.machines()
    cpus = CPUS_PER_WORKER if args.cpus_per_worker is None else args.cpus_per_worker
    share = share_of(machines, args.gpus_per_worker, cpus)
    return share, workers_of(machines, share, args.workers)


def _about(cluster: Cluster, share: Share, count: int, name: str) -> str:
    machines = count_text(len(cluster.machines()), "machine")
    workers = count_text(count, "worker")
    return f"{workers} with {share} each on a Ray cluster of {machines}, study {name}"


def _seats(
    args: argparse.Namespace, name: str, cluster: Cluster, share: Share, count: int
) -> dict[str, RaySeat]:
    """The workers, started. They share the study's seed, of which trials and rounds make theirs;
    what sets their samplers apart is the order in which they join."""
    seats = {}
    for number in range(1, count + 1):
        logs = str(Path(args.log_dir) / f"worker-{number}")  # several may be on one machine
        order = order_of(args, study=name, log_dir=logs)
        seats[f"worker {number}"] = cluster.seat(["-m", MODULE], order, share)
    return seats


def _run(
    args: argparse.Namespace, name: str, database: Database, crew: Crew, line: ProgressLine
) -> list[End]:
    state: StudyState = "failed"
    try:
        return crew.run()
    except KeyboardInterrupt:
        state = "stopped"  # whatever interrupts what follows
        line.note("interrupted: the workers end their servers")
        if not crew.stop():
            line.note("not all of them did in time: Ray ends the rest")
        line.note(f"kept: {_kept(database, name)}; go on with: {resume_text(args, name)}")
        raise
    finally:
        _settle(database, name, state)


def _settle(database: Database, name: str, state: StudyState) -> None:
    """Of a study that its workers, all of them gone, have left as running."""
    study = database.get_study(name)
    if study is not None and study.state == "running":
        database.update_study(study.id, state=state)


def _kept(database: Database, name: str) -> str:
    study = database.get_study(name)
    rows = [] if study is None else database.list_measurements(study_id=study.id)
    return count_text(len(rows), "measurement")


def _show(ends: list[End], args: argparse.Namespace, name: str) -> int:
    """The report of the one that ended last: no other has seen more of the study."""
    reports = [end for end in ends if end.report]
    if not reports:
        faults = "\n".join(dict.fromkeys(end.fault for end in ends))
        raise UserError(
            f"no worker of study {name} came to its end: {faults}\n"
            f"go on with: {resume_text(args, name)}"
        )
    sys.stdout.write(reports[-1].report)
    return reports[-1].exit_code or 0


def _tell(name: str, text: str) -> None:
    lines = [f"[{name}] {shown(line)}" for line in text.splitlines()]
    print("\n".join(lines), file=sys.stderr, flush=True)
