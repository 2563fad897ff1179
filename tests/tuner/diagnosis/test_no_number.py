"""Servers whose every figure is NaN, infinite or out of all bounds are told of, in one piece."""

from __future__ import annotations

import json
import time

import pytest

from storage.sources.windows import finite
from tests.storage.sources.serving import serving
from tests.tuner.diagnosis.test_several_urls import QUICK
from tests.tuner.diagnosis.test_two_replicas import engine
from tests.tuner.fake_server import FakeServer
from tests.tuner.workload.test_record import Engine
from tuner.cli.main import main

ODD = ["NaN", "+Inf", "1e308", "9" * 6_000]


def with_values(text: str, value: str) -> str:
    """The page, each of its samples having this value."""
    lines = text.splitlines()
    told = (
        line if line[:1] in ("", "#") else f"{line.rpartition(' ')[0]} {value}" for line in lines
    )
    return "\n".join(told) + "\n"


@pytest.mark.parametrize("value", ODD)
def test_diagnose(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    began_s = time.time() - 1000

    def page() -> str:
        text = engine(time.time() - began_s, 'engine="0",model_name="m"')
        return with_values(text, value) if time.time() > turns_s else text

    for urls in (1, 2):
        turns_s = time.time() + 0.8
        with serving(page) as odd, serving(page) as other:
            given = [word for server in (odd, other)[:urls] for word in ("--url", server.url)]
            assert main(["diagnose", *given, *QUICK, "--json"]) in (0, 1, 4)
        nodes = json.loads(capsys.readouterr().out)["nodes"]
        assert nodes
        assert not [node["key"] for node in nodes if finite(node["value"]) != node["value"]]


def recorded(page: str) -> int:
    with FakeServer(metrics=lambda: page) as server:
        return main(["workload", "record", "--url", server.url])


@pytest.fixture
def text() -> str:
    served = Engine()
    served.serve([100, 200, 300] * 20, [10, 20, 30] * 20)
    return served.text()


@pytest.mark.parametrize("value", ODD)
def test_no_workload_is_made_of_them(
    value: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert recorded(with_values(text, value)) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("label", ["", 'le="x"', 'le="NaN"', 'le="0"', 'le="-1"'])
def test_a_bucket_that_cannot_be_read_is_left_out(
    label: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert recorded(text) == 0
    without = capsys.readouterr().out
    assert recorded(f"{text}vllm:request_prompt_tokens_bucket{{{label}}} 3\n") == 0
    assert capsys.readouterr().out.splitlines()[0] == without.splitlines()[0]
