"""Where a report is put: whole or not at all, and nothing but a file is ever replaced."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from tuner.cli.outputs import write_text, write_whole
from tuner.errors import UserError


def write(path: Path) -> None:
    path.write_text("new")


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    """So is a device: --output /dev/null must not become a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_whole(pipe, write)
    reader.join(10)
    assert read == ["new"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_link_stays_one(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("old")
    link.symlink_to(file)
    write_whole(link, write)
    assert link.is_symlink()
    assert file.read_text() == "new"


def test_what_breaks_off_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")

    def breaks(path: Path) -> None:
        path.write_text("ha")
        raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match="cannot be written: No space left"):
        write_whole(file, breaks)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_page_names_a_file_whose_name_is_no_text(tmp_path: Path) -> None:
    write_text(tmp_path / "page", "of \udcff")
    assert (tmp_path / "page").read_text() == "of \\udcff"


def test_a_folder_is_no_place(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Is a directory"):
        write_whole(tmp_path, write)
