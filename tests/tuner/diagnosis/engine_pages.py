"""/metrics of several releases of vLLM and SGLang: nothing served, idle, starved of KV, and when
the load has ended (fixtures/README.md tells which come from a running server)."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FIXTURES = Path(__file__).parents[3] / "fixtures"


def page(release: str, moment: str) -> str:
    """release: vllm-0.9.2; moment: unserved, idle, begun, kv-starved, after-load."""
    path = FIXTURES / "engine-pages" / f"{release}-{moment}.txt.gz"
    return gzip.decompress(path.read_bytes()).decode()


@dataclass(frozen=True)
class Release:
    """dialect: the tree's; before: the page before that of the load, idle where counters are
    exported from the start; lacks: what it does not export, and a node that cannot be told
    without it; splits: breakdowns it exports."""

    name: str
    dialect: str = "vllm"
    before: str = "idle"
    lacks: Mapping[str, str] = field(default_factory=dict)
    splits: frozenset[str] = frozenset({"finished_by"})

    def page(self, moment: str) -> str:
        return page(self.name, moment)

    @property
    def loaded(self) -> tuple[str, str]:
        return self.page(self.before), self.page("kv-starved")

    @property
    def counts_from_the_start(self) -> bool:
        return self.before == "idle"


_NO_TPOT = {"tpot": "4"}
_NO_REFUSALS = {"rejections": "2.rejections"}
_NO_PREFIX_COUNTS = {"prefix_queries": "3b.thrash", "prefix_hits": "3b.thrash"}
_BY_REASON = frozenset({"finished_by", "waiting_by"})

RELEASES = {
    one.name: one
    for one in (
        Release("vllm-0.6.6", before="begun", lacks=_NO_TPOT | _NO_REFUSALS | _NO_PREFIX_COUNTS),
        Release("vllm-0.8.5-v0", before="begun", lacks=_NO_TPOT | _NO_REFUSALS | _NO_PREFIX_COUNTS),
        Release("vllm-0.9.2", lacks=_NO_TPOT | _NO_REFUSALS),
        Release("vllm-0.11.2", lacks=_NO_REFUSALS),
        Release("vllm-0.16.0", lacks=_NO_REFUSALS),
        Release("vllm-0.20.2", lacks=_NO_REFUSALS, splits=_BY_REASON),
        Release("vllm-0.25.1", lacks=_NO_REFUSALS, splits=_BY_REASON),
        Release("vllm-0.33.0", splits=_BY_REASON),
        Release(
            "sglang-0.5.23", "sglang", before="begun", splits=frozenset(),
            lacks=_NO_REFUSALS
            | {"step_tokens": "3a.token_budget", "asked_tokens": "2.length", "inference": "3d"},
        ),
    )
}  # fmt: skip
