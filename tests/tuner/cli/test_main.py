"""The frame: exit codes, one-sentence faults, light help."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from storage import StorageError, open_database
from tuner.cli import main as entry
from tuner.cli.common import ProgressLine, print_json
from tuner.cli.main import COMMANDS
from tuner.errors import UserError


def with_command(
    monkeypatch: pytest.MonkeyPatch, fault: BaseException | None, code: int = 0
) -> int:
    """main() on a command that raises, or returns code."""

    def run(args: object) -> int:
        if fault is not None:
            raise fault
        return code

    monkeypatch.setattr("tuner.cli.bench.run", run)
    return entry(["bench"])


@pytest.mark.parametrize(
    ("fault", "code", "says"),
    [
        (None, 0, ""),
        (UserError("that is wrong"), 2, "tuner bench: that is wrong\n"),
        (StorageError("not writable"), 2, "tuner bench: not writable\n"),
        (KeyboardInterrupt(), 130, "tuner: interrupted\n"),
    ],
)
def test_exit_codes(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fault: BaseException | None,
    code: int,
    says: str,
) -> None:
    assert with_command(monkeypatch, fault) == code
    assert capsys.readouterr().err == says


def test_a_bug_keeps_its_traceback_and_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python's own exit code for a bug is 1, which here means that an SLO is not met."""
    assert with_command(monkeypatch, ZeroDivisionError("why")) == 3
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "ZeroDivisionError: why" in err


def test_full_disk_and_control_characters_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    assert with_command(monkeypatch, full) == 2
    assert (
        capsys.readouterr().err
        == "tuner bench: standard output cannot be written: No space left on device\n"
    )
    assert with_command(monkeypatch, UserError("a\x1b[2Jb\n  ^")) == 2
    assert capsys.readouterr().err == "tuner bench: a\ufffd[2Jb\n  ^\n"


def test_sigterm_unwinds_like_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def run(args: object) -> int:
        signal.raise_signal(signal.SIGTERM)
        return 0

    monkeypatch.setattr("tuner.cli.bench.run", run)
    assert entry(["bench"]) == 130
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_speaks_of_quotes(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        entry([command, "--help"])
    assert stop.value.code == 0
    assert "inside quotes" in capsys.readouterr().out


def test_no_command_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        entry([])
    assert stop.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom tuner.cli import main\n"
        "try: main(['optimize', '--help'])\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'streamlit', 'optuna', 'pandas', 'sqlalchemy', 'numpy'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[3]
    )
    assert done.returncode == 0, done.stderr


def test_json_has_no_infinities(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": float("inf"), "b": [float("nan"), 1.5], 3: "x"})
    assert '"a": null' in capsys.readouterr().out


class Stream:
    def __init__(self, live: bool) -> None:
        self.live = live
        self.text = ""

    def isatty(self) -> bool:
        return self.live

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None: ...


def test_progress_rewrites_a_terminal_and_spares_a_log() -> None:
    terminal, log, silent = Stream(True), Stream(False), Stream(True)
    for stream, quiet in ((terminal, False), (log, False), (silent, True)):
        line = ProgressLine(quiet=quiet, stream=stream, interval_s=60)  # type: ignore[arg-type]
        line.update("longer text")
        line.update("short")
        line.note("stays")
    assert terminal.text.startswith("\rlonger text\rshort      ")
    assert terminal.text.endswith("stays\n")
    assert log.text == "longer text\nstays\n"
    assert silent.text == ""


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        entry(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"slotune {version('slotune')}\n"


@pytest.mark.parametrize("flag", ["--slo", "--workload", "--html", "--database"])
def test_two_dashes_are_a_text(
    flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert entry(["bench", "http://127.0.0.1:9", f"{flag}=--", "--quiet"]) == 2
    assert capsys.readouterr().err.startswith("tuner bench: ")


def test_progress_that_nobody_reads_does_not_end_the_work() -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    line = ProgressLine(stream=Closed(), interval_s=0.0)
    line.update("1 of 2")
    line.note("done")


@pytest.mark.parametrize("closed", ["1", "2", "1 2"])
def test_closed_streams_are_no_fault(closed: str, tmp_path: Path) -> None:
    closing = " ".join(f"{number}>&-" for number in closed.split())
    words = f"{sys.executable} -m tuner workload show prompt=8,output=4,rate=1 {closing}"
    ended = subprocess.run(["sh", "-c", words], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-"])
def test_what_cannot_be_told_on_stderr_changes_no_exit_code(stderr: str) -> None:
    words = f"{sys.executable} -m tuner workload show prompt=8 {stderr}"
    ended = subprocess.run(["sh", "-c", words], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", "")


def test_what_the_reader_of_a_pipe_has_left_is_no_fault() -> None:
    words = f"{sys.executable} -m tuner workload show | true; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("0\n", "")


@pytest.mark.parametrize(
    "words",
    [
        ["bench", "u", "--seed", "x"],
        ["bench", "u", "--startup-timeout", "x" * 6_000],
        ["optimize", "--seed", "\x1b[31m"],
    ],
)
def test_what_is_no_number_is_told_in_a_users_words(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        entry(words)
    told = capsys.readouterr().err
    assert "is no number" in told
    assert len(told) < 300
    assert "_" not in told
    assert "\x1b" not in told


def test_a_key_that_cannot_be_sent_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--url", "http://127.0.0.1:9", "--slo", "ttft_p95<1s", "--api-key", "a\nb"]
    assert entry(["optimize", *words, "--database", str(tmp_path / "d.db")]) == 2
    assert "--api-key holds characters that no HTTP header" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["studies"], ["studies", "a\x1b[2J"]])
def test_no_stored_name_writes_to_the_terminal(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "d.db")
    with open_database(path) as database:
        database.create_study("a\x1b[2J", command="tuner\x07")
    assert entry([*words, "--database", path]) == 0
    told = capsys.readouterr().out
    assert "a\ufffd[2J" in told
    assert not {"\x1b", "\x07"} & {*told}


@pytest.mark.parametrize(
    "words",
    [
        ["studies", "LONG"],
        ["studies", "--database", "LONG"],
        ["verify", "--knob", "LONG"],
        ["optimize", "--slo", "LONG"],
        ["optimize", "--slo", "ttft_p95<LONG"],
        ["sweep", "--url", "LONG", "--knob", "LONG=1"],
        ["LONG"],
        ["bench", "--config", "LONG"],
    ],
)
def test_what_no_line_holds_is_shortened(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = str(tmp_path / "d.db")
    open_database(database).close()
    given = [word.replace("LONG", "x" * 5_000) for word in words]
    given += [] if "--database" in words or len(words) == 1 else ["--database", database]
    try:
        assert entry(given) == 2
    except SystemExit as ended:
        assert ended.code == 2
    told = capsys.readouterr().err
    assert len(told) < 900


@pytest.mark.parametrize("command", ["optimize", "sweep"])
@pytest.mark.parametrize("name", ["", " ", "\udcff", "a\nb", "x" * 201])
def test_a_study_has_a_name_that_can_be_kept_and_shown(
    command: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        entry([command, "--study", name])
    assert "argument --study: " in capsys.readouterr().err


def test_a_file_whose_name_is_no_text_is_named(tmp_path: Path) -> None:
    lengths = os.fsencode(tmp_path) + b"/\xff"
    Path(os.fsdecode(lengths)).write_text("5\n6\n")
    words = [sys.executable, "-m", "tuner", "workload", "show", b"file=" + lengths + b",rate=1"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "\\udcff" in ended.stdout


def test_a_database_of_a_name_too_long_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["diagnose", "--url", "http://127.0.0.1:9", "--database", "x" * 300]
    assert entry(words) == 2
    assert "File name too long" in capsys.readouterr().err
