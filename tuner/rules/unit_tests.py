"""What promtool must find true of generated rules: counters in, alerts out.

Expected alerts are written from the same RuleSet as the rules, but which of them fire follows from
the shares of the scenario alone. Each scenario has one model, counted once a minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.budget.burn import BURN_WINDOWS, BurnWindow
from tuner.budget.counters import Counter
from tuner.budget.events import Sli
from tuner.rules.groups import (
    ATTAINMENT,
    BUDGET_LEFT,
    MISSING,
    MISSING_FOR,
    STALLED,
    RuleSet,
    alert_name,
)

PER_MINUTE = 10_000
SEEN_AT = "65m"
MODEL = "a-model"


@dataclass(frozen=True, slots=True)
class Minute:
    """What happens in each minute of a scenario. good and late are answered requests; failed are
    counted among those that ended, refused beside them."""

    good: int = 0
    late: int = 0
    failed: int = 0
    refused: int = 0


def unit_tests(rules: RuleSet, rules_file: str) -> dict[str, Any]:
    """The content of promtool's test file beside rules_file."""
    tests = [test for sli in rules.slis for test in _of_clause(rules, sli)]
    return {
        "rule_files": [rules_file],
        "evaluation_interval": "1m",
        "tests": [*tests, *_blind(rules)],
    }


def _of_clause(rules: RuleSet, sli: Sli) -> list[dict[str, Any]]:
    all_windows = list(BURN_WINDOWS)
    tests = [
        _test(rules, sli, "all good: no alert", Minute(good=100), [], attained=1.0),
        _test(rules, sli, "no traffic is no failure", Minute(), []),
        _few(rules, sli),
        _slow(rules, sli),
    ]
    if sli.boundary is not None:
        tests.append(_test(rules, sli, "all late", Minute(late=100), all_windows, attained=0.0))
    if not sli.gaps:
        tests += [
            _test(rules, sli, name, minute, all_windows, attained=0.0)
            for name, minute in _bad_endings(sli)
        ]
    return tests


def _bad_endings(sli: Sli) -> list[tuple[str, Minute]]:
    if not sli.counters.within:
        return [("aborts are bad", Minute(refused=100))]
    return [
        ("refusals are bad", Minute(refused=100)),
        ("aborts and errors are bad", Minute(failed=100)),
    ]


def _slow(rules: RuleSet, sli: Sli) -> dict[str, Any]:
    """Between the slowest limit and the next: the slowest ticket alone."""
    low, high = BURN_WINDOWS[-1].limit(sli.budget), BURN_WINDOWS[-2].limit(sli.budget)
    bad = round(PER_MINUTE * (low + high) / 2)
    minute = Minute(good=PER_MINUTE - bad, late=bad)
    if sli.boundary is None:
        minute = replace(minute, late=0, failed=bad)
    name = f"{bad / PER_MINUTE:.6g} bad: the slowest burn alone"
    return _test(rules, sli, name, minute, [BURN_WINDOWS[-1]], attained=1 - bad / PER_MINUTE)


def _few(rules: RuleSet, sli: Sli) -> dict[str, Any]:
    """All bad, but fewer events than an alert needs."""
    minute = Minute(late=1) if sli.gaps else Minute(failed=1)
    if not (sli.gaps or sli.counters.within):
        minute = Minute(refused=1)
    found = _test(rules, sli, "too few events to tell", minute, [])
    count = max(1, (rules.least(sli) - 1) // 4)
    for series in found["input_series"]:
        start, _, rest = series["values"].partition("+")
        step = rest.partition("x")[0]
        series["values"] = f"{start}+{step}x{count} {int(step) * count}+0x70"
    return found


def _test(
    rules: RuleSet,
    sli: Sli,
    name: str,
    minute: Minute,
    firing: Sequence[BurnWindow],
    *,
    attained: float | None = None,
) -> dict[str, Any]:
    test: dict[str, Any] = {
        "name": f"{sli.clause.text}: {name}",
        "interval": "1m",
        "input_series": _series(rules, sli, minute),
        "alert_rule_test": [
            {
                "eval_time": SEEN_AT,
                "alertname": alert_name(sli),
                "exp_alerts": [_expected(rules, sli, window) for window in firing],
            }
        ],
    }
    if attained is not None:
        labels = {**_labels(rules), **rules.labels(sli)}
        left = 1 - (1 - attained) / sli.budget
        test["promql_expr_test"] = [
            _value(ATTAINMENT, sli, labels, attained),
            _value(BUDGET_LEFT, sli, labels, left),
        ]
    return test


def _value(name: str, sli: Sli, labels: dict[str, str], value: float) -> dict[str, Any]:
    """Rounded, since promtool compares exactly."""
    text = ", ".join(f'{k}="{v}"' for k, v in labels.items())
    return {
        "expr": f'round({name}{{slo="{sli.key}"}}, 0.0001)', "eval_time": SEEN_AT,
        "exp_samples": [{"labels": f"{{{text}}}", "value": round(value, 4) + 0.0}],
    }  # fmt: skip


def _expected(rules: RuleSet, sli: Sli, window: BurnWindow) -> dict[str, Any]:
    rule = rules.alert(sli, window)
    return {
        "exp_labels": {**_labels(rules), **rules.labels(sli), **rule["labels"]},
        "exp_annotations": rule["annotations"],
    }


def _series(rules: RuleSet, sli: Sli, minute: Minute) -> list[dict[str, str]]:
    """The counters of a scenario. A failure before its first token has no TTFT; one that ends has
    been as fast as a good request."""
    answered, counters = minute.good + minute.late, sli.counters
    stopped = {part.by: "stop" for part in counters.within}
    why = {"reason": "max_num_queued_reqs"} if counters.within else {}
    counts = [(counters.finished.name, stopped, answered)]
    counts += [(part.name, {part.by: part.values[0]}, minute.failed) for part in counters.within]
    counts += [(part.name, why, minute.refused) for part in counters.beside]
    if sli.boundary is not None:
        ended = 0 if sli.live else minute.failed
        bucket, name = f"{sli.histogram}_bucket", sli.histogram
        counts += [
            (bucket, {"le": sli.boundary.label}, minute.good + ended),
            (bucket, {"le": "+Inf"}, answered + ended),
            (f"{name}_count", {}, answered + ended),
        ]
    return [
        {"series": _named(name, {**_labels(rules), **labels}), "values": f"0+{step}x70"}
        for name, labels, step in counts
    ]


def _blind(rules: RuleSet) -> list[dict[str, Any]]:
    """Missing series, and a server that stands still."""
    missing = []
    for sli in rules.slis:
        for need in sli.needs:
            rule = rules.missing(need)
            labels = {**rules.scope.labels, **rule["labels"], **_part(need)}
            missing.append({"exp_labels": labels, "exp_annotations": rule["annotations"]})
    stalled, generated = rules.stalled(), rules.counters.generated
    still = [
        {"series": _named(rules.counters.running, _labels(rules)), "values": "4x10"},
        {"series": _named(generated.name, {**_labels(rules), **_part(generated)}),
         "values": "100x10"},
    ]  # fmt: skip
    firing = [{"exp_labels": {**_labels(rules), **stalled["labels"]},
               "exp_annotations": stalled["annotations"]}]  # fmt: skip
    return [
        {
            "name": "missing series are told", "interval": "1m",
            "input_series": [{"series": "up", "values": "1x30"}],
            "alert_rule_test": [
                {"eval_time": "1m", "alertname": MISSING, "exp_alerts": []},
                {"eval_time": _after(MISSING_FOR), "alertname": MISSING,
                 "exp_alerts": _distinct(missing)},
            ],
        },
        {
            "name": "requests run and no token comes", "interval": "15s",
            "input_series": [
                {**series, "values": series["values"].replace("x10", "x40")} for series in still
            ],
            "alert_rule_test": [
                {"eval_time": "5m", "alertname": STALLED, "exp_alerts": firing},
            ],
        },
    ]  # fmt: skip


def _distinct(alerts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [alert for index, alert in enumerate(alerts) if alert not in alerts[:index]]


def _part(counter: Counter) -> dict[str, str]:
    """The label that a counter of one value is compared with, which absent() takes over."""
    return {counter.by: counter.values[0]} if len(counter.values) == 1 else {}


def _after(duration: str) -> str:
    return f"{int(duration.rstrip('m')) + 5}m"


def _labels(rules: RuleSet) -> dict[str, str]:
    """Of the scenario's one series, as far as they survive the rules' sums."""
    return dict.fromkeys(rules.scope.by, MODEL) | dict(rules.scope.labels)


def _named(name: str, labels: dict[str, str]) -> str:
    inside = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return f"{name}{{{inside}}}"
