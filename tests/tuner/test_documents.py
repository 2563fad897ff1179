"""No file of a user's makes a traceback, whichever form it should have."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tuner import documents
from tuner.documents import NotADocumentError, parsed, read_document, read_text
from tuner.errors import UserError


@pytest.mark.parametrize(
    ("parse", "text", "says"),
    [
        (tomllib.loads, "a=" + "[" * 5000, "nested too deeply"),
        (tomllib.loads, "a=" + "9" * 5000, "more than 4300 digits"),
        (tomllib.loads, "a=0x" + "f" * 5000, "more than 4300 digits"),
        (tomllib.loads, "a=", "Invalid value"),
        (json.loads, "[" * 200_000, "nested too deeply"),
        (json.loads, "[" + "9" * 5000 + "]", "more than 4300 digits"),
        (json.loads, r'{"a": ["x\ud800"]}', r"half a character, \ud800"),
        (json.loads, r'{"\udfff": 1}', r"half a character, \udfff"),
        (yaml.safe_load, "[" * 5000, "nested too deeply"),
        (yaml.safe_load, "a: " + "9" * 5000, "more than 4300 digits"),
        (yaml.safe_load, "a: 2020-99-99", "month must be in 1..12"),
        (yaml.safe_load, "a: !!bool x", "x"),
        (yaml.safe_load, r'a: "\ud800"', r"half a character, \ud800"),
        (yaml.safe_load, 'a: [\n"', "while scanning"),
    ],
)
def test_every_fault_is_one_line(parse: Callable[[str], Any], text: str, says: str) -> None:
    with pytest.raises(NotADocumentError) as caught:
        parsed(text, parse)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_sound_comes_back() -> None:
    assert parsed("a: &x [1, 😀]\nb: *x", yaml.safe_load) == {"a": [1, "😀"], "b": [1, "😀"]}
    assert parsed("9" * 4300, json.loads) == 10**4300 - 1
    holds_itself = parsed("&x [*x]", yaml.safe_load)
    assert holds_itself[0] is holds_itself


def test_the_sentence_names_file_and_form(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text("a=")
    with pytest.raises(UserError, match=r"t\.toml is not valid TOML: Invalid value"):
        read_document(file, tomllib.loads, "TOML")


def test_what_is_no_file_of_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/zero"), tmp_path / "pipe"):
        with pytest.raises(UserError, match=f"{path} is a device or a pipe"):
            read_text(path)
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read_text(tmp_path)
    with pytest.raises(UserError, match="none cannot be read: No such file"):
        read_text(tmp_path / "none")
    file = tmp_path / "file"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="is not UTF-8"):
        read_text(file)
    monkeypatch.setattr(documents, "MAX_BYTES", 1 << 20)
    file.write_bytes(b"x" * ((1 << 20) + 1))
    with pytest.raises(UserError, match="larger than 1 MiB"):
        read_text(file)
