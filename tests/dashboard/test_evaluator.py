"""The page's diagnosis knows what `tuner diagnose` knows of the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboard.evaluator import BEAT_S, Evaluator
from tests.dashboard.fake_source import FakeSource
from tests.tuner.fake_engine import FakeEngine
from tuner.diagnosis.server_info import server_info


class Clock:
    """Stands still unless told."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_what_the_server_says_of_itself_is_read_anew_at_each_beat() -> None:
    said: list[Mapping[str, Mapping[str, Any]]] = []

    def tell() -> Mapping[str, Mapping[str, Any]]:
        knobs = {"chunk_size": {"value": 99, "high": 8192}}
        said.append({"h:1": {"device": "cpu", "knobs": knobs}})
        return said[-1]

    clock = Clock()
    running = Evaluator(
        FakeSource(), target="t", settings={"max_num_seqs": "7"}, info_by_instance=tell, clock=clock
    )
    config = running.latest().config
    assert (config["device"], config["chunk_size"], config["chunk_size_high"]) == (
        "cpu", "99", "8192",
    )  # fmt: skip
    assert config["max_num_seqs"] == "7"
    running.latest()
    assert len(said) == 1
    clock.now_s += BEAT_S
    running.latest()
    assert len(said) == 2


def test_the_engines_own_word_is_read_from_any_form_of_its_address() -> None:
    with FakeEngine() as engine:
        for url in (engine.url, f"{engine.url}/v1", engine.url.removeprefix("http://")):
            assert server_info(url)["engine"] == "slotune"
    assert server_info(engine.url) == {}
