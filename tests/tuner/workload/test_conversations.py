"""Conversations: history grows with the real answers, to the letter; prefix groups and skew."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.endpoint import Endpoint
from tuner.workload import parse_workload
from tuner.workload.content import Content, same_salt
from tuner.workload.presets import TABLE
from tuner.workload.sharing import repeated_share

TALK = "prompt=30,output=10,turns=3,followup=12,shared_prefix=8,think=1s..3s,rate=1"


def content(text: str = TALK, **fields: object) -> Content:
    endpoint = Endpoint("http://x", "m", tokens_per_word=2.0, **fields)  # type: ignore[arg-type]
    return Content(parse_workload(text), endpoint, 0, b"s")


def test_lengths_grow_by_question_and_answer() -> None:
    made = content()
    assert [made.lengths(4, turn)[:2] for turn in range(3)] == [(30, 10), (52, 10), (74, 10)]
    assert made.turns(4) == 3
    assert made.keeps_answers


def test_chat_messages_hold_the_servers_answers() -> None:
    made = content(api="chat")
    third = made.body(4, 2, ["first answer", "second answer"])["messages"]
    assert [m["role"] for m in third] == ["user", "assistant", "user", "assistant", "user"]
    assert [m["content"] for m in third[1::2]] == ["first answer", "second answer"]
    assert third[:1] == made.body(4)["messages"]
    assert [len(m["content"].split()) for m in third[0::2]] == [15, 6, 6]
    assert third[2] != third[4]


@pytest.mark.parametrize("token_ids", [True, False])
def test_text_begins_with_the_turn_before_and_its_answer(token_ids: bool) -> None:
    made = content(token_ids=token_ids)
    first = made.body(4)["prompt"]
    second = made.body(4, 1, [" An answer"])["prompt"]
    assert second.startswith(first + " An answer")
    assert made.body(4, 2, [" An answer", "B"])["prompt"].startswith(second + "B")


def test_sessions_differ_and_share_their_prefix() -> None:
    made = content(api="chat")
    one, other = (made.body(session)["messages"][0]["content"].split() for session in (0, 1))
    assert one[:4] == other[:4]
    assert one[4:] != other[4:]


def test_pauses_are_drawn_for_each_turn() -> None:
    made = content()
    pauses = [made.think_s(session, turn) for session in range(50) for turn in (1, 2)]
    assert all(1 <= pause_s <= 3 for pause_s in pauses)
    assert len(set(pauses)) == 100
    assert pauses == [content().think_s(s, turn) for s in range(50) for turn in (1, 2)]
    assert content("prompt=1,output=1,turns=2").think_s(0, 1) == 0


@pytest.mark.parametrize(
    ("think", "mean"), [("exponential(4s)", 4.0), ("lognormal(2s,0.5)", 2.27), ("500ms", 0.5)]
)
def test_pauses_follow_their_distribution(think: str, mean: float) -> None:
    made = content(f"prompt=1,output=1,turns=2,think={think}")
    drawn = [made.think_s(session, 1) for session in range(3000)]
    assert np.mean(drawn) == pytest.approx(mean, rel=0.06)


def test_turns_end_where_the_context_is_full() -> None:
    text = "prompt=30,output=10,turns=50,followup=10,rate=1"
    assert content(text, max_model_len=100).turns(0) == 4
    assert content(text).turns(0) == 50
    assert content(text, max_model_len=20).turns(0) == 1


def test_number_of_turns_follows_its_distribution() -> None:
    made = content("prompt=3,output=3,turns=1..3")
    assert {made.turns(session) for session in range(60)} == {1, 2, 3}
    plain = content("prompt=3,output=3")
    assert not plain.keeps_answers
    assert plain.turns(0) == 1


def test_later_questions_are_as_the_first_without_its_prefix() -> None:
    made = content("prompt=30,output=10,turns=2,shared_prefix=8")
    assert made.lengths(0, 1)[0] == 30 + 10 + 22


def test_popular_prefixes_are_drawn_more_often() -> None:
    workload = parse_workload(
        "prompt=50,output=3,shared_prefix=10,prefix_groups=4,prefix_skew=1,rate=1"
    )
    groups = [workload.lengths(0, session)[2] for session in range(4000)]
    shares = np.bincount(groups, minlength=4) / len(groups)
    assert shares == pytest.approx(np.array([12, 6, 4, 3]) / 25, abs=0.03)
    even = parse_workload("prompt=50,output=3,shared_prefix=10,prefix_groups=4,rate=1")
    assert np.bincount([even.lengths(0, s)[2] for s in range(4000)]) == pytest.approx(
        [1000] * 4, rel=0.15
    )


def test_repeated_share() -> None:
    one = parse_workload("prompt=40,output=3,shared_prefix=10,rate=1")
    assert repeated_share(one, 0, [(s, 0) for s in range(100)]) == pytest.approx(0.25, abs=0.01)
    talk = parse_workload("prompt=40,output=10,turns=2,followup=10,rate=1")
    assert repeated_share(talk, 0, [(0, 0), (0, 1)]) == pytest.approx(50 / 100)
    assert repeated_share(one, 0, []) is None


def test_the_same_salt_gives_the_same_content() -> None:
    workload = parse_workload("prompt=32,output=8,rate=1")
    endpoint = Endpoint("http://x", "m", token_ids=True)
    bodies = [Content(workload, endpoint, 3, same_salt(3)).body(5) for _ in range(2)]
    assert bodies[0] == bodies[1]
    assert Content(workload, endpoint, 4, same_salt(4)).body(5) != bodies[0]


@pytest.mark.parametrize("preset", [p for p in TABLE if p.mean != (None, None)])
def test_presets_have_the_means_they_state(preset: object) -> None:
    workload = parse_workload(preset.text)  # type: ignore[attr-defined]
    for lengths, stated in zip(
        (workload.prompt, workload.output), preset.mean, strict=True  # type: ignore[attr-defined]
    ):  # fmt: skip
        assert lengths.mean == pytest.approx(stated, rel=0.01)


@pytest.mark.parametrize("preset", [p for p in TABLE if p.median != (None, None)])
def test_presets_have_the_medians_they_state(preset: object) -> None:
    workload = parse_workload(preset.text)  # type: ignore[attr-defined]
    medians = (workload.prompt.a, workload.output.a)
    assert (workload.prompt.kind, workload.output.kind) == ("lognormal", "lognormal")
    assert medians == preset.median  # type: ignore[attr-defined]
