"""Stored studies as text and JSON."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from storage import Measurement, Study, Verification
from tuner.report.flags import command_lines
from tuner.report.optimize import aligned, estimate_text
from tuner.report.verify import TITLES
from tuner.report.words import ANSWERS, DOUBTFUL, VERDICTS, is_confirmed
from tuner.stats import Estimate
from tuner.targets.base import config_text


def study_list_lines(
    studies: Sequence[Study], verified: Mapping[int, Verification] = MappingProxyType({})
) -> list[str]:
    """verified: what those of `tuner verify` answered, by the study's id."""
    if not studies:
        return ["no study yet: `tuner optimize` and `tuner sweep` store theirs here"]
    rows = [["study", "state", "started (UTC)", "SLOs", "answer"]]
    rows += [
        [
            study.name, study.state, _time(study.created_at_s), study.slos or "–",
            _answer(study, verified.get(study.id)),
        ]
        for study in studies
    ]  # fmt: skip
    return aligned(rows)


def study_lines(
    study: Study, measurements: Sequence[Measurement], verified: Verification | None = None
) -> list[str]:
    """verified: what it answered where it is one of `tuner verify`."""
    because = verified.reason if verified else (study.result or {}).get("reason")
    facts = [
        ["study", study.name],
        ["state", study.state],
        ["started", f"{_time(study.created_at_s)} UTC"],
        ["command", study.command or "–"],
        ["workload", str((study.workload or {}).get("text", "–"))],
        ["SLOs", study.slos or "–"],
        ["objective", study.objective or "–"],
        ["answer", _answer(study, verified)],
        ["because", str(because or "–")],
    ]
    rows = [["#", "stage", "configuration", "output_tps", "ttft_p95", "SLOs"]]
    rows += [_measurement_row(number, m) for number, m in enumerate(measurements, start=1)]
    table = aligned(rows) if len(rows) > 1 else ["  no measurement yet"]
    return [*aligned(facts), "", *table, *_commands(study)]


def study_dict(study: Study, measurements: Sequence[Measurement]) -> dict[str, Any]:
    return dataclasses.asdict(study) | {
        "measurements": [dataclasses.asdict(measurement) for measurement in measurements]
    }


def _measurement_row(number: int, row: Measurement) -> list[str]:
    figures: Mapping[str, Any] = (row.summary or {}).get("figures", {})
    verdict = VERDICTS.get(str((row.verdict or {}).get("state")), "–") if row.slos else "–"
    reason = (row.failure_reason or row.state).splitlines()[0]
    return [
        str(number),
        row.stage,
        config_text(row.config),
        _figure(figures, "output_tps"),
        _figure(figures, "ttft_p95"),
        verdict if row.state == "ok" else f"{row.state}: {reason}",
    ]


def _commands(study: Study) -> list[str]:
    """How to start a server with the answer's configuration, where there is one to recommend."""
    result = study.result or {}
    best = bool(result.get("best"))
    if not (best or result.get("answer") == "keep_baseline") or not result.get("flags"):
        return []
    side = "best" if best else "baseline"
    lines = command_lines(result["flags"], str((study.target or {}).get("model") or ""))
    doubt = "" if is_confirmed(result) else f" ({DOUBTFUL})"
    return ["", f"  commands that start the {side} configuration{doubt}", *lines]


def _figure(figures: Mapping[str, Any], key: str) -> str:
    stored = figures.get(key)
    return estimate_text(Estimate.from_dict(stored)) if stored else "–"


def _answer(study: Study, verified: Verification | None) -> str:
    if verified is not None:
        return TITLES[verified.outcome]
    result = study.result or {}
    if not result:
        return "–"
    best = result.get("best") or {}
    config = f": {config_text(best['config'])}" if best.get("config") else ""
    answer = str(result.get("answer", "swept"))
    return f"{ANSWERS.get(answer, answer)}{config}"


def _time(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(at_s))
