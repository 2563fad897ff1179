"""What a live engine exports: our dashboards and rules find it, and the diagnosis its signals."""

from __future__ import annotations

import pytest

from tests.engine.serve.harness import running
from tests.tuner.lint.test_lint import OURS
from tuner.diagnosis.registry import BREAKDOWNS, SPECS
from tuner.lint.catalogue import Catalogue, of_exposition, of_tables, with_recorded
from tuner.lint.checks import lint
from tuner.lint.files import read_file

NOT_OURS = {
    "device_active", "evict_idle_p50", "power_throttle", "reuse_gap_p90", "thermal_throttle",
}  # fmt: skip
"""What vLLM or the device's own exporter tells. Every other signal is our engine's to export."""


@pytest.fixture(scope="module")
def live() -> Catalogue:
    """What a live engine exports now."""
    from storage.sources import scrape_once

    with running() as server:
        return of_exposition(scrape_once(server.url), server.url)


def test_our_dashboards_and_rules_against_a_live_engine(live: Catalogue) -> None:
    queries, recorded = [], set()
    for path in OURS:
        found_here, made = read_file(str(path))
        queries += found_here
        recorded |= made
    assert [f.text for f in lint(queries, with_recorded(live, recorded), 5.0)] == []


def test_our_engine_exports_every_signal_but_those_that_are_known_not_to_be_its_own(
    live: Catalogue,
) -> None:
    """Of what it does not export, each names what an operator does about it."""
    specs = {spec.name: spec for spec in (*SPECS, *BREAKDOWNS) if spec.vllm}
    lacking = {
        name
        for name, spec in specs.items()
        if not any(n in live.samples or f"{n}_bucket" in live.samples for n in spec.vllm)
    }
    assert lacking == NOT_OURS
    assert all(specs[name].how_to_get for name in lacking)


def test_every_name_of_a_signal_is_known_or_a_known_old_one() -> None:
    tables = of_tables()
    for spec in (*SPECS, *BREAKDOWNS):
        for name in (*spec.vllm, *spec.sglang):
            known = name in tables.samples or f"{name}_bucket" in tables.samples
            old = tables.instead(name) in tables.samples | tables.kinds.keys()
            assert known or old or not tables.judges(name), f"{spec.name}: {name}"
