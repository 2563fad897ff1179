"""Workloads: one line of text, the same load for the same seed, other content each time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tuner.endpoint import Endpoint
from tuner.errors import UserError
from tuner.workload import PRESETS, Workload, parse_workload
from tuner.workload.content import Content


def test_closed_loop_text() -> None:
    workload = Workload.parse("prompt=256,output=64,concurrency=16")
    assert workload.arrivals.closed
    assert workload.arrivals.level == 16
    assert workload.lengths(0, 5)[:2] == (256, 64)


@pytest.mark.parametrize(
    "text",
    [
        "prompt=256,output=64,concurrency=16",
        "prompt=lognormal(256,0.5),output=normal(64,8),rate=2",
        "prompt=128..512,output=64,shared_prefix=100,prefix_groups=4,rate=3,burstiness=0.5",
        "prompt=10,output=1,rate=2,arrivals=constant",
        "prompt=1000000,output=1..1000000,rate=2.1234567891,burstiness=0.12345678",
        "prompt=normal(123456.75,1000),output=1,concurrency=999999",
        "prompt=10,output=1,rate=0.01",
        "prompt=10,output=1,rate=1..10",
        "prompt=10,output=1,rate=2@30s/0@10s/8@1.5m,arrivals=constant",
        "prompt=10,output=1,rate=1..10@60s/10,burstiness=0.5",
        "prompt=10,output=1,concurrency=1..64",
        "prompt=10,output=1,concurrency=4@30s/16@60s/2",
        "prompt=10,output=1,rate=inf,requests=100",
        "prompt=10,output=1,turns=1..5,followup=20,think=exponential(2s),requests=7",
        "prompt=10,output=1,turns=3,think=lognormal(1.5s,0.8),concurrency=2",
        "prompt=10,output=1,turns=1,think=1s..2s,rate=1",
        "prompt=quantiles(0:1,50:20.5,100:90),output=3",
        "prompt=50,output=3,shared_prefix=10,prefix_groups=8,prefix_skew=1.2",
        *(f"{name},rate=2" for name in PRESETS),
    ],
)
def test_text_form_reads_back(text: str) -> None:
    workload = parse_workload(text)
    assert parse_workload(str(workload)) == workload
    assert Workload.from_dict(workload.as_dict()) == workload


def test_default_is_a_workload() -> None:
    assert parse_workload(None).arrivals.closed


def test_preset_may_be_changed() -> None:
    assert parse_workload("output=5,chat,rate=2").lengths(0, 0)[1] == 5
    assert not parse_workload("offline,rate=2").arrivals.closed


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("prompt=256,output=64,concurency=16", "did you mean 'concurrency='"),
        ("prompt=256", "output= is missing"),
        ("prompt=,output=3", "no value"),
        ("prompt=many,output=3", "no length"),
        ("prompt=0,output=3", "1 to"),
        ("prompt=9..3,output=3", "backwards"),
        ("prompt=²,output=3", "no length"),
        ("prompt=lognormal(5,900),output=3", "sigma is at most 4"),
        ("prompt=normal(5,99999999999),output=3", "1 to"),
        ("prompt=1..1000001,output=3", "1 to"),
        ("prompt=3,output=3,rate=0", "at least 0.001"),
        ("prompt=3,output=3,rate=nan", "at least"),
        ("prompt=3,output=3,concurrency=1.5", "whole"),
        ("prompt=3,output=3,arrivals=constant", "needs rate="),
        ("prompt=3,output=3,rate=1,arrivals=weekly", "known: constant"),
        ("prompt=3,output=3,rate=1,concurrency=3", "cannot stand together"),
        ("prompt=3,output=3,prompt=4", "given twice"),
        ("chat,agent", "two presets"),
        ("prompt=3,output=3,rate=inf", "say how many with requests="),
        ("prompt=3,output=3,rate=2/8", "only the last step"),
        ("prompt=3,output=3,rate=2@30x/8", "no duration"),
        ("prompt=3,output=3,rate=a..b", "'a' is no number"),
        ("prompt=3,output=3,rate=0@10s/0", "never sends"),
        ("prompt=3,output=3,concurrency=0@10s/4", "at least 1"),
        ("prompt=3,output=3,think=2s", "needs turns="),
        ("prompt=3,output=3,turns=3,think=later", "no duration"),
        ("prompt=3,output=3,turns=3,think=normal(2s)", "no pause"),
        ("prompt=3,output=3,turns=3,think=5s..1s", "backwards"),
        ("prompt=3,output=3,turns=100000", "at most 1000"),
        ("prompt=3,output=3,prefix_skew=1", "needs prefix_groups="),
        ("prompt=3,output=3,speed=2", "needs trace="),
        ("prompt=3,output=3,requests=1.5", "whole"),
        ("prompt=quantiles(0:1,50:9),output=3", "from 0 to 100"),
        ("prompt=quantiles(0:1,50:9,40:10,100:20),output=3", "rising"),
        ("cat,rate=2", "did you mean"),
    ],
)
def test_faults(text: str, says: str) -> None:
    with pytest.raises(UserError, match="--workload") as caught:
        parse_workload(text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_same_seed_same_load() -> None:
    workload = parse_workload("chat,rate=5")
    lengths = [workload.lengths(3, i) for i in range(50)]
    assert lengths == [workload.lengths(3, i) for i in range(50)]
    assert lengths != [workload.lengths(4, i) for i in range(50)]
    first, again = (list(itertools.islice(workload.arrivals.times(3, 60.0), 50)) for _ in range(2))
    assert first == again


@pytest.mark.parametrize(
    ("prompt", "mean", "spread"),
    [("100..300", 200, 58), ("normal(200,40)", 200, 40), ("lognormal(200,0.5)", 227, 121)],
)
def test_lengths_follow_their_distribution(prompt: str, mean: float, spread: float) -> None:
    workload = parse_workload(f"prompt={prompt},output=1,rate=1")
    drawn = np.array([workload.lengths(0, i)[0] for i in range(3000)])
    assert drawn.min() >= 1
    assert drawn.mean() == pytest.approx(mean, rel=0.06)
    assert drawn.std() == pytest.approx(spread, rel=0.15)
    assert workload.prompt.mean == pytest.approx(mean, rel=0.01)


@pytest.mark.parametrize(
    ("arrivals", "variation"),
    [("arrivals=constant", 0.0), ("arrivals=poisson", 1.0), ("burstiness=0.25", 2.0)],
)
def test_arrivals_have_their_rate_and_burstiness(arrivals: str, variation: float) -> None:
    workload = parse_workload(f"prompt=1,output=1,rate=20,{arrivals}")
    times = list(itertools.islice(workload.arrivals.times(1, 600.0), 8000))
    gaps = np.diff(times)
    assert gaps.mean() == pytest.approx(1 / 20, rel=0.08)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.1, abs=1e-9)


def endpoint(**fields: object) -> Endpoint:
    return Endpoint("http://x", "m", token_ids=True, forced_lengths=True, **fields)  # type: ignore[arg-type]


def test_content_is_fresh_unless_a_salt_asks_for_the_same() -> None:
    workload = parse_workload("prompt=32,output=8,rate=1")
    fresh = [Content(workload, endpoint(), 0).body(1)["prompt"] for _ in range(2)]
    assert fresh[0] != fresh[1]
    assert [len(prompt) for prompt in fresh] == [32, 32]
    salted = [Content(workload, endpoint(), 0, b"s").body(1) for _ in range(2)]
    assert salted[0] == salted[1]
    assert salted[0]["min_tokens"] == salted[0]["max_tokens"] == 8
    assert salted[0]["ignore_eos"]


def test_shared_prefix_is_shared_within_its_group_only() -> None:
    workload = parse_workload("prompt=32,output=8,rate=1,shared_prefix=20,prefix_groups=2")
    content = Content(workload, endpoint(), 0)
    heads: dict[int, set[tuple[int, ...]]] = {}
    for index in range(20):
        group = workload.lengths(0, index)[2]
        heads.setdefault(group, set()).add(tuple(content.body(index)["prompt"][:20]))
    assert {group: len(found) for group, found in heads.items()} == {0: 1, 1: 1}
    assert heads[0] != heads[1]
    tails = {tuple(content.body(i)["prompt"][20:]) for i in range(20)}
    assert len(tails) == 20


def test_lengths_are_cut_to_the_context() -> None:
    workload = parse_workload("prompt=500,output=100,rate=1,shared_prefix=450")
    content = Content(workload, endpoint(max_model_len=256), 0)
    assert content.lengths(0)[:2] == (156, 100)
    assert len(content.body(0)["prompt"]) == 156


def test_text_gets_the_words_that_make_up_its_tokens() -> None:
    workload = parse_workload("prompt=100,output=8,rate=1,shared_prefix=40")
    target = Endpoint("http://x", "m", api="chat", tokens_per_word=2.0, template_tokens=10)
    bodies = [Content(workload, target, 0, b"s").body(i) for i in range(2)]
    texts = [body["messages"][0]["content"].split() for body in bodies]
    assert [len(words) for words in texts] == [45, 45]
    assert texts[0][:20] == texts[1][:20]
    assert texts[0][20:] != texts[1][20:]
    assert "ignore_eos" not in bodies[0]
