"""The queries of a file: Grafana dashboards (JSON) and Prometheus rules (YAML, also as a
PrometheusRule of Kubernetes).

Invariant: what is neither is refused with a sentence; nothing of a file that was read is skipped
in silence except queries to other kinds of data sources.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tuner.documents import read_document
from tuner.errors import UserError
from tuner.lint.model import Query

_LABEL_VALUES = re.compile(r"(?:label_values|query_result|metrics)\s*\((.*)\)\s*$", re.S)


def read_file(path: str) -> tuple[list[Query], set[str]]:
    """Its queries, and the names its recording rules make. Raises UserError."""
    content = read_document(Path(path), _parsed, "JSON or YAML")
    try:
        return _queries(path, content)
    except RecursionError:
        raise UserError(f"{path} is not valid: its panels are nested too deeply") from None


def _queries(path: str, content: Any) -> tuple[list[Query], set[str]]:
    if isinstance(content, dict):
        content = content.get("dashboard", content)  # as Grafana's API wraps it
        if content.get("kind") == "PrometheusRule":
            content = content.get("spec") or {}
        if isinstance(content.get("groups"), list):
            return _rules(path, content["groups"])
        if isinstance(content.get("panels"), list) or isinstance(content.get("rows"), list):
            return list(_dashboard(path, content)), set()
    raise UserError(
        f"{path} is neither a Grafana dashboard (JSON with panels) nor a rules file (YAML with "
        "groups)"
    )


def _parsed(text: str) -> Any:
    return json.loads(text) if text.lstrip()[:1] == "{" else yaml.safe_load(text)


def _rules(path: str, groups: list[Any]) -> tuple[list[Query], set[str]]:
    queries, recorded = [], set()
    for group in _dicts(groups):
        for rule in _dicts(group.get("rules")):
            name = str(rule.get("record") or rule.get("alert") or "without a name")
            if rule.get("record"):
                recorded.add(name)
            kind = "record" if rule.get("record") else "alert"
            words = [name, *map(str, _mapping(rule.get("annotations")).values())]
            labels = [f"{k}={v}" for k, v in _mapping(rule.get("labels")).items()]
            which = f" ({', '.join(labels)})" if labels else ""
            queries.append(
                Query(path, f"{kind} {name}{which}", str(rule.get("expr", "")),
                      texts=" ".join(words), exact=True)
            )  # fmt: skip
    return queries, recorded


def _dashboard(path: str, board: Mapping[str, Any]) -> Iterator[Query]:
    for panel in _panels(board):
        title = str(panel.get("title") or f"number {panel.get('id', '?')}")
        defaults = _mapping(_mapping(panel.get("fieldConfig")).get("defaults"))
        unit = str(defaults.get("unit") or _old_unit(panel))
        for number, target in enumerate(_dicts(panel.get("targets")), start=1):
            if isinstance(target.get("expr"), str) and target["expr"].strip():
                texts = f"{title} {panel.get('description', '')} {target.get('legendFormat', '')}"
                place = f'panel "{title}", query {target.get("refId") or number}'
                yield Query(path, place, target["expr"], unit, texts)
    for variable in _dicts(_mapping(board.get("templating")).get("list")):
        if variable.get("type") == "query":
            yield from _variable(path, variable)
    for note in _dicts(_mapping(board.get("annotations")).get("list")):
        if isinstance(note.get("expr"), str) and note["expr"].strip():
            yield Query(path, f'annotation "{note.get("name", "?")}"', note["expr"])


def _panels(board: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Panels, those inside collapsed rows included, and those of dashboards before Grafana 5."""
    for panel in _dicts(board.get("panels")):
        yield panel
        yield from _panels(panel)
    for row in _dicts(board.get("rows")):
        yield from _panels(row)


def _old_unit(panel: Mapping[str, Any]) -> str:
    """The unit of a graph panel before Grafana 7."""
    axes = _dicts(panel.get("yaxes"))
    return str(next((axis.get("format") or "" for axis in axes), "") or panel.get("format") or "")


def _variable(path: str, variable: Mapping[str, Any]) -> Iterator[Query]:
    asked = variable.get("query")
    text = str(asked.get("query", "") if isinstance(asked, dict) else asked or "")
    call = _LABEL_VALUES.match(text.strip())
    if call is None:
        return
    series = call[1].rpartition(",")[0] if text.strip().startswith("label_values") else call[1]
    if series.strip() and not text.strip().startswith("metrics"):
        yield Query(path, f'variable "{variable.get("name", "?")}"', series)


def _dicts(found: Any) -> list[Mapping[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}
