"""`tuner export-config` against a database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from storage import open_database
from tuner.cli.main import main


def study(folder: Path, result: dict[str, Any] | None, kind: str = "vllm") -> None:
    with open_database(folder / "slotune.db") as database:
        made = database.create_study("s", target={"kind": kind, "model": "org/m"})
        if result is not None:
            database.update_study(made.id, result=result, state="done")


BEST = {"best": {"config": {"max_num_seqs": 8, "kv_cache_dtype": "fp8", "enforce_eager": True}}}


@pytest.mark.parametrize("name", ["", "a b", "-x", "x" * 64, "a\nb"])
def test_a_service_has_a_name_that_a_deployment_takes(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["export-config", "s", f"--service={name}"])
    assert ended.value.code == 2
    assert "is no service's name" in capsys.readouterr().err


def test_the_tuned_engines_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    study(tmp_path, BEST)
    assert main(["export-config", "s"]) == 0
    assert capsys.readouterr().out == (
        "vllm serve org/m --max-num-seqs 8 --kv-cache-dtype fp8 --enforce-eager\n"
    )
    assert main(["export-config", "s", "--as", "helm", "--output", "values.yaml"]) == 0
    assert "maxNumSeqs: 8" in (tmp_path / "values.yaml").read_text()
    assert main(["export-config", "s", "--as", "env", "--output", "no/such/file"]) == 2
    assert "no/such/file cannot be written: there is no folder" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["slotune", "vllm", "env", "helm"])
def test_a_candidate_that_is_not_shown_to_meet_the_slos_is_told_so(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    undecided = {"best": BEST["best"] | {"verdict": {"state": "inconclusive"}}}
    study(tmp_path, undecided | {"answer": "undecided"})
    assert main(["export-config", "s", "--as", form]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "# the study's best candidate, not confirmed: it is not shown to meet the SLOs"


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (None, "has no answer yet"),
        (
            {"answer": "none_feasible", "best": {}, "baseline": {"config": {"a": 1}}},
            "recommends no",
        ),
        (
            {
                "answer": "undecided",
                "reason": "only the baseline has a result",
                "baseline": {"config": {"a": 1}},
            },
            "recommends no configuration (Undecided: only the baseline has a result); a larger",
        ),
    ],
)
def test_no_answer_is_no_configuration(
    result: dict[str, Any] | None,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    study(tmp_path, result)
    assert main(["export-config", "s"]) == 2
    assert says in capsys.readouterr().err
    assert main(["export-config", "other"]) == 2
    assert "no study named 'other'" in capsys.readouterr().err


def test_a_kept_baseline_is_a_recommendation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    kept = {"answer": "keep_baseline", "best": {}, "baseline": {"config": {"max_num_seqs": 4}}}
    study(tmp_path, kept, kind="slotune")
    assert main(["export-config", "s", "--as", "sglang"]) == 0
    assert "--max-running-requests 4" in capsys.readouterr().out
