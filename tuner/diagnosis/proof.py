"""The command that puts a node's advice to the test, and the server it is tried on.

Invariant: our engine's live knobs are tried on the server that is watched, all others on one that
the tuner starts; only a knob whose present value the tuner knows is moved by one step (--node).
"""

from __future__ import annotations

from engine.knobs import KNOBS, Knob
from tuner.diagnosis.model import NodeResult
from tuner.targets.flags import DIALECTS, Dialect, flag_of


def whom(knob: Knob, dialect: str, url: str) -> list[str]:
    """The words that say which server turns the knob."""
    if dialect == "slotune" and knob.live:
        return ["--url", url]
    return ["--target", dialect]


def proof(node: NodeResult, dialect: str, url: str) -> tuple[str, str]:
    """The command, and which flags of the user's own belong to it; "" and "" where no lever is a
    knob that this engine has."""
    spoken: Dialect = next((known for known in DIALECTS if known == dialect), "slotune")
    known = [(lever, KNOBS[lever.knob]) for lever in node.levers if lever.knob in KNOBS]
    turned = [(lever, knob) for lever, knob in known if flag_of(knob, spoken) is not None]
    if not turned:
        return "", ""
    lever, knob = next(((a, k) for a, k in turned if k.live or k.replaces), turned[0])
    server = whom(knob, dialect, url)
    if knob.live or knob.replaces:
        what = f"--node {node.key}"
    else:
        value = {"on": "true", "off": "false"}.get(lever.direction if knob.kind == "bool" else "")
        what = f"--knob {knob.name}={value or '…'}"
    also = "" if "--url" in server else "--model, --serve-args, "
    return f"tuner verify {' '.join(server)} {what}", f"{also}--workload and --slo"
