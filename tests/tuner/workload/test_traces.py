"""trace=: the published column forms, their times, and the prefix blocks of Mooncake's."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from tuner.endpoint import Endpoint
from tuner.errors import UserError
from tuner.workload import Workload, parse_workload
from tuner.workload.content import Content
from tuner.workload.sharing import repeated_share

IDS = Endpoint("http://x", "m", token_ids=True, forced_lengths=True)
TEXT = Endpoint("http://x", "m", api="chat", tokens_per_word=2.0)

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:06.9799600,110,27
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:01.509930+00:00,2399,6
"""
BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,230,1317,Conversation log
118.5,GPT-4,417,276,693,Conversation log
"""
MOONCAKE = "\n".join(
    json.dumps(row)
    for row in (
        {"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]},
        {"timestamp": 3052, "input_length": 1300, "output_length": 6, "hash_ids": [0, 1, 3]},
        {"timestamp": 3052, "input_length": 700, "output_length": 7, "hash_ids": [9, 4]},
    )
)


def trace(folder: Path, text: str, more: str = "") -> Workload:
    path = folder / "trace"
    path.write_text(text)
    return parse_workload(f'trace="{path}"{more}')


def times(workload: Workload) -> list[float]:
    return list(workload.arrivals.times(0, 60.0))


@pytest.mark.parametrize(
    ("text", "at_s", "lengths"),
    [
        (AZURE, [0, 0.052, 3], [(4808, 10), (3180, 8), (110, 27)]),
        (AZURE_2024, [0, 1.5], [(2162, 5), (2399, 6)]),
        (BURSTGPT, [0, 40, 113.5], [(472, 18), (1087, 230), (417, 276)]),
        (MOONCAKE, [0, 3.052, 3.052], [(1100, 5), (1300, 6), (700, 7)]),
        ("arrival_ms,isl,osl\n250,1,2\n1250,3,4\n", [0, 1], [(1, 2), (3, 4)]),
        ("ts,prompt,output\n1700000000123,1,2\n1700000001123,3,4\n", [0, 1], [(1, 2), (3, 4)]),
    ],
)
def test_forms(
    tmp_path: Path, text: str, at_s: list[float], lengths: list[tuple[int, int]]
) -> None:
    workload = trace(tmp_path, text)
    assert times(workload) == pytest.approx(at_s, abs=1e-6)
    assert [workload.lengths(7, i)[:2] for i in range(len(lengths))] == lengths
    assert not workload.arrivals.closed
    assert workload.arrivals.level == pytest.approx(len(at_s) / at_s[-1])


def test_iso_times_in_json_lines(tmp_path: Path) -> None:
    rows = [
        {"startTime": at, "usage": {"prompt_tokens": tokens, "completion_tokens": tokens + 1}}
        for at, tokens in (("2026-01-01T00:00:01Z", 5), ("2026-01-01T01:00:00.5+01:00", 7))
    ]
    workload = trace(tmp_path, "\n".join(json.dumps(row) for row in rows))
    assert times(workload) == pytest.approx([0, 0.5])
    assert [workload.lengths(0, i)[:2] for i in range(2)] == [(7, 8), (5, 6)]


def test_a_part_of_a_trace_faster(tmp_path: Path) -> None:
    rows = "".join(f"{t},{100 + t},1\n" for t in range(0, 100, 10))
    workload = trace(tmp_path, "time,isl,osl\n" + rows, ",from=20s,for=40s,speed=2")
    assert times(workload) == [0, 5, 10, 15]
    assert [workload.lengths(0, i)[0] for i in range(4)] == [120, 130, 140, 150]
    assert parse_workload(str(workload)) == workload
    twice = workload.at(2 * workload.arrivals.level)
    assert times(twice) == [0, 2.5, 5, 7.5]
    assert parse_workload(str(twice)) == twice


def test_rows_out_of_order_are_sorted(tmp_path: Path) -> None:
    workload = trace(tmp_path, "time,isl,osl\n9,1,1\n3,2,2\n5,3,3\n")
    assert times(workload) == [0, 2, 6]
    assert [workload.lengths(0, i)[0] for i in range(3)] == [2, 3, 1]


def test_its_lengths_under_other_arrivals(tmp_path: Path) -> None:
    closed = trace(tmp_path, AZURE, ",concurrency=4")
    assert closed.arrivals.closed
    assert [closed.lengths(0, i)[0] for i in range(4)] == [4808, 3180, 110, 4808]
    assert trace(tmp_path, AZURE, ",rate=3").arrivals.kind == "poisson"


def test_its_times_with_other_lengths(tmp_path: Path) -> None:
    workload = trace(tmp_path, "time\n0.5\n2\n", ",prompt=10,output=3")
    assert times(workload) == [0, 1.5]
    assert workload.lengths(0, 0)[:2] == (10, 3)
    with pytest.raises(UserError, match="has no prompt lengths"):
        trace(tmp_path, "time\n0.5\n2\n")


def test_shared_blocks_of_mooncake_are_shared(tmp_path: Path) -> None:
    content = Content(trace(tmp_path, MOONCAKE), IDS, 0)
    first, second, third = (content.body(i)["prompt"] for i in range(3))
    assert [len(first), len(second), len(third)] == [1100, 1300, 700]
    assert first[:1024] == second[:1024]
    assert first[1024:1100] != second[1024:1100]
    assert not set(third[:512]) >= set(first[:512])
    assert third[:8] != first[:8]
    assert content.body(3)["prompt"][:512] != first[:512], "the trace gone through again is new"
    again = Content(trace(tmp_path, MOONCAKE), IDS, 0)
    assert again.body(0)["prompt"][:512] != first[:512], "content is fresh for a measurement"


def test_shared_blocks_as_text(tmp_path: Path) -> None:
    content = Content(trace(tmp_path, MOONCAKE), TEXT, 0)
    first, second = (content.body(i)["messages"][0]["content"].split() for i in range(2))
    assert first[:512] == second[:512]
    assert first[512:] != second[512:]
    assert len(first) == 550


def test_blocks_stay_with_their_rows_when_some_are_left_out(tmp_path: Path) -> None:
    content = Content(trace(tmp_path, MOONCAKE, ",from=1s"), IDS, 0, b"s")
    whole = Content(trace(tmp_path, MOONCAKE), IDS, 0, b"s")
    assert content.body(0)["prompt"][:1024] == whole.body(1)["prompt"][:1024]
    assert content.body(1)["prompt"][:512] == whole.body(2)["prompt"][:512]


def test_repeated_share_of_blocks(tmp_path: Path) -> None:
    workload = trace(tmp_path, MOONCAKE)
    share = repeated_share(workload, 0, [(0, 0), (1, 0), (2, 0)])
    assert share == pytest.approx(1024 / 3100)


@pytest.mark.parametrize(
    ("text", "more", "says"),
    [
        ("isl,osl\n1,2\n", "", "has no column of times"),
        ("time,isl,osl\n1,2,3\nsoon,2,3\n", "", ":3: time: 'soon' is no time"),
        ("time,isl,osl\n1,2,3\n,2,3\n", "", ":3: time: nothing is no time"),
        ("time,isl,osl\n1,2,3\n", ",from=5s", "the trace lasts 0 s"),
        ("time,isl,osl\n1,2,3\n", ",speed=0", "at least 0.001"),
        ("time,isl,osl\n1,2,3\n", ",time_unit=h", "known: s, ms, us, ns"),
        ("time,isl,osl\n1,2,3\n", ",order=random", "tear a trace from its times"),
        ("time,isl,osl\n1,2,3\n", ",rate=2,speed=3", "cannot stand together"),
        (MOONCAKE, ",shared_prefix=4", "cannot change the prompts"),
        ('{"timestamp": true, "input_length": 3, "output_length": 4}', "", ":1: True is no time"),
        ('{"timestamp": "x", "isl": 3, "osl": 4}', "", ":1: 'x' is no time"),
        ('{"timestamp": 1, "isl": 3, "osl": 4, "hash_ids": ["a"]}', "", ":1: hash_ids is no list"),
    ],
)
def test_faults(tmp_path: Path, text: str, more: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        trace(tmp_path, text, more)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_many_rows_cost_a_few_numbers_each(tmp_path: Path) -> None:
    count = 200_000
    path = tmp_path / "long.csv"
    stamps = np.arange(count) * 0.01
    rows = "".join(f"{at:.2f},{i % 900 + 1},{i % 90 + 1}\n" for i, at in enumerate(stamps))
    path.write_text("Timestamp,Request tokens,Response tokens\n" + rows)
    workload = parse_workload(f"trace={path}")
    assert workload.source is not None
    assert workload.source.rows.count == count
    assert workload.lengths(0, count - 1)[:2] == ((count - 1) % 900 + 1, (count - 1) % 90 + 1)
    assert workload.arrivals.level == pytest.approx(100, rel=0.01)


def test_a_workload_travels_to_another_process(tmp_path: Path) -> None:
    """With its rows: a worker need not read the file again."""
    workload = trace(tmp_path, MOONCAKE)
    again = pickle.loads(pickle.dumps(workload))
    (tmp_path / "trace").unlink()
    assert again == workload
    assert [again.lengths(0, i) for i in range(3)] == [workload.lengths(0, i) for i in range(3)]
    assert Content(again, IDS, 0, b"s").body(1) == Content(workload, IDS, 0, b"s").body(1)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("at", ["1e308", "-1e308", "inf", "-inf", "1e21"])
@pytest.mark.parametrize("first", [True, False])
def test_a_time_beyond_all_units_is_refused(at: str, first: bool, tmp_path: Path) -> None:
    rows = [at, "1"] if first else ["1", at]
    with pytest.raises(UserError, match=r"is no time"):
        trace(tmp_path, "time,isl,osl\n" + "".join(f"{row},5,5\n" for row in rows))
    lines = (json.dumps({"time": row, "isl": 5, "osl": 5}) for row in rows)
    with pytest.raises(UserError, match=r"is no time"):
        trace(tmp_path, "\n".join(lines))


@pytest.mark.parametrize("tokens", ["true", '"' + "9" * 5000 + '"'])
def test_what_is_no_number_of_tokens_is_shown_short(tokens: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"osl .* is no") as caught:
        trace(tmp_path, f'{{"time": 1, "isl": 5, "osl": {tokens}}}')
    assert len(str(caught.value)) < 200 + len(str(tmp_path))


def test_a_cell_is_shown_short(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no number of tokens") as caught:
        trace(tmp_path, f"time,isl,osl\n1,5,{'9' * 5000}\n")
    assert len(str(caught.value)) < 200 + len(str(tmp_path))
