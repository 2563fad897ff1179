"""file=: JSONL, ShareGPT JSON and CSV, known by content; every fault names its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tuner.endpoint import Endpoint
from tuner.errors import UserError
from tuner.workload import Workload, parse_workload
from tuner.workload.content import Content
from tuner.workload.read import read_recording

CHAT = Endpoint("http://x", "m", api="chat")
COMPLETIONS = Endpoint("http://x", "m", token_ids=True, forced_lengths=True)


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def in_order(path: Path, more: str = "") -> Workload:
    return parse_workload(f'file="{path}",order=file,rate=1{more}')


def prompts(workload: Workload, sessions: int, endpoint: Endpoint = COMPLETIONS) -> list[str]:
    """The file's own text: without this measurement's words at the head."""
    content = Content(workload, endpoint, 0)
    bodies = [content.body(session) for session in range(sessions)]
    return [body["prompt"].partition("\n")[2] for body in bodies]


JSONL = (
    '{"prompt": "What is a KV cache?", "output_tokens": 30}\n'
    "\n"
    '{"prompt": "Überraschung\\n2", "output_tokens": 7}\n'
)


def test_jsonl(tmp_path: Path) -> None:
    workload = in_order(write(tmp_path, "a.jsonl", JSONL))
    assert prompts(workload, 3) == [
        "What is a KV cache?", "Überraschung\n2", "What is a KV cache?",
    ]  # fmt: skip
    assert [workload.lengths(0, i)[:2] for i in range(2)] == [(0, 30), (0, 7)]
    assert Content(workload, COMPLETIONS, 0).body(1)["min_tokens"] == 7


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    for name, text in (("a.jsonl", JSONL), ("a.csv", "prompt,output\nhi,3\n")):
        path = write(tmp_path, name, b"\xef\xbb\xbf" + text.encode())
        assert "﻿" not in prompts(in_order(path), 1)[0]
    array = json.dumps([{"prompt": "ü one", "max_tokens": 3}, {"prompt": "two", "max_tokens": 4}])
    path = write(tmp_path, "a.json", b"\xef\xbb\xbf" + array.encode())
    assert prompts(in_order(path), 2) == ["ü one", "two"]


def test_csv_with_line_ends_and_commas_in_cells(tmp_path: Path) -> None:
    text = 'id;prompt;Completion Tokens\r\n1;"two\r\nlines; yes";5\r\n2;ä plain;6\r\n'
    workload = in_order(write(tmp_path, "a.csv", text))
    assert prompts(workload, 2) == ["two\r\nlines; yes", "ä plain"]
    assert [workload.lengths(0, i)[1] for i in range(2)] == [5, 6]


def talk(*said: str) -> list[dict[str, str]]:
    return [{"from": "human" if i % 2 == 0 else "gpt", "value": s} for i, s in enumerate(said)]


def sharegpt(folder: Path, *talks: list[dict[str, str]], indent: int | None = None) -> Path:
    rows = [{"id": str(i), "conversations": said} for i, said in enumerate(talks)]
    return write(folder, "sharegpt.json", json.dumps(rows, indent=indent, ensure_ascii=False))


@pytest.mark.parametrize("indent", [None, 2])
def test_sharegpt(tmp_path: Path, indent: int | None) -> None:
    path = sharegpt(
        tmp_path, talk("héllo", "x" * 40, "more", "y" * 8), talk("bye", "z" * 4), indent=indent
    )
    workload = in_order(path)
    assert prompts(workload, 2) == ["héllo", "bye"]
    assert [workload.lengths(0, i)[1] for i in range(2)] == [10, 1]
    assert [Content(workload, CHAT, 0).turns(i) for i in range(2)] == [1, 1]


def test_a_conversation_of_a_file_waits_for_the_servers_answers(tmp_path: Path) -> None:
    path = sharegpt(tmp_path, talk("one", "x" * 40, "two", "y" * 80, "three", "z"), talk("bye"))
    workload = in_order(path, ",turns=2,output=5")
    content = Content(workload, CHAT, 0, b"s")
    assert content.keeps_answers
    assert [content.turns(i) for i in range(2)] == [2, 1]
    first = content.body(0)["messages"]
    second = content.body(0, 1, ["ANSWER"])["messages"]
    assert second == [
        *first,
        {"role": "assistant", "content": "ANSWER"},
        {"role": "user", "content": "two"},
    ]
    recorded = in_order(sharegpt(tmp_path, talk("one", "x" * 40, "two", "y" * 80)), ",turns=2")
    assert [recorded.lengths(0, 0, turn)[1] for turn in range(2)] == [10, 20]


def test_openai_messages(tmp_path: Path) -> None:
    messages = [
        {"role": "system", "content": "be short"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": [{"type": "text", "text": "two"}]},
        {"role": "assistant", "content": "x" * 20},
    ]
    path = write(tmp_path, "a.jsonl", json.dumps({"messages": messages}) + "\n")
    workload = in_order(path)
    sent = Content(workload, CHAT, 0).body(0)["messages"]
    assert sent[0]["content"].endswith("\nbe short")
    assert sent[1:] == messages[1:4]
    assert workload.lengths(0, 0)[1] == 5
    text = Content(workload, COMPLETIONS, 0).body(0)["prompt"]
    assert text.endswith("user: one\n\nassistant:1\n\nuser: two\n\nassistant:")


def test_tool_calls_and_parts_pass_through(tmp_path: Path) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    tool = {"role": "tool", "tool_call_id": "1", "content": "42"}
    image = {"type": "image_url", "image_url": {"url": "data:x"}}
    messages = [{"role": "user", "content": [image]}, call, tool]
    path = write(tmp_path, "a.jsonl", json.dumps({"messages": messages, "max_tokens": 4}) + "\n")
    sent = Content(in_order(path), CHAT, 0).body(0)["messages"]
    assert sent[1:] == [call, tool]
    assert sent[0]["content"][1:] == [image]


def test_words_at_the_head_make_a_files_prompts_new(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", JSONL)
    workload = in_order(path)
    one, other = (Content(workload, COMPLETIONS, 0).body(0)["prompt"] for _ in range(2))
    assert one != other
    content = Content(workload, COMPLETIONS, 0, b"s")
    heads = [content.body(session)["prompt"].partition("\n")[0] for session in range(4)]
    assert heads[0] == heads[1], "what the file's prompts share stays shared"
    assert heads[0] != heads[2], "the file gone through again is new"
    assert content.body(1) == Content(workload, COMPLETIONS, 0, b"s").body(1)


def test_a_random_order_goes_through_all_rows_first(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i}\n" for i in range(1, 51))
    path = write(tmp_path, "a.csv", "prompt,output\n" + rows)
    workload = parse_workload(f'file="{path}",rate=1')
    drawn = [workload.lengths(0, i)[0] for i in range(50)]
    assert sorted(drawn) == list(range(1, 51))
    assert drawn != sorted(drawn)
    assert drawn != [workload.lengths(1, i)[0] for i in range(50)]
    assert workload.lengths(0, 50) == workload.lengths(0, 0)
    assert workload.prompt.mean == 25.5


def test_pairs_of_lengths_stay_together(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "input_length,osl\n10,1\n2000,200\n")
    workload = parse_workload(f'file="{path}",rate=1,shared_prefix=50')
    assert {workload.lengths(0, i)[:2] for i in range(2)} == {(51, 1), (2000, 200)}
    assert len(Content(workload, COMPLETIONS, 0).body(0)["prompt"]) in (51, 2000)
    own = parse_workload(f'file="{path}",rate=1,output=7,fit=100')
    assert own.lengths(0, 0)[:2] == (10, 7)
    assert own.source is not None
    assert own.source.rows.left_out == (("more than fit=100 tokens", 1),)


def test_columns_the_user_names(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'q,"my, in",my out\nwhat,5,6\n')
    counts = parse_workload(f'file="{path}",prompt_column="my, in",output_column=my out')
    assert counts.lengths(0, 0)[:2] == (5, 6)
    text = parse_workload(f'file="{path}",order=file,prompt_column=q,output_column=my out')
    assert prompts(text, 1) == ["what"]
    nested = write(tmp_path, "a.jsonl", '{"usage": {"prompt_tokens": 5, "completion_tokens": 6}}\n')
    assert in_order(nested).lengths(0, 0)[:2] == (5, 6)


def test_lengths_of_a_column(tmp_path: Path) -> None:
    plain = write(tmp_path, "n.txt", "5\n7\n7\n")
    table = write(tmp_path, "t.csv", "ContextTokens,GeneratedTokens\n10,1\n20,3\n")
    workload = parse_workload(f"prompt=empirical({plain}),output=empirical({table})")
    drawn = [workload.lengths(0, i)[:2] for i in range(200)]
    assert {prompt for prompt, _ in drawn} == {5, 7}
    assert {output for _, output in drawn} == {1, 3}
    assert workload.prompt.mean == pytest.approx(19 / 3)
    named = parse_workload(f'prompt=empirical("{table}",GeneratedTokens),output=2')
    assert {named.lengths(0, i)[0] for i in range(50)} == {1, 3}


def test_file_without_one_length_is_told(tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("nan\n")
    with pytest.raises(UserError, match=r"empty.txt:1: length: 'nan' is no number of tokens"):
        parse_workload(f"prompt=empirical({empty}),output=2")


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "prompt,output\n10,1\n")
    stored = parse_workload(f'file="{path}",rate=1').as_dict()
    assert Workload.from_dict(stored).lengths(0, 0)[0] == 10
    write(tmp_path, "a.csv", "prompt,output\n11,12\n")
    with pytest.raises(UserError, match="content has changed since"):
        Workload.from_dict(stored)
    assert parse_workload(f'file="{path}",rate=1').lengths(0, 0)[0] == 11


def test_a_file_that_changes_while_it_is_used_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", JSONL)
    content = Content(in_order(path), COMPLETIONS, 0)
    write(tmp_path, "a.jsonl", "short\n")
    with pytest.raises(UserError, match="has changed while it was used"):
        content.body(0)


def test_a_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "a.csv", "prompt,output\n10,1\n")
    first = read_recording(str(path))
    monkeypatch.setattr("tuner.workload.read._Hashing", None)
    assert read_recording(str(path)) is first


def test_elements_larger_than_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.workload.read_json.CHUNK_BYTES", 16)
    texts = ["ä" * 50 + '\\"', "b", "c\n" * 30]
    rows = [{"prompt": text, "osl": 123} for text in texts]
    path = write(tmp_path, "a.json", json.dumps(rows, ensure_ascii=False))
    assert prompts(in_order(path), 3) == texts
