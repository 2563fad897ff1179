"""A diagnosis as the database keeps it: each node a finding, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from storage import Finding, NewFinding, open_database
from tuner.diagnosis.model import Diagnosis, NodeResult, node_from_dict


def findings_of(nodes: Iterable[NodeResult]) -> list[NewFinding]:
    return [
        NewFinding(
            node=node.key,
            state=node.state.value,
            confidence=node.confidence.value if node.confidence else None,
            payload=asdict(node),
        )
        for node in nodes
    ]


def diagnosis_of(findings: Sequence[Finding]) -> Diagnosis | None:
    """Of the findings of one measurement, in the tree's order; None where there are none. What
    they do not hold (dialect, traffic, headline) is left empty."""
    if not findings:
        return None
    nodes = tuple(node_from_dict(found.payload or {}) for found in findings)
    first = findings[0]
    return Diagnosis(
        first.created_at_s, nodes[0].window_s, first.target or "", "", "unknown", "", nodes
    )


def store(database_url: str, diagnosis: Diagnosis) -> int:
    """Keep the firing nodes as findings; returns how many. Raises StorageError."""
    findings = findings_of(node for node in diagnosis.nodes if node.firing)
    database = open_database(database_url)
    try:
        database.add_findings(findings, target=diagnosis.target, at_s=diagnosis.at_s)
    finally:
        database.close()
    return len(findings)
