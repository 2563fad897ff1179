"""The options of `tuner sweep`, read and checked before anything starts.

A sweep that is gone on with keeps what it was begun with; what contradicts it is refused, the
same again is not.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from storage import Database, Study
from storage.errors import readable
from tuner.cli.common import check_measurable, study_quality
from tuner.cli.invocation import study_name
from tuner.cli.resuming import check_made_by, original_config
from tuner.cli.search_options import DEFAULT_POINTS
from tuner.errors import UserError
from tuner.quality import Task
from tuner.search.budget import DEFAULT_WARMUP_S, DEFAULT_WINDOW_S
from tuner.search.knob_text import knob_name, names_of
from tuner.search.sweep import LOAD_KNOBS
from tuner.slo import SloSet, parse_slos
from tuner.targets.base import Config
from tuner.units import parse_duration_s
from tuner.workload import Workload, parse_workload


@dataclass(slots=True)
class Request:
    """What is asked for. server_knobs and load_knobs: --knob texts by what they turn; both empty:
    the diagnosis of the baseline says which. quality: the file of task."""

    slos: SloSet
    loads: tuple[Workload, ...]
    server_knobs: list[str]
    load_knobs: list[str]
    constraints: list[str]
    points: int
    repeat: int
    window_s: float
    warmup_s: float
    seed: int
    name: str
    quality: str | None = None
    task: Task | None = None
    resumed: Study | None = None

    @property
    def original(self) -> Config | None:
        """The server's own configuration as the first sitting found it."""
        return original_config(self.resumed)

    def stored(self) -> dict[str, Any]:
        """What of it the study's other columns do not hold."""
        return {
            "points": self.points, "repeat": self.repeat,
            "window_s": self.window_s, "warmup_s": self.warmup_s,
            "quality": self.quality,
        }  # fmt: skip

    def stored_loads(self) -> dict[str, Any]:
        first, *others = [load.as_dict() for load in self.loads]
        return first | ({"also": others} if others else {})


def read_request(args: argparse.Namespace, database: Database) -> Request:
    """Options, and what a study of that name has stored. Raises UserError."""
    study = database.get_study(args.study) if args.study else None
    if study is None:
        request = _fresh(args)
    else:
        with readable(f"study {study.name!r}"):
            request = _resumed(args, study)
    check_measurable(request.slos, quality=request.quality is not None, price=None)
    return request


def _resumed(args: argparse.Namespace, study: Study) -> Request:
    kept: dict[str, Any] = study.budget or {}
    space: dict[str, Any] = study.space or {}
    check_made_by(study, "sweep")
    loads = study.workload or {}
    quality, task = study_quality(args, kept.get("quality"))
    request = Request(
        slos=parse_slos(args.slo or ([study.slos] if study.slos else [])),
        loads=tuple(Workload.from_dict(one) for one in (loads, *loads.get("also", []))),
        server_knobs=list(space["axes"]),
        load_knobs=list(space["load_knobs"]),
        constraints=list(space.get("constraints", [])),
        points=int(kept["points"]),
        repeat=_repeat(args.repeat or int(kept["repeat"])),
        window_s=float(kept["window_s"]),
        warmup_s=float(kept["warmup_s"]),
        seed=study.seed or 0,
        name=study.name,
        quality=quality,
        task=task,
        resumed=study,
    )
    _check_same(args, request, kept.get("quality"))
    return request


def _check_same(args: argparse.Namespace, begun: Request, quality: str | None) -> None:
    """The command that began a study goes on with it, too. UserError where an option is another
    one; quality: what the study was begun with."""
    asked = _fresh(args)
    now: Sequence[object]
    before: Sequence[object]
    for flag, given, now, before in (
        ("--knob", args.knob, _knobs(asked), _knobs(begun)),
        ("--workload", args.workload, asked.loads, begun.loads),
        ("--constraint", args.constraint, asked.constraints, begun.constraints),
        ("--points", args.points, [asked.points], [begun.points]),
        ("--duration", args.duration, [f"{asked.window_s:g} s"], [f"{begun.window_s:g} s"]),
        ("--warmup", args.warmup, [f"{asked.warmup_s:g} s"], [f"{begun.warmup_s:g} s"]),
        ("--quality", args.quality, [asked.quality], [quality] if quality else []),
    ):
        if given not in (None, []) and now != before:
            raise UserError(
                f"{flag}: study {begun.name!r} was begun with "
                f"{' and '.join(map(str, before)) or 'none'}; leave it out to go on, or give "
                "another --study"
            )


def _knobs(request: Request) -> list[str]:
    return [*request.server_knobs, *request.load_knobs]


def _fresh(args: argparse.Namespace) -> Request:
    load_knobs = [text for text in args.knob if knob_name(text) in LOAD_KNOBS]
    server_knobs = [text for text in args.knob if text not in load_knobs]
    names_of(server_knobs)
    quality, task = study_quality(args, None)
    window_s, warmup_s = DEFAULT_WINDOW_S, DEFAULT_WARMUP_S
    if args.duration is not None:
        window_s = parse_duration_s(args.duration, "--duration")
    if args.warmup is not None:
        warmup_s = parse_duration_s(args.warmup, "--warmup", zero_allowed=True)
    return Request(
        slos=parse_slos(args.slo),
        loads=tuple(dict.fromkeys(map(parse_workload, args.workload or [None]))),
        server_knobs=server_knobs,
        load_knobs=load_knobs,
        constraints=args.constraint,
        points=DEFAULT_POINTS if args.points is None else args.points,
        repeat=_repeat(1 if args.repeat is None else args.repeat),
        window_s=window_s,
        warmup_s=warmup_s,
        seed=args.seed,
        name=args.study or study_name("sweep"),
        quality=quality,
        task=task,
    )


def _repeat(value: int) -> int:
    if value < 1:
        raise UserError(f"--repeat must be at least 1, got {value}")
    return value
