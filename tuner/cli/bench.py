"""`tuner bench`: one honest measurement of a running server."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from tuner.cli.common import (
    EXIT_ANSWER_IS_NO,
    EXIT_DONE,
    ProgressLine,
    add_database_option,
    add_load_options,
    add_output_options,
    print_json,
)
from tuner.errors import UserError
from tuner.units import show

if TYPE_CHECKING:
    from tuner.measure import Measurement, Progress
    from tuner.slo import SloSet, Verdict

NAME = "bench"
HELP = "measure a running server under a load, with intervals and SLO verdicts"

DEFAULT_DURATION = "30s"
DEFAULT_WARMUP = "5s"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("base_url", nargs="?", metavar="URL", help="the server, http://HOST:PORT")
    parser.add_argument("--url", help="the same as URL")
    parser.add_argument("--model", help="model name to request (default: what the server serves)")
    parser.add_argument("--api-key", help="bearer token the server asks for")
    parser.add_argument(
        "--api", choices=("completions", "chat"), default="completions",
        help="endpoint to load (default %(default)s: token-id prompts of exact length)",
    )  # fmt: skip
    add_load_options(parser)
    group = parser.add_argument_group("measurement")
    group.add_argument("--duration", default=DEFAULT_DURATION, help="window (default %(default)s)")
    group.add_argument("--warmup", default=DEFAULT_WARMUP, help="not counted (default %(default)s)")
    group.add_argument("--max-requests", type=int, metavar="N", help="end after N requests")
    group.add_argument(
        "--request-timeout", default="10m", help="a longer request has failed (default %(default)s)"
    )
    group.add_argument("--price-per-hour", type=float, metavar="$", help="for cost_per_mtok")
    group.add_argument("--no-store", action="store_true", help="keep nothing in the database")
    add_database_option(parser)
    add_output_options(parser)


def run(args: argparse.Namespace) -> int:
    from storage.errors import StorageError
    from tuner.endpoint import Endpoint, base_url
    from tuner.measure import measure
    from tuner.slo import judge, parse_slos
    from tuner.units import parse_duration_s
    from tuner.workload import parse_workload

    if args.base_url and args.url and args.base_url != args.url:
        raise UserError(f"two servers given, {args.base_url} and --url {args.url}: give one")
    url = args.base_url or args.url
    if not url:
        raise UserError("no server given: tuner bench http://HOST:PORT")
    if args.seed < 0:
        raise UserError(f"--seed must be 0 or more, got {args.seed}")
    slos = parse_slos(args.slo)
    workload = parse_workload(args.workload)
    duration_s = parse_duration_s(args.duration, "--duration")
    warmup_s = parse_duration_s(args.warmup, "--warmup", zero_allowed=True)
    if args.max_requests is not None and args.max_requests < 1:
        raise UserError(f"--max-requests must be at least 1, got {args.max_requests}")
    timeout_s = parse_duration_s(args.request_timeout, "--request-timeout")
    if args.price_per_hour is not None and not 0 < args.price_per_hour < math.inf:
        raise UserError(f"--price-per-hour must be more than 0, got {args.price_per_hour:g}")
    endpoint = Endpoint(base_url(url), args.model or "", args.api_key, args.api).probe()
    database = _open_database(args)  # before the work, so that its faults cost nothing
    line = ProgressLine(quiet=args.quiet)
    made = measure(
        endpoint, workload, duration_s=duration_s, warmup_s=warmup_s, seed=args.seed,
        max_requests=args.max_requests, slos=slos, request_timeout_s=timeout_s,
        price_per_hour=args.price_per_hour,
        on_progress=lambda progress: line.update(progress_text(progress)),
    )  # fmt: skip
    line.clear()
    verdict = judge(slos, made)
    measurement_id, not_stored = None, None
    if database is not None:
        try:
            measurement_id = _store(database, made, verdict, slos)
        except StorageError as error:  # what was measured is shown all the same
            not_stored = error
    if args.json:
        print_json({**as_dict(made, verdict), "measurement_id": measurement_id})
    else:
        from tuner.report.bench import bench_lines

        print("\n".join(bench_lines(made, verdict)))
    if not_stored is not None:
        raise not_stored
    return EXIT_ANSWER_IS_NO if verdict.state == "fail" else EXIT_DONE


def progress_text(progress: Progress) -> str:
    phase = "warm-up" if progress.warming_up else "measuring"
    return (
        f"{phase} {progress.elapsed_s:4.0f}/{progress.total_s:.0f} s · in flight "
        f"{progress.in_flight} · done {progress.completed} · failed {progress.failed} · "
        f"TTFT p95 {show(progress.ttft_p95_s, 's')} · {progress.output_tps:.0f} tok/s (last 5 s)"
    )


def as_dict(made: Measurement, verdict: Verdict) -> dict[str, Any]:
    """The measurement as JSON-able values."""
    return {
        "url": made.endpoint.base_url,
        "model": made.endpoint.model,
        "workload": str(made.workload),
        "seed": made.seed,
        **made.summary_dict(),
        "server": made.server.as_dict() if made.server else None,
        "verdict": verdict.as_dict(),
    }


def _open_database(args: argparse.Namespace) -> Any:
    if args.no_store:
        return None
    from storage import open_database

    return open_database(args.database)


def _store(database: Any, made: Measurement, verdict: Verdict, slos: SloSet) -> int:
    from tuner.records import to_columns

    failed = made.counts["ok"] == 0
    try:
        return int(
            database.add_measurement(
                stage="bench",
                config={"url": made.endpoint.base_url, "model": made.endpoint.model},
                workload=made.workload.as_dict(),
                slos=str(slos),
                seed=made.seed,
                started_at_s=made.began_unix_s,
                duration_s=made.duration_s,
                state="failed" if failed else "invalid" if made.invalid_reason else "ok",
                failure_reason=made.invalid_reason or verdict.reason or None,
                summary=made.summary_dict(),
                verdict=verdict.as_dict(),
                server=made.server.as_dict() if made.server else None,
                records=to_columns(made.records),
            )
        )
    finally:
        database.close()
