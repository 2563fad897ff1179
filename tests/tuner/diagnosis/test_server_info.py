"""What several servers tell of themselves holds for all of them, or for each one alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from storage.sources import RecordedSource
from storage.sources.base import Labels, SourceStatus
from tuner.diagnosis import Signals, collect
from tuner.diagnosis.collect_settings import INFOS
from tuner.diagnosis.server_info import info_by_instance

CAPS = {"http://a:1": 64, "http://b:1": 64, "http://c:1": 8}


def answer(url: str) -> dict[str, Any]:
    if url not in CAPS:
        return {}
    cap = {"value": CAPS[url], "high": 256}
    return {"device": "cuda", "instance_id": url, "knobs": {
        "max_num_seqs": cap, "chunk_size": {"value": 512, "high": 4096}}}  # fmt: skip


def page(instance: str) -> str:
    """An engine that exports a cap of its own, which its server may correct."""
    return (
        f'vllm:cache_config_info{{instance="{instance}",max_num_seqs="32"}} 1\n'
        f'vllm:num_requests_running{{instance="{instance}"}} 1\n'
    )


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("tuner.diagnosis.server_info.server_info", answer)

    def run(names: str, **settings: str) -> Signals:
        urls = [f"http://{name}:1" for name in names]
        text = "".join(page(f"{name}:1") for name in names)
        source = RecordedSource([(1000.0 + 5 * i, text) for i in range(13)])
        told: Mapping[str, Any] = info_by_instance(urls)
        return collect(source, window_s=60.0, at_s=1060.0, known=settings, info_by_instance=told)

    return run


@pytest.mark.parametrize(
    ("names", "alike", "each"),
    [("a", "64", None), ("ab", "64", [64, 64]), ("ac", None, [64, 8]), ("abc", None, [64, 64, 8]),
     ("xa", None, [32, 64]), ("x", "32", None)],
)  # fmt: skip
def test_a_cap_that_differs_is_each_ones_own(
    names: str, alike: str | None, each: list[float] | None, look: Any
) -> None:
    seen: Signals = look(names)
    assert seen.config.get("max_num_seqs") == alike
    assert seen.numbers("max_num_seqs") == (each or [float(alike or "nan")])
    assert seen.number("max_num_seqs") == (float(alike) if alike else None)
    if set(names) - {"x"}:
        assert (seen.config["chunk_size"], seen.config["device"]) == ("512", "cuda")
        assert seen.config["max_num_seqs_high"] == "256"


def test_what_a_person_tells_holds_for_all(look: Any) -> None:
    seen: Signals = look("ac", max_num_seqs="16")
    assert seen.config["max_num_seqs"] == "16"
    assert seen.differing() == {}


def test_knobs_that_differ_are_told_by_replica_and_what_is_no_knob_is_not(look: Any) -> None:
    assert look("abc").differing() == {"max_num_seqs": "64 at a:1, b:1; 8 at c:1"}


class Asked(RecordedSource):
    """Keeps the infos that it is asked for."""

    def __init__(self, up: bool) -> None:
        super().__init__([(1000.0 + 5 * i, page("a:1")) for i in range(13)])
        self.up, self.infos = up, list[str]()

    def status(self) -> SourceStatus:
        return replace(super().status(), up=self.up)

    def info(self, name: str, labels: Labels | None = None) -> dict[str, str] | None:
        self.infos.append(name)
        return super().info(name, labels)


@pytest.mark.parametrize(("up", "asked"), [(True, list(INFOS)), (False, [])])
def test_settings_are_asked_for_once_and_not_of_a_target_that_is_down(
    up: bool, asked: list[str]
) -> None:
    source = Asked(up)
    seen = collect(source, window_s=60.0, at_s=1060.0, known={"chunk_size": "512"})
    assert source.infos == asked
    assert seen.config["chunk_size"] == "512"
