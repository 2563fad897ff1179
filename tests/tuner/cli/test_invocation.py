"""Command lines give no secret away; however a command ends, what it left behind is told."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from storage import open_database
from tests.tuner.fake_engine import FakeEngine
from tests.tuner.search.synthetic import DEFAULTS, FakeTarget
from tuner.cli import main
from tuner.cli.common import ProgressLine, add_database_option
from tuner.cli.executor_options import add_executor_options
from tuner.cli.invocation import command_text, resume_sweep_text, resume_text
from tuner.cli.targets import add_tuned_target_options, leave

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "words",
    [
        ["--api-key", SECRET],
        [f"--api-key={SECRET}"],
        ["--database", f"postgresql://me:{SECRET}@host:5432/db"],
        [f"--database=postgresql+psycopg://me:{SECRET}@host/db"],
        [f"--serve-args=--max-model-len 2048 --api-key {SECRET}"],
    ],
)
def test_no_secret_is_kept(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["tuner", "bench", *words, "--url", "http://host:8000"])
    text = command_text()
    assert SECRET not in text
    assert text.startswith("tuner bench")
    assert text.endswith("--url http://host:8000")


def test_what_is_no_secret_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["tuner", "bench", "--slo", "ttft_p95<500ms", "--seed", "3"])
    assert command_text() == "tuner bench --slo 'ttft_p95<500ms' --seed 3"


def begun(**given: object) -> argparse.Namespace:
    """The options of a study at a URL, and those given."""
    parser = argparse.ArgumentParser()
    add_tuned_target_options(parser)
    add_database_option(parser)
    add_executor_options(parser)
    args = parser.parse_args(["--url", "http://host:8000"])
    vars(args).update(given)
    return args


def test_the_way_to_go_on_hides_the_password() -> None:
    text = resume_text(begun(database=f"postgresql://me:{SECRET}@host/db"), "s")
    assert SECRET not in text
    assert "postgresql://me:***@host/db" in text


def test_flags_are_not_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    """--api-k SECRET would be obeyed, and kept with the study."""
    with pytest.raises(SystemExit) as stopped:
        main(["bench", "--url", "http://host:8000", "--api-k", SECRET])
    assert stopped.value.code == 2
    assert "--api-k" in capsys.readouterr().err


def test_serve_args_that_cannot_be_split(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = str(tmp_path / "x.db")
    words = ["--knob", "chunk_size=64,128", "--workload", "prompt=16,output=4,concurrency=2"]
    assert main(["sweep", *words, "--serve-args=--model 'half", "--database", database]) == 2
    said = capsys.readouterr().err
    assert "--serve-args" in said
    assert "\n" not in said.strip()


def test_a_server_that_cannot_be_put_back_is_told_even_when_quiet(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = ProgressLine(quiet=True)
    leave(FakeTarget(), DEFAULTS, line)
    assert capsys.readouterr().err == ""
    leave(FakeTarget(crashes=lambda config: True), DEFAULTS, line)
    said = capsys.readouterr().err
    assert "could not be put back to max_num_seqs=128" in said
    assert "out of memory" in said


def test_a_study_that_ends_by_a_bug_is_not_left_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(search: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("tuner.cli.optimize_session.optimize", broken)
    database = tmp_path / "x.db"
    words = ["--workload", "prompt=16,output=4,concurrency=2", "--slo", "ttft_p95<1s", "--quiet"]
    with FakeEngine() as server:
        command = ["optimize", "--url", server.url, *words, "--study", "s"]
        assert main([*command, "--database", str(database)]) == 3
    with open_database(database, read_only=True) as opened:
        study = opened.get_study("s")
        assert study is not None
        assert study.state == "failed"


def test_the_way_to_go_on_names_the_kind_of_budget() -> None:
    assert resume_text(begun(), "s").endswith("--budget TIME")
    assert resume_text(begun(), "s", "N trials").endswith("--budget 'N trials'")


def test_the_way_to_go_on_is_complete() -> None:
    args = begun(model="m", database="x.db", api_key=SECRET)
    rest = f"--study s --url {args.url} --model m --api-key KEY --database x.db"
    assert resume_text(args, "s") == f"tuner optimize {rest} --budget TIME"
    assert resume_sweep_text(args, "s") == f"tuner sweep {rest}"
    started = begun(url=None, target="vllm", model="m", startup_timeout=1800.0, log_dir="logs")
    assert resume_sweep_text(started, "s") == (
        "tuner sweep --study s --target vllm --model m --vllm-binary vllm --startup-timeout 1800 "
        "--log-dir logs"
    )
