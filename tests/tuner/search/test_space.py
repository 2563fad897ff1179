"""Knob syntax, bounds, and the promise that every point of the cube is a feasible configuration."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import UserError
from tuner.search.space import check_names, joint_space, parse_axis
from tuner.search.usual import useful_limits
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


def test_a_share_of_memory_that_a_pools_size_replaces_is_not_searched() -> None:
    sized = KNOBS | {"num_gpu_blocks_override": KnobRange(64, 1, 100_000, False)}
    assert "gpu_memory_utilization" not in joint_space(sized).names
    unsized = KNOBS | {"num_gpu_blocks_override": KnobRange("default", 1, 100_000, False)}
    assert "gpu_memory_utilization" in joint_space(unsized).names


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


MANY = KNOBS | {
    "block_size": KnobRange("default", 1, 1_000_000, False),
    "kv_cache_dtype": KnobRange("auto", 1, 0, False),
    "dtype": KnobRange("auto", 0, 0, False, words=("auto", "float32", "bfloat16")),
    "enforce_eager": KnobRange(False, 0, 0, False),
    "--max-num-partial-prefills": KnobRange("default", 1, 0, False),
}


@pytest.mark.parametrize(
    ("text", "shown", "values"),
    [
        ("kv_cache_dtype=fp8,auto", "kv_cache_dtype=fp8,auto", ("fp8", "auto")),
        ("enforce-eager=true,false", "enforce_eager=true,false", (True, False)),
        ("block_size=default,64,16", "block_size=16,64,default", (16, 64, "default")),
        ("page_size=16,32", "block_size=16,32", (16, 32)),
        ("--max-num-partial-prefills=1,2,4", "--max-num-partial-prefills=1,2,4", (1, 2, 4)),
        ("--max-num-seqs=8,16", "max_num_seqs=8,16", (8, 16)),
        ("--max_num_partial_prefills=a,true", "--max-num-partial-prefills=a,true", ("a", True)),
        (
            "kv_cache_dtype=auto,fp8 if gpu_memory_utilization > 0.8",
            "kv_cache_dtype=auto,fp8 if gpu_memory_utilization > 0.8", ("auto", "fp8"),
        ),
    ],
)  # fmt: skip
def test_words_flags_and_conditions(text: str, shown: str, values: tuple[object, ...]) -> None:
    axis = parse_axis(text, MANY)
    assert str(axis) == shown
    assert axis.values == values
    assert [type(value) for value in axis.values] == [type(value) for value in values]
    assert parse_axis(str(axis), MANY) == axis
    assert [axis.decode(axis.encode(value)) for value in values] == list(values)


def test_a_flags_own_range() -> None:
    axis = parse_axis("--max-num-partial-prefills=1:16:log", MANY)
    assert (axis.whole, axis.settings[0], axis.settings[-1]) == (True, 1, 16)


@pytest.mark.parametrize(
    ("texts", "constraints", "says"),
    [
        (["dtype=float64"], [], "knows no 'float64'; it knows auto, float32"),
        (["enforce_eager=maybe"], [], "neither true nor false"),
        (["block_size=16,,32"], [], "a value is missing"),
        (["--frobnicate=1"], [], "this server cannot change it"),
        (["chunk_size:=max_num_seqs * 4", "max_num_seqs=8,16", "chunk_size=64"], [], "twice"),
        (["chunk_size:=chunk_size + 1"], [], "cannot follow itself"),
        (["chunk_size=64,128 if chunk_size > 5"], [], "cannot be about itself"),
        (
            ["dtype=auto,float32 if enforce_eager", "enforce_eager=true,false if dtype == 'auto'"],
            [], "in a circle",
        ),
        (["max_num_seqs=8,16"], ["max_num_seqs > 16"], "leaves no combination"),
        (["max_num_seqs=8,16"], ["block_size > 16"], "about no knob that varies"),
        (["max_num_seqs=8,16"], ["1 > 0"], "names no knob"),
        (["max_num_seqs=8,16"], ["max_num_seqs > 'a'"], "a word with a number"),
        (["kv_cache_dtype=auto,fp8"], ["kv_cache_dtype > 1"], "a word with a number"),
        (
            ["max_num_seqs=8,16", "chunk_size=64,128"],
            ["max_num_seqs > 8 or chunk_size > 64", "max_num_seqs < 16", "chunk_size < 128"],
            "meets all constraints together",
        ),
    ],
)  # fmt: skip
def test_faults_of_richer_spaces(texts: list[str], constraints: list[str], says: str) -> None:
    with pytest.raises(UserError) as caught:
        joint_space(MANY, texts, constraints=constraints)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "own", "instead_of"),
    [
        ("gpu_memory_utilization=0.5:0.95", 0.9, 0.92),
        ("chunk_size=64:4096 if max_num_seqs > 1", 1000, 992),
        ("chunk_size=64:4096", 4090, None),  # an end stays
    ],
)
def test_the_baselines_setting_is_a_step_of_a_range(
    text: str, own: float, instead_of: float | None
) -> None:
    name = text.partition("=")[0]
    axis = parse_axis(text, KNOBS | {name: KnobRange(own, 0.1, 8192, True)})
    assert axis.decode(axis.encode(own)) == own
    assert (axis.low, axis.high) == (axis.settings[0], axis.settings[-1])
    assert instead_of not in axis.settings
    elsewhere = parse_axis(text, KNOBS | {name: KnobRange(8192, 0.1, 8192, True)})
    assert len(axis.settings) == len(elsewhere.settings) + (instead_of is None)


RICH = [
    "max_num_seqs=4:256", "chunk_size=64:4096", "gpu_memory_utilization=0.5..0.9",
    "kv_cache_dtype=auto,fp8 if gpu_memory_utilization > 0.7", "enforce_eager=true,false",
]  # fmt: skip
RULES = ["chunk_size >= 4 * max_num_seqs", "max_num_seqs * chunk_size <= 65536 or enforce_eager"]


@given(st.lists(st.floats(0, 1), min_size=5, max_size=5))
def test_constraints_and_conditions_hold_everywhere(units: list[float]) -> None:
    space = RICH_SPACE
    config = space.decode(dict(zip(space.names, units, strict=True)))
    assert space.feasible(config)
    assert config["chunk_size"] >= 4 * config["max_num_seqs"]
    assert config["kv_cache_dtype"] == "auto" or config["gpu_memory_utilization"] > 0.7
    assert space.decode(space.encode(config)) == config


RICH_SPACE = joint_space(MANY, RICH, constraints=RULES)


def test_a_space_is_read_back_from_its_own_text() -> None:
    told = RICH_SPACE.as_dict()
    again = joint_space(MANY, told["axes"], constraints=told["constraints"])
    assert again == RICH_SPACE
    assert again.meaning == RICH_SPACE.meaning
    assert again.meaning != joint_space(MANY, RICH).meaning


def test_a_link_follows_and_stays_in_bounds() -> None:
    space = joint_space(MANY, ["max_num_seqs=8:256", "chunk_size:=64 * max_num_seqs"])
    configs = [space.decode({"max_num_seqs": i / 50}) for i in range(51)]
    assert all(c["chunk_size"] == 64 * c["max_num_seqs"] <= 8192 for c in configs)
    assert {c["max_num_seqs"] for c in configs} >= {8, 128}


def test_a_conditional_knob_keeps_the_baseline_elsewhere() -> None:
    space = joint_space(
        MANY, ["chunk_size=64,512 if enforce_eager", "enforce_eager=true,false"]
    )  # fmt: skip
    assert space.names == ("enforce_eager", "chunk_size")
    assert space.decode({"enforce_eager": 0.9, "chunk_size": 0.0})["chunk_size"] == 2048
