"""What several servers tell of themselves holds for all of them, or for none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from storage.sources import RecordedSource
from tuner.diagnosis import collect
from tuner.diagnosis.server_info import servers_info

EXPORTED = 'vllm:cache_config_info{max_num_seqs="64"} 1\nvllm:num_requests_running 1\n'
CAPS = {"a": 64, "b": 64, "c": 8}


def answer(url: str) -> dict[str, Any]:
    if url not in CAPS:
        return {}
    cap = {"value": CAPS[url], "high": 256}
    return {"device": "cuda", "instance_id": url, "knobs": {
        "max_num_seqs": cap, "chunk_size": {"value": 512, "high": 4096}}}  # fmt: skip


def config(told: Mapping[str, Any]) -> Mapping[str, str]:
    source = RecordedSource([(1000.0 + 5 * i, EXPORTED) for i in range(13)])
    return collect(source, window_s=60.0, at_s=1060.0, server_info=told).config


@pytest.mark.parametrize(
    ("urls", "cap"), [("a", "64"), ("ab", "64"), ("xa", "64"), ("ac", None), ("abc", None)]
)
def test_a_cap_that_differs_is_that_of_none(
    urls: str, cap: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.diagnosis.server_info.server_info", answer)
    found = config(servers_info(urls))
    assert found.get("max_num_seqs") == cap
    assert found.get("max_num_seqs_high") == (cap and "256")
    assert (found["chunk_size"], found["device"]) == ("512", "cuda")


def test_servers_that_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.diagnosis.server_info.server_info", answer)
    assert servers_info("xy") == {}
    assert config({})["max_num_seqs"] == "64"
