"""Knob syntax, bounds, and the promise that every point of the cube is a feasible configuration."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import UserError
from tuner.search.space import check_names, joint_space, parse_axis, useful_limits
from tuner.targets.base import KnobRange
from tuner.workload import parse_workload

KNOBS = {
    "max_num_seqs": KnobRange(128, 1, 256, True),
    "chunk_size": KnobRange(2048, 1, 8192, True),
    "gpu_memory_utilization": KnobRange(0.9, 0.1, 0.95, True),
}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("max_num_seqs=10,20,40,80", "max_num_seqs=10,20,40,80"),
        ("max_num_seqs=80,10,10", "max_num_seqs=10,80"),
        ("max_num_seqs=8:256", "max_num_seqs=8:256:log"),
        ("max_num_seqs=8:256:log", "max_num_seqs=8:256:log"),
        ("max_num_seqs=8:256:lin", "max_num_seqs=8:256:lin"),
        ("gpu_memory_utilization=0.7..0.95", "gpu_memory_utilization=0.7:0.95:lin"),
        ("max_num_batched_tokens=64:512", "chunk_size=64:512:log"),
        ("chunk-size = 64 , 128", "chunk_size=64,128"),
        ("chunk_size=256", "chunk_size=256"),
    ],
)
def test_knob_syntax(text: str, shown: str) -> None:
    axis = parse_axis(text, KNOBS)
    assert str(axis) == shown
    assert parse_axis(str(axis), KNOBS) == axis


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("max_num_seq=8:16", "did you mean max_num_seqs?"),
        ("zzz=1", "known: max_num_seqs"),
        ("block_size=16,32", "this server cannot change it"),
        ("max_num_seqs", "no values"),
        ("max_num_seqs=", "no values"),
        ("max_num_seqs=a,b", "'a' is no number"),
        ("max_num_seqs=1.5", "is not a whole number"),
        ("max_num_seqs=16:8", "must run from low to high"),
        ("max_num_seqs=8:1000", "outside 1 to 256"),
        ("max_num_seqs=0,8", "outside 1 to 256"),
        ("gpu_memory_utilization=0.5..0.99", "outside 0.1 to 0.95"),
        ("gpu_memory_utilization=nan", "not a finite number"),
    ],
)
def test_faults_are_one_sentence(text: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        joint_space(KNOBS, [text])
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_names_are_found_without_a_server() -> None:
    check_names(["max_num_seqs=1", "max_num_batched_tokens=64"])
    with pytest.raises(UserError, match="did you mean chunk_size"):
        check_names(["chunk_sise=64"])


def test_a_knob_twice_is_refused() -> None:
    with pytest.raises(UserError, match="given twice"):
        joint_space(KNOBS, ["chunk_size=64:128", "max_num_batched_tokens=64:256"])


def test_a_server_without_knobs_is_refused() -> None:
    with pytest.raises(UserError, match="--enable-admin"):
        joint_space({})


def test_default_space_stays_in_the_servers_bounds() -> None:
    tight = {
        "max_num_seqs": KnobRange(16, 1, 32, True),
        "chunk_size": KnobRange(512, 1, 1024, True),
        "gpu_memory_utilization": KnobRange(0.6, 0.6, 0.6, True),
    }
    space = joint_space(tight)
    assert [str(axis) for axis in space.axes] == ["max_num_seqs=4:32:log", "chunk_size=64:1024:log"]
    assert space.fixed == {"gpu_memory_utilization": 0.6}


def test_a_closed_loop_caps_what_can_matter() -> None:
    limits = useful_limits(parse_workload("prompt=100,output=8,concurrency=12"))
    seqs, chunk, _ = joint_space(KNOBS, useful=limits).axes
    assert str(seqs) == "max_num_seqs=2:12:log"
    assert str(chunk) == "chunk_size=64:1200:log"
    small = useful_limits(parse_workload("prompt=8,output=8,concurrency=4"))
    assert str(joint_space(KNOBS, useful=small).axes[1]) == "chunk_size=4:32:log"
    assert useful_limits(parse_workload("prompt=100,output=8,rate=3")) == {}
    assert "chunk_size" not in useful_limits(
        parse_workload("prompt=lognormal(100;1),output=8,concurrency=2")
    )
    assert str(joint_space(KNOBS, ["max_num_seqs=8:99"], limits).axes[0]).endswith("8:99:log")


def test_a_link_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(UserError, match=r"chunk_size .16. must be at least max_num_seqs .32."):
        joint_space(KNOBS, ["chunk_size=8,16", "max_num_seqs=32,64"])
    with pytest.raises(UserError, match=r"must be at least max_num_seqs .128."):
        joint_space(KNOBS, ["chunk_size=64:100"])


@given(
    st.lists(st.floats(0, 1), min_size=3, max_size=3),
    st.sampled_from(
        [
            [],
            ["max_num_seqs=8:256", "chunk_size=16:64"],
            ["chunk_size=16,64,256", "max_num_seqs=8,32,128"],
            ["max_num_seqs=100:200", "chunk_size=64:150:lin"],
        ]
    ),
)
def test_every_point_of_the_cube_is_feasible(units: list[float], texts: list[str]) -> None:
    space = joint_space(KNOBS, texts)
    config = space.decode(dict(zip(space.names, units, strict=False)))
    assert config["chunk_size"] >= config["max_num_seqs"]
    for name, value in config.items():
        assert KNOBS[name].low <= value <= KNOBS[name].high
    assert space.decode(space.encode(config)) == config


def test_lists_reach_each_of_their_values() -> None:
    space = joint_space(KNOBS, ["chunk_size=64,128,512", "max_num_seqs=8,100"])
    steps = [i / 20 for i in range(21)]
    found = {
        tuple(space.decode({"max_num_seqs": a, "chunk_size": b}).items())
        for a, b in itertools.product(steps, steps)
    }
    seen = {(dict(items)["max_num_seqs"], dict(items)["chunk_size"]) for items in found}
    assert seen == {(8, 64), (8, 128), (8, 512), (100, 128), (100, 512)}
