"""Task files: what items become, and every fault with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tuner.errors import UserError
from tuner.quality import ExactMatch, MultipleChoice, read_task

ROOT = Path(__file__).parents[3]


def write(tmp_path: Path, *items: object) -> Path:
    file = tmp_path / "task.jsonl"
    lines = [item if isinstance(item, str) else json.dumps(item) for item in items]
    file.write_text("\n".join(lines) + "\n")
    return file


def test_both_kinds_of_items(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        {"id": "a1", "question": "Is ice cold? ", "choices": ["yes", "no"], "answer": 0},
        "",
        {"prompt": "Water is", "choices": ["dry", "wet"], "answer": "wet"},
        {"prompt": "1 2 3", "target": "4", "stop": ",", "max_tokens": 3},
        {"question": "Who?", "target": ["me", "I"]},
    )
    task = read_task(file)
    assert task.name == "task.jsonl"
    assert task.items == (
        MultipleChoice(1, "Question: Is ice cold?\nAnswer:", (" yes", " no"), 0),
        MultipleChoice(3, "Water is", (" dry", " wet"), 1),
        ExactMatch(4, "1 2 3", ("4",), (",",), 3),
        ExactMatch(5, "Question: Who?\nAnswer:", ("me", "I"), ("\n",), 32),
    )
    assert (task.num_multiple_choice, task.chance) == (2, 0.5)
    assert task.first(2).items == task.items[:2]
    assert task.first(None) is task


def test_white_space_between_context_and_choice_is_the_choices(tmp_path: Path) -> None:
    """A space at a context's end is no token of its own in any text that was ever written."""
    file = write(
        tmp_path,
        {"prompt": "A \n", "choices": ["b", "c"], "answer": 0},
        {"prompt": "A", "choices": ["\nb", " c"], "answer": 0},
    )
    first, second = read_task(file).items
    assert isinstance(first, MultipleChoice)
    assert isinstance(second, MultipleChoice)
    assert (first.context, first.choices) == ("A", (" \nb", " \nc"))
    assert (second.context, second.choices) == ("A", ("\nb", " c"))
    assert second.names == ("b", "c")


CHOICES = {"question": "q", "choices": ["a", "b"], "answer": 0}


@pytest.mark.parametrize(
    ("item", "told"),
    [
        ("{", "not valid JSON"),
        ("[1]", "is a JSON object, got list"),
        ({"question": "q"}, "either choices and answer, or a target"),
        ({"choices": ["a", "b"], "answer": 0}, "either question or prompt"),
        ({**CHOICES, "prompt": "p"}, "either question or prompt"),
        ({**CHOICES, "question": " "}, "question must be a text"),
        ({**CHOICES, "choices": ["a"]}, "two or more different texts"),
        ({**CHOICES, "choices": ["a", "a"]}, "two or more different texts"),
        ({**CHOICES, "choices": "ab"}, "two or more different texts"),
        ({**CHOICES, "choices": ["a", ""]}, "a choice is empty"),
        ({**CHOICES, "answer": 2}, "a number from 0 to 1"),
        ({**CHOICES, "answer": True}, "a number from 0 to 1"),
        ({**CHOICES, "answer": "c"}, "a number from 0 to 1"),
        ({**CHOICES, "target": "a"}, "unknown field 'target'"),
        ({"prompt": "p", "target": "a", "answer": 1}, "unknown field 'answer'"),
        ({"prompt": "p", "target": []}, "target must be a text or a list of texts"),
        ({"prompt": "p", "target": "a", "stop": [""]}, "a stop string is empty"),
        ({"prompt": "p", "target": "a", "max_tokens": 0}, "max_tokens must be a number from 1"),
    ],
)
def test_a_fault_names_its_line(item: object, told: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=told) as caught:
        read_task(write(tmp_path, CHOICES, item))
    assert "line 2" in str(caught.value)


def test_files_that_hold_no_task(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.jsonl cannot be read: No such file"):
        read_task(tmp_path / "none.jsonl")
    with pytest.raises(UserError, match="holds no items"):
        read_task(write(tmp_path, ""))
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not UTF-8"):
        read_task(binary)


def test_hostile_files_are_one_sentence(tmp_path: Path) -> None:
    deep = tmp_path / "deep.jsonl"
    deep.write_text("[" * 200_000)
    with pytest.raises(UserError, match=r"line 1: .*nested too deeply"):
        read_task(deep)
    with pytest.raises(UserError, match="/dev/zero is a device or a pipe"):
        read_task(Path("/dev/zero"))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (r'{"prompt": "a\ud800", "target": "x"}', "line 1: .*half a character"),
        ('{"prompt": "a", "prompt": "b", "target": "x"}', "line 1: .*it gives 'prompt' twice"),
    ],
)
def test_a_line_that_cannot_be_meant(line: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=told):
        read_task(write(tmp_path, line))


def test_the_carried_task() -> None:
    task = read_task(ROOT / "fixtures" / "quality-general.jsonl")
    assert (len(task.items), task.num_multiple_choice, task.chance) == (72, 52, 0.25)
    places = [item.answer for item in task.items if isinstance(item, MultipleChoice)]
    assert [places.count(place) for place in range(4)] == [13] * 4
