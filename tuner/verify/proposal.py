"""What is put to the test: one knob, one new value, and the figure that decides.

Invariant: `after` is `before` with one knob changed, and the target would accept it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine.knobs import KNOBS, Knob
from tuner.diagnosis.model import Lever, NodeResult
from tuner.errors import UserError
from tuner.search.objective import Objective
from tuner.search.space import joint_space
from tuner.slo import SloSet
from tuner.targets.base import UNSET, KnobRange, Setting, setting_text
from tuner.targets.flags import AUTO, DIALECTS, flag_of

Config = dict[str, Setting]

STEP = 2.0
"""A whole-number knob is doubled or halved: less is often lost in the noise."""

SHARE_STEP = 0.1
"""A share is moved by this much."""

_FIGURES = {"3": "ttft", "4": "itl", "6": "e2e"}
"""The latency that a branch of the tree is about, by the first figure of its nodes' keys."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """node: key of the diagnosis' node, "" where the user named the knob; advice: its lever."""

    knob: str
    before: Config
    after: Config
    objective: Objective
    node: str = ""
    advice: str = ""

    @property
    def direction(self) -> str:
        return direction_of(self.before[self.knob], self.after[self.knob])

    @property
    def change(self) -> str:
        """`max_num_seqs 4 → 8`."""
        old, new = self.before[self.knob], self.after[self.knob]
        return f"{self.knob} {setting_text(old)} → {setting_text(new)}"


def direction_of(old: Setting, new: Setting) -> str:
    """up, down, on, off, or "other" for a word."""
    if isinstance(old, bool) and isinstance(new, bool):
        return "on" if new else "off"
    if isinstance(old, str) or isinstance(new, str):
        return "other"
    return "up" if new > old else "down"


def of_knob(text: str, knobs: Mapping[str, KnobRange], objective: Objective) -> Proposal:
    """From `--knob max_num_seqs=64`. Raises UserError."""
    space = joint_space(knobs, [text])
    if len(space.axes) != 1 or len(space.axes[0].settings) != 1:
        raise UserError(f"--knob {text!r}: give one value, max_num_seqs=64, to be compared with")
    before = {name: knob.value for name, knob in knobs.items()}
    after = space.decode({space.axes[0].name: 0.5})
    if before == after:
        raise UserError(f"--knob {text!r} is what the server has already; give another value")
    return Proposal(space.axes[0].name, before, after, objective)


def of_node(
    node: NodeResult, knobs: Mapping[str, KnobRange], objective: Objective, engine: str = ""
) -> Proposal:
    """From a node that fires: its first lever that this target can turn. engine: whose flags it
    takes, where that is known. Raises UserError with why none can be turned."""
    refused = []
    for lever in node.levers:
        value, why = one_step(lever, knobs, engine)
        if value is None:
            refused.append(f"{lever.title}: {why}")
            continue
        made = of_knob(f"{lever.knob}={setting_text(value)}", knobs, objective)
        return replace(made, node=node.key, advice=lever.effect)
    reasons = "; ".join(refused) or "it proposes nothing to turn"
    raise UserError(
        f"node {node.key} ({node.title}) has no lever that can be tried here: {reasons}"
    )


def one_step(
    lever: Lever, knobs: Mapping[str, KnobRange], engine: str = ""
) -> tuple[Setting | None, str]:
    """The value one step in the lever's direction, or None and why there is none."""
    bounds, knob = knobs.get(lever.knob), KNOBS.get(lever.knob)
    if knob is None:
        return None, "not a knob of a server"
    if bounds is None:
        return None, _not_there(knob, knobs, engine)
    value = bounds.value
    if value in (UNSET, AUTO):
        return None, _to_try(lever.knob)
    if knob.kind == "bool":
        wanted = lever.direction == "on"
        return (wanted, "") if value != wanted else (None, "it is so already")
    if isinstance(value, (str, bool)) or lever.direction not in ("up", "down"):
        return None, "it is no number that goes up or down"
    up = lever.direction == "up"
    if knob.kind == "float":
        moved = round(value + (SHARE_STEP if up else -SHARE_STEP), 4)
    else:
        moved = round(value * STEP) if up else round(value / STEP)
    moved = min(max(moved, bounds.low), bounds.high)
    if moved == value:
        return None, f"it is at its bound, {setting_text(value)}"
    return (int(moved) if knob.kind == "int" else moved), ""


def _not_there(knob: Knob, knobs: Mapping[str, KnobRange], engine: str) -> str:
    """Why a target with these knobs cannot turn another one of the table."""
    if any(spoken == engine and flag_of(knob, spoken) is None for spoken in DIALECTS):
        return "this server has no such flag"
    if any(not known.live for known in knobs.values()):
        return _to_try(knob.name)
    return (
        "a running server cannot change it: leave out --url and let it be started, with "
        f"--knob {knob.name}=…"
    )


def _to_try(name: str) -> str:
    return f"its present value is not known: name the one to try, --knob {name}=…"


def objective_of(node: str, slos: SloSet, named: str | None) -> Objective:
    """The figure that decides: the one named, else the node's latency as an SLO bounds it, else the
    first SLO's, else throughput. Raises UserError."""
    if named is not None:
        return _named(named)
    wanted = _FIGURES.get(node[:1])
    clauses = [c for c in slos.clauses if c.stat]
    about = [c for c in clauses if c.metric == wanted or (wanted == "itl" and c.metric == "tpot")]
    for clause in about or (clauses if not wanted and not node else []):
        return Objective(clause.key, "minimize" if clause.upper else "maximize")
    if wanted is not None:
        return Objective(f"{wanted}_{'p99' if wanted == 'itl' else 'p95'}", "minimize")
    return Objective()


def _named(text: str) -> Objective:
    from tuner.search.objective import parse_objectives
    from tuner.slo.names import BY_ANY_NAME

    head = text.strip().lower().rpartition("_")[0] or text.strip().lower()
    metric = BY_ANY_NAME.get(head) or BY_ANY_NAME.get(text.strip().lower())
    less = metric is not None and (metric.per_request or metric.name in ("error_rate",))
    both = ([], [text]) if less else ([text], [])
    return parse_objectives(*both, options=("--figure", "--figure"))[0]
