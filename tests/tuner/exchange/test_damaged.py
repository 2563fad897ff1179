"""Files with one damaged value: a sentence or a run that can be drawn, never anything else."""

from __future__ import annotations

import io
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.exchange.recorded import document, made, written
from tuner.errors import UserError
from tuner.exchange.read import read_file
from tuner.exchange.tables import write_jsonl
from tuner.exchange.vllm_bench import DETAILS
from tuner.report.html import render_run_html

DAMAGE = [None, -1, "x", [], {}, 1e308, float("nan"), True, -5.5, 0, [None], ["a"], 2**70]
TRIES = 60


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document; of long lists the first four."""
    if path:
        yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value[:4]) if isinstance(
        value, list) else ()  # fmt: skip
    for key, item in inside:
        yield from places(item, (*path, key))


def damaged(told: Any, rng: random.Random) -> Any:
    told = json.loads(json.dumps(told))
    *way, last = rng.choice(list(places(told)))
    holder = told
    for key in way:
        holder = holder[key]
    if isinstance(holder, dict) and rng.random() < 0.3:
        del holder[last]
    else:
        holder[last] = rng.choice(DAMAGE)
    return told


def own_lines() -> list[Any]:
    out = io.BytesIO()
    write_jsonl(made(made().records[:6]), out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def drawn_or_refused(path: Path) -> bool:
    """Whether it could be read."""
    try:
        for run in read_file(path):
            assert render_run_html(run)
    except UserError as refusal:
        assert "\n" not in str(refusal)
        return False
    return True


@pytest.mark.parametrize(
    "name", ["guidellm-0.8-cut-off", "guidellm-0.3-concurrent", "vllm-0.32-bench-refused"]
)
def test_one_damaged_value_in_a_report(name: str, tmp_path: Path) -> None:
    told, rng = document(f"{name}.json"), random.Random(name)
    read = [drawn_or_refused(written(tmp_path, damaged(told, rng))) for _ in range(TRIES)]
    assert not all(read)


def test_one_damaged_value_in_our_own_lines(tmp_path: Path) -> None:
    lines, rng, read = own_lines(), random.Random(1), []
    for _ in range(TRIES):
        at = rng.choice([0, 1, 2])
        changed = [damaged(line, rng) if i == at else line for i, line in enumerate(lines)]
        read.append(drawn_or_refused(written(tmp_path, "\n".join(map(json.dumps, changed)))))
    assert not all(read)
    assert any(read)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[" * 200_000, "nested too deeply"),
        (json.dumps({"metadata": 5, "benchmarks": [5]}), "no GuideLLM benchmark"),
    ],
)
def test_hostile_document_is_one_sentence(content: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says):
        read_file(written(tmp_path, content))


def test_device_and_pipe_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/zero"), tmp_path / "pipe"):
        with pytest.raises(UserError, match="device or a pipe"):
            read_file(path)


def test_no_calendar_holds_such_a_start(tmp_path: Path) -> None:
    lines = own_lines()
    lines[0]["run"]["began_unix_s"] = 1e200
    with pytest.raises(UserError, match="began_unix_s is no time"):
        read_file(written(tmp_path, "\n".join(map(json.dumps, lines))))


@pytest.mark.parametrize(
    ("line", "change", "says"),
    [
        (1, {"output_tokens": 10**12}, "output_tokens of request 0"),
        (1, {"scheduled_s": None}, "scheduled_s of request 0"),
        (1, {"chunk_tokens": [1]}, "other chunks than tokens"),
        (1, {"chunk_tokens": [1, 1, 1, -1]}, "no possible count"),
        (1, {"chunk_times_s": [1e300] * 4}, "no possible time"),
        (1, {"state": "fine"}, "state of request 0 is 'fine'"),
    ],
)
def test_a_request_that_cannot_be_is_named(
    line: int, change: dict[str, Any], says: str, tmp_path: Path
) -> None:
    lines = own_lines()
    lines[line] |= change
    with pytest.raises(UserError, match=says):
        read_file(written(tmp_path, "\n".join(map(json.dumps, lines))))


@pytest.mark.parametrize("name", DETAILS)
def test_an_empty_list_of_vllm_differs_in_length(name: str, tmp_path: Path) -> None:
    told = document("vllm-0.32-bench-closed.json") | {name: []}
    with pytest.raises(UserError, match=rf"differ in length \(.*{name} 0"):
        read_file(written(tmp_path, told))


def test_a_vllm_file_without_requests(tmp_path: Path) -> None:
    told = document("vllm-0.32-bench-closed.json") | {
        name: [] for name in (*DETAILS, "queue_times")
    }
    with pytest.raises(UserError, match="holds no requests"):
        read_file(written(tmp_path, told))


def test_a_date_of_vllm_that_no_calendar_has(tmp_path: Path) -> None:
    told = document("vllm-0.32-bench-closed.json") | {"date": "20201399-999999"}
    with pytest.raises(UserError, match="date '20201399-999999' is none"):
        read_file(written(tmp_path, told))
