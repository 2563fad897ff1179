"""What a linter reads and says: a query with its place, a finding with what would be right."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Query:
    """One expression. place: `panel "TTFT", query A`; unit is Grafana's name of the panel's.

    texts: what people read beside it (title, legend, annotations); exact: a rule, whose variables
    are Prometheus' own and not Grafana's.
    """

    file: str
    place: str
    expr: str
    unit: str = ""
    texts: str = ""
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """check: the kind's name; right: what would be right."""

    check: str
    message: str
    right: str


@dataclass(frozen=True, slots=True)
class Finding:
    query: Query
    fault: Fault

    @property
    def text(self) -> str:
        fault = self.fault
        return f"{self.query.file}: {self.query.place}: {fault.message}. Right: {fault.right}"

    def as_dict(self) -> dict[str, Any]:
        found = {"file": self.query.file, "place": self.query.place, "expr": self.query.expr}
        return found | asdict(self.fault)
