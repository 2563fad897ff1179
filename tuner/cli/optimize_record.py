"""What is stored of a study of `tuner optimize` before its first measurement.

The sitting that begins a study makes its record with its server up. A command whose servers start
elsewhere opens it before them, and leaves out what only a server tells (its own settings) and a
load that is yet to be sized: the first worker fills that in.
"""

from __future__ import annotations

from typing import Any

from storage import Database, Study
from tuner.cli.invocation import command_text
from tuner.cli.optimize_request import Request
from tuner.search.budget import Plan, plan
from tuner.search.objective import CAPACITY

PROBES = 4
"""About how many levels a trial probes that looks for a capacity."""


def plan_of(request: Request, prepared_s: float = 0.0, change_s: float = 0.0) -> Plan:
    """How the budget is split, prepared_s of it spent on starting the server and sizing the load.
    change_s: what another configuration takes before its load."""
    return plan(
        request.budget, prepared_s, window_s=request.window_s, warmup_s=request.warmup_s,
        change_s=change_s,
        loads=PROBES if request.objectives[0].key == CAPACITY else len(request.loads),
    )  # fmt: skip


def open_record(request: Request, database: Database) -> Study:
    """For workers to join: created, or the stored one taken up. StudyExistsError where another
    command has created it meanwhile."""
    if request.resumed is not None:
        return database.update_study(request.resumed.id, state="running")
    budget: dict[str, Any] = {"text": request.budget.text}
    return database.create_study(
        request.name,
        command=command_text(),
        seed=request.seed,
        slos=str(request.slos),
        objective=str(request.objectives[0]),
        workload=None if request.calibrate else request.stored_loads(),
        space={"axes": request.knobs, "constraints": request.constraints, "fixed": {}}
        | request.stored_goal(),
        budget=budget if request.calibrate else budget | plan_of(request).as_dict(),
    )
