"""What is wrong with a file of prompts or lengths is told in one sentence with its line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner.errors import UserError
from tuner.workload import parse_workload

FAULTS: list[tuple[str, str | bytes, str, str]] = [
    ("a.jsonl", '{"prompt": "x"}\n{"prompt', "", "a.jsonl:2: is no JSON object on one line"),
    ("a.jsonl", '{"prompt": "x", "osl": 1}\n[1]\n', "", "a.jsonl:2: is no JSON object"),
    ("a.jsonl", '{"prompt": "x", "osl": 1}\n{"prompt": ""}\n', "", "a.jsonl:2: has no osl"),
    ("a.jsonl", '{"prompt": "x", "osl": 1}\n{"prompt": "", "osl": 1}', "", ":2: the prompt is em"),
    ("a.jsonl", '{"prompt": "x", "osl": -1}\n', "", ":1: osl -1 is no number of tokens"),
    ("a.jsonl", '{"prompt": "x", "osl": "1e"}\n', "", ":1: osl '1e' is no whole number"),
    ("a.jsonl", '{"messages": [{"role": "x"}]}\n', "", ":1: a message lacks its role and content"),
    ("a.jsonl", '{"messages": [{"role": "x", "content": ""}]}\n', "", ":1: no message is the user"),
    ("a.jsonl", '{"messages": []}\n', "", ":1: the messages are no list"),
    ("a.jsonl", '{"prompt": "x"}\n', "", "has no output lengths; name their column with"),
    ("a.jsonl", '{"what": "x"}\n', "", ":1: no column is a prompt"),
    ("a.jsonl", b'{"prompt": "\xff", "osl": 1}\n', "", ":1: is no JSON object"),
    (
        "a.json",
        '[{"prompt": "x", "osl": 1},\n {"prompt": }]',
        "",
        "a.json:2: is no JSON (Expecting",
    ),
    ("a.json", '[{"prompt": "x", "osl": 1},\n', "", "a.json:2: the JSON array has no end"),
    ("a.json", '[{"prompt": "x", "osl": 1},\n{"prompt": "y', "", "a.json:2: is no JSON (Untermin"),
    ("a.json", "[]", "", "holds no rows"),
    ("a.json", "[[1], 2]", "", "a.json:1: is no JSON object"),
    ("a.csv", "prompt,output\n5\n", "", "a.csv:2: has 1 cells where line 1 has 2"),
    ("a.csv", "prompt,output\n5,6\n7,8,9\n", "", "a.csv:3: has 3 cells where line 1 has 2"),
    ("a.csv", "prompt,output\nhi,6\nyou,8,9\n", "", "a.csv:3: has 3 cells where line 1 has 2"),
    ("a.csv", "prompt,output\n5,6\n\n7,x\n", "", "a.csv:4: output: 'x' is no number of tokens"),
    ("a.csv", "prompt,output\n5,6\n7,\n", "", "a.csv:3: output: nothing is no number of tokens"),
    ("a.csv", "prompt,output\n5,6.5\n", "", "a.csv:2: output: '6.5' is no number of tokens"),
    ("a.csv", "prompt,output\n", "", "first line of column names, but no rows"),
    ("a.csv", "a,b\n1,2\n", "", "a.csv:1: no column is a prompt"),
    ("a.csv", b"prompt,output\n\xff\xfe,5\n", "", "is no UTF-8 text"),
    (
        "a.csv",
        "prompt,output\n5,6\n",
        ",prompt_column=in",
        ":1: there is no column 'in' for prompt",
    ),
    ("a.csv", "prompt,output\n5,6\n", ",turns=2", "turns= needs conversations"),
    ("a.csv", "prompt,output\nhi,6\n", ",prompt=5", "prompt= cannot change the prompts"),
    ("a.csv", "prompt,output\n5,6\n", ",fit=10", "no row needs 10 tokens or fewer"),
    ("a.csv", "prompt,output\n5,6\n", ",order=backwards", "known: random, file"),
    ("a.txt", "5\n6\nsix\n", "", "a.txt:3: length: 'six' is no number of tokens"),
    ("a.txt", "", "", "is empty"),
    ("a.gz", b"\x1f\x8b\x08", "", "is packed as gzip; unpack it"),
    ("a.parquet", b"PAR1....", "", "is packed as Parquet"),
]


@pytest.mark.parametrize(("name", "text", "more", "says"), FAULTS)
def test_faults(tmp_path: Path, name: str, text: str | bytes, more: str, says: str) -> None:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError) as caught:
        parse_workload(f'file="{path}",rate=1{more}')
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    if "turns" not in more and "order" not in more:
        assert str(path) in str(caught.value)


def test_what_is_no_file(tmp_path: Path) -> None:
    for path, says in ((tmp_path / "none", "no such file"), (tmp_path, "is no file")):
        with pytest.raises(UserError, match=says):
            parse_workload(f'file="{path}",rate=1')
    with pytest.raises(UserError, match="no path"):
        parse_workload('file="",rate=1')


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("prompt,output\n5,6\n")
    path.chmod(0)
    with pytest.raises(UserError, match="cannot be read"):
        parse_workload(f'file="{path}",rate=1')
