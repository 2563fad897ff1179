"""Which metrics exist: those a live server exports now, or the tables of the engines we know.

Invariant: only names of an engine's own namespace (`vllm:`, `sglang:`, `slotune:`) are judged dead
or alive; what other exporters offer is not ours to know.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from engine.metrics.names import CACHE_CONFIG_INFO, OWN_METRICS, SCHEDULER_CONFIG_INFO, VLLM_METRICS
from storage.sources.exposition import Exposition

ENGINES = ("vllm", "sglang", "slotune")
SUFFIXES: Mapping[str, tuple[str, ...]] = {
    "counter": ("",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
    "summary": ("", "_sum", "_count"),
}


@dataclass(frozen=True, slots=True)
class Catalogue:
    """kinds: type of each family (counters with `_total`); samples: names as they are scraped.

    origin: where from, for a sentence ("http://… exports").
    """

    kinds: Mapping[str, str]
    samples: frozenset[str]
    origin: str

    def judges(self, name: str) -> bool:
        return name.partition(":")[0] in ENGINES and ":" in name

    def alive(self, name: str) -> bool:
        return name in self.samples or not self.judges(name)

    def kind(self, sample: str) -> str | None:
        """counter, gauge or histogram; None for a name that is not known."""
        for kind, suffixes in SUFFIXES.items():
            for suffix in suffixes:
                if sample.endswith(suffix) and self.kinds.get(_cut(sample, suffix)) == kind:
                    return "counter" if suffix and kind != "gauge" else kind
        return None

    def instead(self, name: str) -> str:
        """What to write for a dead name; "" when nothing is near."""
        table = _table()
        if name in self.kinds:  # a histogram's or a counter's family, not one of its samples
            return " or ".join(name + suffix for suffix in SUFFIXES[self.kinds[name]])
        if name in table["gone"]["names"].split():
            return "leave it out: it is gone and nothing stands for it"
        for suffix in ("", "_bucket", "_sum", "_count"):
            renamed = str(table["renamed"].get(_cut(name, suffix), ""))
            if renamed and name.endswith(suffix):
                return renamed + suffix if renamed.replace(":", "").isidentifier() else renamed
        for other in (f"{name}_total", name.removesuffix("_total")):
            if other in self.samples:
                return other
        near = difflib.get_close_matches(name, sorted(self.samples), n=1, cutoff=0.7)
        return near[0] if near else ""


def of_tables() -> Catalogue:
    """All names of the engines we know, whichever the dashboard is for."""
    kinds: dict[str, str] = {}
    for engine in ("vllm", "sglang"):
        for kind, names in _table()[engine].items():
            kinds |= {f"{engine}:{name}": kind for name in names.split()}
    for spec in (*VLLM_METRICS, *OWN_METRICS):
        name = f"{spec.name}_total" if spec.kind == "counter" else spec.name
        kinds[name] = spec.kind
    kinds |= dict.fromkeys((CACHE_CONFIG_INFO, SCHEDULER_CONFIG_INFO), "gauge")
    return Catalogue(kinds, _samples(kinds), "no engine we know exports it (vLLM, SGLang, slotune)")


def of_exposition(exposition: Exposition, url: str) -> Catalogue:
    """What the server exports now; types of the tables, or else by the names' endings."""
    names = exposition.names()
    known = of_tables().kinds
    kinds: dict[str, str] = {}
    for name in names:
        family = name.removesuffix("_bucket")
        if family != name:
            kinds[family] = "histogram"
        elif known.get(name) in ("counter", "gauge"):
            kinds[name] = known[name]
    for name in names - kinds.keys():
        ends = [name.removesuffix(e) for e in SUFFIXES["histogram"] if name.endswith(e)]
        if not any(end in kinds for end in ends):
            kinds[name] = "counter" if name.endswith("_total") else "gauge"
    return Catalogue(kinds, names, f"{url} does not export it")


def with_recorded(catalogue: Catalogue, recorded: Iterable[str]) -> Catalogue:
    """The names that recording rules of the same files make; their type is that of a gauge."""
    added = dict.fromkeys(recorded, "gauge")
    return Catalogue(
        {**catalogue.kinds, **added}, catalogue.samples | added.keys(), catalogue.origin
    )


def _samples(kinds: Mapping[str, str]) -> frozenset[str]:
    return frozenset(name + suffix for name, kind in kinds.items() for suffix in SUFFIXES[kind])


def _cut(name: str, suffix: str) -> str:
    return name.removesuffix(suffix) if suffix else name


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads((files("tuner.lint") / "metrics.toml").read_text(encoding="utf-8"))
