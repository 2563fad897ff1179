"""What is empty, endless or unknown on a command line: one short sentence, exit code 2."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from storage import open_database
from tuner.cli.main import main

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("text", ["", "  "])
@pytest.mark.parametrize(
    "words",
    [
        ["bench", "http://127.0.0.1:9", "--no-store", "--workload"],
        ["optimize", "--url", "http://127.0.0.1:9", "--workload"],
        ["verify", "--url", "http://127.0.0.1:9", "--knob", "chunk_size=64", "--workload"],
        ["workload", "show"],
    ],
)
def test_an_empty_workload(
    words: list[str], text: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*words, text]) == 2
    err = capsys.readouterr().err
    assert "--workload is empty: write 'prompt=256" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["bench", "http://127.0.0.1:9", "--html"],
        ["optimize", "--url", "http://127.0.0.1:9", "--html"],
        ["report", "s", "--html"],
        ["report", "s", "--bundle"],
        ["compare", "1", "2", "--html"],
        ["export", "1", "--output"],
        ["export-config", "s", "--output"],
        ["workload", "record", "--proxy-log", "log", "--output"],
    ],
)
def test_a_file_without_a_name(words: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, ""])
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert f"argument {words[-1]}: '' names no file" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "workload", ["prompt={},output=3", "prompt=3,output=3,rate={}", "{}", "chat,{}=1"]
)
def test_thousands_of_digits_are_not_echoed(workload: str, capsys: Capture) -> None:
    text = workload.format("9" * 6000)
    assert main(["bench", "http://127.0.0.1:9", "--no-store", "--workload", text]) == 2
    err = capsys.readouterr().err
    assert "9…" in err
    assert len(err) < 1000


def test_thousands_of_digits_of_a_duration_are_not_echoed(capsys: Capture) -> None:
    digits = "9" * 6000
    for text in (digits, f"{digits}s"):
        assert main(["bench", "http://127.0.0.1:9", "--no-store", "--duration", text]) == 2
        err = capsys.readouterr().err
        assert "--duration '99" in err
        assert len(err) < 200


def test_an_unknown_study_is_told_alike_everywhere(tmp_path: Path, capsys: Capture) -> None:
    path = str(tmp_path / "s.db")
    with open_database(path) as database:
        database.create_study("nightly")
    told = set()
    for words in (
        ["studies", "nightlx"], ["runs", "--study", "nightlx"], ["export-config", "nightlx"],
        ["report", "nightlx"], ["compare", "nightlx:baseline", "1"], ["export", "nightlx:best"],
    ):  # fmt: skip
        assert main([*words, "--database", path]) == 2
        told.add(capsys.readouterr().err.partition(": ")[2])
    assert told == {f"no study named 'nightlx' in {path}; did you mean nightly?\n"}


def test_a_full_disk_leaves_no_half_written_configuration(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, output = str(tmp_path / "s.db"), tmp_path / "values.yaml"
    with open_database(path) as database:
        made = database.create_study("s", target={"kind": "vllm", "model": "m"})
        best = {"config": {"max_num_seqs": 8}}
        database.update_study(made.id, result={"best": best}, state="done")

    def full(file: Path, text: str, **_: object) -> int:
        with file.open("w") as half:
            half.write(text[:5])
        raise OSError(errno.ENOSPC, "No space left on device")

    export = ["export-config", "s", "--as", "helm", "--database", path, "--output"]
    output.write_text("of before")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        assert main([*export, str(output)]) == 2
    assert capsys.readouterr().err == (
        f"tuner export-config: {output} cannot be written: No space left on device\n"
    )
    assert output.read_text() == "of before"
    assert not list(tmp_path.glob(".*.part"))
    assert main([*export, "/dev/full"]) == 2
    assert "/dev/full cannot be written: No space left" in capsys.readouterr().err
