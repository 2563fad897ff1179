"""Scoring against a server with known likelihoods: what is right, what fails, what is told."""

from __future__ import annotations

import json
import math
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.cli.running import start, stop_when, tuner
from tests.tuner.quality.scoring_server import ScoringServer
from tuner.endpoint import Endpoint
from tuner.errors import UserError
from tuner.quality import ExactMatch, MultipleChoice, Task, quality_estimate, run_task
from tuner.stats.rates import clopper_pearson

PARIS = MultipleChoice(1, "Question: Capital of France?\nAnswer:", (" Rome", " Paris"), 1)
SUM = MultipleChoice(2, "Two and two is", (" five", " exactly four"), 1)
COUNT = ExactMatch(3, "1 2 3", ("4", "four"), (",",), 4)
TASK = Task("made-up", (PARIS, SUM, COUNT))
LIKES = {"Rome": -3.0, "Paris": -1.0, "five": -4.0, "exactly": -3.0, "four": -2.0}


def endpoint(server: ScoringServer) -> Endpoint:
    return Endpoint(server.url).probe()


def test_choices_by_likelihood_and_matches_by_generation() -> None:
    """Of SUM the right choice is longer: less likely as a whole, likelier by its length."""
    with ScoringServer(LIKES, {"1 2 3": "  four , five"}) as server:
        result = run_task(endpoint(server), TASK)
    assert [one.right for one in result.results] == [True, False, True]
    assert [one.right_by_length for one in result.results] == [True, True, None]
    assert [one.said for one in result.results] == ["Paris", "five", "four"]
    assert (result.accuracy.value, result.accuracy.n) == (2 / 3, 3)
    assert (result.accuracy.low, result.accuracy.high) == clopper_pearson(2, 3)
    assert result.accuracy_by_length.value == 1
    assert result.num_failed == 0


def test_what_is_sent() -> None:
    with ScoringServer(LIKES) as server:
        run_task(endpoint(server), TASK, concurrency=1)
        probe, paris, _, count = server.bodies[-4:]
    assert probe["echo"] is True
    contexts = [PARIS.context, PARIS.context + " Rome", PARIS.context + " Paris"]
    assert paris["prompt"] == contexts
    assert (paris["echo"], paris["logprobs"], paris["max_tokens"]) == (True, 1, 1)
    assert (count["prompt"], count["stop"], count["max_tokens"]) == ("1 2 3", [","], 4)
    assert {body["temperature"] for body in (paris, count)} == {0}
    assert {body["model"] for body in (paris, count)} == {"scored"}


def test_several_items_at_once() -> None:
    items = tuple(MultipleChoice(i, f"item {i} is", (" a", " b"), 0) for i in range(40))
    done: list[tuple[int, int]] = []
    with ScoringServer(LIKES) as server:
        run_task(
            endpoint(server), Task("t", items), concurrency=4,
            on_item=lambda *state: done.append(state),
        )  # fmt: skip
        assert server.most_at_once <= 4
    assert done == [(i, 40) for i in range(1, 41)]


def test_a_failed_item_counts_as_wrong_and_is_told() -> None:
    says = {"1 2 3": "4"}
    with ScoringServer(LIKES, says, fails=lambda prompt: "France" in prompt) as server:
        result = run_task(endpoint(server), TASK)
    assert result.results[0].failure == "HTTP 500: out of luck"
    assert (result.num_failed, result.failures) == (1, [("HTTP 500: out of luck", 1)])
    assert (result.accuracy.value, result.accuracy.n) == (1 / 3, 3)
    assert result.accuracy_by_length.value == 2 / 3
    assert "1 failed items counted as wrong" in result.accuracy.method


def test_where_everything_fails_there_is_no_accuracy() -> None:
    with ScoringServer(fails=lambda prompt: "1 2 3" in prompt) as server:
        estimate = quality_estimate(endpoint(server), Task("t", (COUNT,)))
    assert not estimate.measured
    assert math.isnan(estimate.low)
    assert "out of luck" in estimate.reason


@pytest.mark.parametrize("value", ["low", [1], 10**400])
def test_a_log_probability_that_is_no_number_fails_its_item(value: object) -> None:
    likes: dict[str, Any] = {**LIKES, "Paris": value}
    with ScoringServer(likes, {"1 2 3": "4"}) as server:
        result = run_task(endpoint(server), TASK)
    assert result.results[0].failure == "a log-probability is no number"
    assert result.num_failed == 1


def test_a_short_answer_is_a_failure() -> None:
    with ScoringServer(LIKES) as server:
        known = endpoint(server)
        server.mode = "short"
        with pytest.raises(UserError, match="1 prompts were sent, 0 answers came"):
            run_task(known, TASK)


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("no_echo", "does not give: the answer does not begin with the prompt's tokens"),
        ("no_logprobs", "does not give: the answer holds no log-probabilities"),
        ("refuses", "refuses: HTTP 400, echo is not supported"),
    ],
)
def test_a_server_that_cannot_score_is_told_in_one_sentence(mode: str, told: str) -> None:
    with ScoringServer(LIKES, {"1 2 3": "4"}, mode=mode) as server:
        with pytest.raises(UserError, match="multiple-choice items need") as caught:
            run_task(endpoint(server), TASK)
        assert told in str(caught.value)
        assert "\n" not in str(caught.value)
        only_matches = quality_estimate(endpoint(server), Task("t", (COUNT,)))
    assert only_matches.value == 1


def items_file(tmp_path: Path) -> Path:
    file = tmp_path / "task.jsonl"
    items = [
        {"question": "Capital of France?", "choices": ["Rome", "Paris"], "answer": 1},
        {"prompt": "1 2 3", "target": "4", "stop": [","]},
    ]
    file.write_text("".join(json.dumps(item) + "\n" for item in items))
    return file


def test_the_command(tmp_path: Path) -> None:
    file = items_file(tmp_path)
    with ScoringServer(LIKES, {"1 2 3": "5"}) as server:
        words = ("quality", "--url", server.url, "--task", str(file))
        table = tuner(*words, cwd=tmp_path)
        assert table.returncode == 0, table.stderr
        assert "accuracy                  50 %" in table.stdout
        assert "guessing gets 50 % of the multiple-choice items right" in table.stdout
        asked = tuner(*words, "--json", "--limit", "1", "--slo", "accuracy>=0.01", cwd=tmp_path)
        told = json.loads(asked.stdout)
        assert (told["accuracy"]["value"], told["items"]) == (1.0, 1)
        assert [one["state"] for one in told["clauses"]] == ["pass"]
        missed = tuner(*words, "--slo", "accuracy>99%", cwd=tmp_path)
        assert missed.returncode == 1
        assert "✘ accuracy>99%: missed" in missed.stdout


def asked(server: ScoringServer) -> int:
    return sum(body["prompt"] == "1 2 3" for body in server.bodies)


def test_ctrl_c_does_not_wait_for_a_server_that_hangs(tmp_path: Path) -> None:
    """stop_when gives it half of the two minutes that an item may take."""
    file = tmp_path / "task.jsonl"
    file.write_text('{"prompt": "1 2 3", "target": "4"}\n' * 20)
    held = threading.Event()
    with ScoringServer(fails=lambda prompt: prompt == "1 2 3" and held.wait(110)) as server:
        process = start("quality", "--url", server.url, "--task", str(file), cwd=tmp_path)
        try:
            _, err = stop_when(process, lambda: asked(server) == 8, signal.SIGINT)
        finally:
            process.kill()
            held.set()
    assert process.returncode == 130
    assert err.splitlines()[-1] == "tuner: interrupted"


def test_a_fault_of_our_own_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("tuner.quality.run.ask", broken)
    with ScoringServer() as server, pytest.raises(ZeroDivisionError):
        run_task(endpoint(server), Task("t", (COUNT,) * 20))


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        (["--slo", "ttft_p95<1s"], "tuner quality measures accuracy alone"),
        (["--limit", "0"], "--limit must be at least 1"),
        (["--task", "nowhere.jsonl"], "nowhere.jsonl cannot be read"),
    ],
)
def test_bad_input_is_one_sentence(extra: list[str], told: str, tmp_path: Path) -> None:
    file = items_file(tmp_path)
    done = tuner(
        "quality", "--url", "http://127.0.0.1:1", "--task", str(file), *extra, cwd=tmp_path
    )
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
