"""What `tuner bench` does. Invariant: what was measured is shown and kept, whatever ended it."""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from storage.errors import StorageError, not_kept
from storage.rows import MeasurementState
from tuner.cli.common import check_measurable, print_json, print_lines, prometheus_from, task_from
from tuner.cli.invocation import command_text
from tuner.cli.outputs import check_output, write_text
from tuner.cli.targets import started, target_from
from tuner.endpoint import Endpoint, base_url
from tuner.errors import UserError
from tuner.exchange.run import Run, from_measurement, store
from tuner.measure import (
    Measurement,
    MeasurementBrokenError,
    MeasurementInterrupted,
    Sending,
    measure,
    summarize,
)
from tuner.measure.held_back import held_back
from tuner.report.bench import bench_lines
from tuner.report.live import LiveView
from tuner.server_side import crosscheck, prometheus_problem
from tuner.slo import SloSet, Verdict, judge, parse_slos
from tuner.slo.judge import VerdictState
from tuner.units import parse_duration_s
from tuner.workload import Workload, parse_workload
from tuner.workload.content import same_salt

if TYPE_CHECKING:
    from storage import Database
    from tuner.quality import Task


@dataclass(frozen=True, slots=True)
class Plan:
    """The options, checked."""

    slos: SloSet
    workload: Workload
    duration_s: float
    warmup_s: float
    sending: Sending
    task: Task | None


def run_bench(args: argparse.Namespace) -> VerdictState:
    """The verdict. Raises UserError, StorageError, KeyboardInterrupt."""
    plan = _checked(args)
    with contextlib.ExitStack() as stack:
        database = _open_database(args)  # before the work, so that its faults cost nothing
        if database is not None:
            stack.enter_context(database)
        endpoint = stack.enter_context(_server(args))
        try:
            made = _measured(args, plan, endpoint)
        except MeasurementInterrupted as stopped:
            _conclude(args, plan, stopped.made, database, "aborted")
            raise
        except MeasurementBrokenError as broken:
            _conclude(args, plan, broken.made, database, "aborted")
            raise
        return _conclude(args, plan, made, database)


def _checked(args: argparse.Namespace) -> Plan:
    if args.base_url and args.url and args.base_url != args.url:
        raise UserError(f"two servers given, {args.base_url} and --url {args.url}: give one")
    args.url = args.base_url or args.url
    if not args.url and not args.target:
        raise UserError("no server given: tuner bench http://HOST:PORT, or --target to start one")
    if args.url and args.target:
        raise UserError(f"--target {args.target} starts a server, but {args.url} was given: one")
    if args.max_requests is not None and args.max_requests < 1:
        raise UserError(f"--max-requests must be at least 1, got {args.max_requests}")
    if args.processes is not None and not 1 <= args.processes <= 256:
        raise UserError(f"--processes must be 1 to 256, got {args.processes}")
    if args.price_per_hour is not None and not 0 < args.price_per_hour < math.inf:
        raise UserError(f"--price-per-hour must be more than 0, got {args.price_per_hour:g}")
    slos = parse_slos(args.slo)
    if args.until_decided and not slos:
        raise UserError("--until-decided needs an --slo to decide")
    check_measurable(slos, quality=args.quality is not None, price=args.price_per_hour is not None)
    pause_s = args.token_timeout and parse_duration_s(args.token_timeout, "--token-timeout")
    sending = Sending(
        request_timeout_s=parse_duration_s(args.request_timeout, "--request-timeout"),
        token_timeout_s=pause_s or None,
        content_salt=same_salt(args.seed) if args.same_content else None,
        extra_body=_extra_body(args.extra_body),
        processes=args.processes,
    )
    workload = parse_workload(args.workload)
    if args.html is not None:
        rows = workload.source.file.path if workload.source is not None else None
        check_output("--html", args.html, args.database, [args.quality, rows])
    return Plan(
        slos, workload,
        parse_duration_s(args.duration, "--duration"),
        parse_duration_s(args.warmup, "--warmup", zero_allowed=True), sending,
        task_from(args.quality),
    )  # fmt: skip


def _extra_body(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        body = orjson.loads(text)  # strict: NaN, Infinity and half characters cannot be sent
    except ValueError as error:
        raise UserError(f"--extra-body {text[:80]!r} is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise UserError(f"--extra-body {text[:80]!r} must be a JSON object, {{…}}")
    return body


@contextlib.contextmanager
def _server(args: argparse.Namespace) -> Iterator[Endpoint]:
    """The endpoint to load, probed; a server started here is stopped at the end."""
    if args.url:
        yield Endpoint(base_url(args.url), args.model or "", args.api_key, args.api).probe()
        return
    target = target_from(args)
    with started(target):
        target.apply({})
        found = target.endpoint
        yield Endpoint(found.base_url, found.model, found.api_key, args.api).probe()


def _measured(args: argparse.Namespace, plan: Plan, endpoint: Endpoint) -> Measurement:
    if plan.task is not None and plan.task.num_multiple_choice:
        from tuner.quality import check_scoring

        check_scoring(endpoint)  # before the load, which would be lost
    prometheus = prometheus_from(args)
    if prometheus is not None and (why := prometheus_problem(prometheus)):
        raise UserError(f"--prometheus {prometheus.url}: {why}")
    title = f"{endpoint.base_url} · {endpoint.model} · {plan.workload}"
    with LiveView(title, quiet=args.quiet) as view:
        made = measure(
            endpoint, plan.workload, duration_s=plan.duration_s, warmup_s=plan.warmup_s,
            seed=args.seed, max_requests=args.max_requests, slos=plan.slos,
            price_per_hour=args.price_per_hour, sending=plan.sending,
            prometheus=prometheus, on_progress=view.update,
            stop_when_decided=args.until_decided,
        )  # fmt: skip
    return _with_accuracy(made, plan.task, plan.slos) if plan.task is not None else made


def _with_accuracy(made: Measurement, task: Task, slos: SloSet) -> Measurement:
    """Its questions come last: the load's figures are kept, however they end."""
    from tuner.quality import quality_estimate

    try:
        made.accuracy = quality_estimate(made.endpoint, task)
    except KeyboardInterrupt:
        made.ended_why = "interrupted during the quality check; the load was measured whole"
        raise MeasurementInterrupted(made) from None
    except UserError as error:
        made.ended_why = f"the quality check failed: {error}"
        raise MeasurementBrokenError(str(error), made) from error
    return summarize(made, slos)


def _conclude(
    args: argparse.Namespace,
    plan: Plan,
    made: Measurement,
    database: Database | None,
    state: MeasurementState | None = None,
) -> VerdictState:
    """Judge, keep, show; a fault of the database or of the report's file is told last."""
    with held_back():
        return _concluded(args, plan, made, database, state)


def _concluded(
    args: argparse.Namespace,
    plan: Plan,
    made: Measurement,
    database: Database | None,
    state: MeasurementState | None,
) -> VerdictState:
    verdict = judge(plan.slos, made)
    run = from_measurement(made, verdict, str(plan.slos), command_text())
    if state is not None or run.state == "failed":
        why = made.ended_why or run.failure_reason
        run = replace(run, state=state or run.state, failure_reason=why)
    faults: list[Exception] = []
    try:
        if database is not None and made.records:
            with not_kept("this run"):
                run = replace(run, run_id=store(database, run))
    except StorageError as error:
        faults.append(error)
    try:
        if args.html:
            _write_html(args.html, run)
    except UserError as error:
        faults.append(error)
    if args.json:
        print_json({**as_dict(made, verdict), "measurement_id": run.run_id})
    else:
        print_lines(bench_lines(made, verdict))
        if run.run_id is not None:
            print(f"kept as run {run.run_id} in {args.database}")
    if faults:
        raise faults[0]
    return verdict.state


def as_dict(made: Measurement, verdict: Verdict) -> dict[str, Any]:
    """The measurement as JSON-able values."""
    return {
        "url": made.endpoint.base_url,
        "model": made.endpoint.model,
        "workload": str(made.workload),
        "seed": made.seed,
        **made.summary_dict(),
        "server": made.server.as_dict() if made.server else None,
        "crosscheck": [check.as_dict() for check in crosscheck(made.records, made.server)],
        "verdict": verdict.as_dict(),
    }


def _open_database(args: argparse.Namespace) -> Database | None:
    if args.no_store:
        return None
    from storage import open_database

    return open_database(args.database)


def _write_html(path: str, run: Run) -> None:
    from tuner.report.html import render_run_html

    page = render_run_html(run)
    write_text(Path(path), page)
