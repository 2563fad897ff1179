"""Cells that hold no number, and times that no calendar has: refused with their file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import UserError
from tuner.workload import Workload, parse_workload
from tuner.workload.record_log import read_log


def read(kind: str, folder: Path, text: str) -> Workload:
    path = folder / "rows"
    path.write_text(text)
    return parse_workload(f'{kind}="{path}"' + (",order=file,rate=1" if kind == "file" else ""))


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        ("trace", "time,prompt,osl\n1,inf,5\n", ":2: the prompt is 'inf': neither text nor tokens"),
        ("trace", "time,prompt,osl\n1,5,5\n2,NaN,5\n", ":3: prompt: 'NaN' is no number of tokens"),
        ("trace", "time,isl,osl\n1,5,5\n1,inf,5\n", ":3: isl: 'inf' is no number of tokens"),
        ("trace", "time,isl,osl\n1,5,5\nnan,nan,nan\n", ":3: isl: 'nan' is no number of tokens"),
        ("file", "prompt,output\nhello,5\n nan ,5\n", ":3: the prompt is 'nan'"),
        ("file", '{"prompt": "Infinity", "max_tokens": 5}\n', ":1: the prompt is 'Infinity'"),
        ("file", '[{"prompt": NaN, "max_tokens": 5}]', ":1: prompt nan is no whole number"),
        (
            "file",
            f'[{{"prompt": {"9" * 5_000}, "max_tokens": 5}}]',
            ":1: a number has too many digits",
        ),
        ("file", "5\nnan\n7\n", ":2: length: 'nan' is no number of tokens"),
        ("file", "5\n\ninf\n", ":3: length: "),
    ],
)
def test_inf_and_nan_are_no_prompts(kind: str, text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        read(kind, tmp_path, text)
    assert f"{tmp_path / 'rows'}{says}" in str(caught.value)


def test_empty_lines_among_lengths_are_none(tmp_path: Path) -> None:
    workload = read("file", tmp_path, "5\n\n7\n")
    assert [workload.lengths(0, i)[0] for i in range(3)] == [5, 7, 5]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("time,isl,osl\n0000-01-01 00:00:00,5,5\n", ":2: time: '0000-01-01 00:00:00' is no time"),
        (
            "time,isl,osl\n2026-01-01 00:00:00,5,5\n0000-01-01 00:00:00,5,5\n",
            ":3: time: '0000-01-01 00:00:00' is no time",
        ),
        ('{"time": "0000-01-01T00:00:00", "isl": 5, "osl": 5}', ":1: '0000-01-01T00:00:00' is no"),
    ],
)
def test_there_was_no_year_0(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        read("trace", tmp_path, text)
    assert f"{tmp_path / 'rows'}{says}" in str(caught.value)


def test_a_log_line_of_no_calendars_day_is_left_out_and_told(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    request = '"POST /v1/completions HTTP/1.1" 200 2326'
    days = ("10/Oct/2026", "10/Oct/0000", "99/Oct/2026", "11/Oct/2026")
    path.write_text("".join(f"x [{day}:13:55:36 +0000] {request}\n" for day in days))
    log = read_log(str(path))
    assert log.times_s == [0, 86_400]
    assert log.left_out == {"no request or no time in them": 2}
