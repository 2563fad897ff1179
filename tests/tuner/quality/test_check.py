"""A study's quality check: asked once for all configurations that answer alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import open_database
from tests.tuner.cli.running import tuner
from tests.tuner.quality.scoring_server import ScoringServer
from tests.tuner.quality.test_run import LIKES, TASK, endpoint
from tests.tuner.search.synthetic import DEFAULTS, FakeTarget, Surface, search_on
from tuner.endpoint import Endpoint
from tuner.errors import UserError
from tuner.quality import Task, pinned, read_pinned, read_task
from tuner.quality.check import QualityCheck, answers_of, check_of
from tuner.search.budget import parse_budget
from tuner.search.ledger import StudyLedger
from tuner.search.pool import pool
from tuner.search.trial import Lab, Outcome, run_trial
from tuner.slo import parse_slos
from tuner.stats import Estimate
from tuner.targets.base import Config

SHARE = Estimate(0.75, 0.6, 0.9, 40, "share", "Clopper-Pearson interval")


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"max_num_seqs": 8}, True),
        ({"chunk_size": 64, "gpu_memory_utilization": 0.5, "block_size": 32}, True),
        ({"dtype": "float16"}, False),
        ({"quantization": "fp8"}, False),
        ({"kv_cache_dtype": "fp8"}, False),
        ({"--a-flag-of-its-own": 3}, False),
    ],
)
def test_which_configurations_answer_alike(change: Config, same: bool) -> None:
    base: Config = {"max_num_seqs": 16, "chunk_size": 512, "dtype": "auto"}
    assert (answers_of(base) == answers_of({**base, **change})) is same


def test_the_questions_are_put_once_per_group() -> None:
    with ScoringServer(LIKES, {"1 2 3": "four"}) as server:
        check, where = QualityCheck(TASK), endpoint(server)
        first = check(where, {"max_num_seqs": 8, "dtype": "auto"})
        asked = len(server.bodies)
        assert check(where, {"max_num_seqs": 16, "dtype": "auto"}) is first
        assert len(server.bodies) == asked
        check(where, {"max_num_seqs": 16, "dtype": "float16"})
        assert len(server.bodies) > asked
    assert first.value == pytest.approx(2 / 3)


def test_no_answer_is_no_accuracy_of_zero() -> None:
    with ScoringServer(LIKES) as server:
        where = endpoint(server)
    unreachable = Task("made-up", (TASK.items[2],))
    check = QualityCheck(unreachable)
    with pytest.raises(UserError, match="no accuracy: every item failed"):
        check(where, {})
    assert not check.known


def test_a_study_keeps_to_its_questions(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"question": "Bees?", "choices": ["Milk", "Honey"], "answer": 1}\n')
    text = pinned(str(path))
    assert read_pinned(text).items == read_task(path).items
    path.write_text('{"question": "Cows?", "choices": ["Milk", "Honey"], "answer": 0}\n')
    assert pinned(str(path)) != text
    with pytest.raises(UserError, match="other questions"):
        read_pinned(text)


def test_other_questions_need_another_study(tmp_path: Path) -> None:
    for name, answer in (("a", 0), ("b", 1)):
        line = f'{{"question": "{name}?", "choices": ["x", "y"], "answer": {answer}}}'
        (tmp_path / f"{name}.jsonl").write_text(line + "\n")
    with open_database(tmp_path / "slotune.db") as database:
        database.create_study(
            "night", slos="accuracy>0.5", workload={"text": "concurrency=1,prompt=8,output=4"},
            space={"quality": pinned(str(tmp_path / "a.jsonl"))},
        )  # fmt: skip
    ended = tuner(
        "optimize", "--url", "http://127.0.0.1:9", "--study", "night", "--quality", "b.jsonl",
        cwd=tmp_path,
    )  # fmt: skip
    assert ended.returncode == 2
    assert "other questions need another --study" in ended.stderr


def lab_with(check: object, slo: str) -> Lab:
    surface = Surface(FakeTarget())
    made = search_on(surface, budget=parse_budget("9 trials")).lab
    return Lab(
        made.target, made.workload, parse_slos([slo]), surface, 10.0, 2.0, clock=made.clock,
        quality=check,  # type: ignore[arg-type]
    )  # fmt: skip


def trial(lab: Lab) -> Outcome:
    return run_trial(lab, dict(DEFAULTS), stage="search", seed=1)


@pytest.mark.parametrize(("bound", "state"), [("0.5", "pass"), ("0.95", "fail")])
def test_it_decides_an_accuracy_clause(bound: str, state: str) -> None:
    lab = lab_with(lambda where, config: SHARE, f"accuracy>={bound}")
    found = trial(lab)
    assert found.ok
    assert found.verdict is not None
    assert found.verdict.state == state
    pooled = pool([found, trial(lab)], lab.slos)
    assert pooled is not None
    assert pooled.verdict.state == state
    assert pooled.summary["accuracy"] == SHARE


def test_a_server_that_cannot_be_asked_is_told() -> None:
    def refuse(where: Endpoint, config: Config) -> Estimate:
        raise UserError("it has no logprobs")

    found = trial(lab_with(refuse, "accuracy>=0.5"))
    assert found.state == "failed"
    assert "no logprobs" in found.failure_reason


def test_a_resumed_study_knows_what_was_asked(tmp_path: Path) -> None:
    database = open_database(tmp_path / "study.db")
    lab = lab_with(lambda where, config: SHARE, "accuracy>=0.5")
    study = database.create_study("asked")
    StudyLedger(database, study, lab.slos, lab.workload).add(trial(lab))
    again = StudyLedger(database, study, lab.slos, lab.workload).outcomes
    assert again[0].verdict is not None
    assert again[0].verdict.state == "pass"
    check = check_of(TASK, again)
    assert check is not None
    assert check(Endpoint("http://127.0.0.1:9"), dict(DEFAULTS)) == SHARE
    assert check_of(None, again) is None


@pytest.mark.parametrize("command", ["optimize", "sweep", "bench", "verify"])
def test_an_accuracy_clause_needs_questions(command: str, tmp_path: Path) -> None:
    what = ["--knob", "max_num_seqs=8"] if command == "verify" else []
    ended = tuner(
        command, *what, "--url", "http://127.0.0.1:9", "--slo", "accuracy>0.5", cwd=tmp_path
    )
    assert ended.returncode == 2
    assert "--quality FILE" in ended.stderr
