"""logprobs and echo over HTTP, in both forms of the API, streamed and whole; a scripted model whose
every token has a known log-probability."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest

from tests.engine.fake_runner import EOS, logprob_of
from tests.engine.serve.harness import MODEL, RunningServer, running
from tests.engine.serve.test_http import events_of


def post(server: RunningServer, path: str = "completions", **body: Any) -> dict[str, Any]:
    response = httpx.post(f"{server.url}/v1/{path}", json=body)
    assert response.status_code == 200, response.text
    return dict(response.json())


def streamed(server: RunningServer, path: str = "completions", **body: Any) -> list[dict[str, Any]]:
    response = httpx.post(f"{server.url}/v1/{path}", json={**body, "stream": True})
    assert response.status_code == 200, response.text
    *events, done = events_of(response.text)
    assert done == "[DONE]"
    return [json.loads(event) for event in events]


def joined(chunks: list[dict[str, Any]], index: int = 0) -> tuple[str, dict[str, list[Any]]]:
    """Text and logprobs of one choice of a streamed completion."""
    text, told = "", {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["index"] == index:
                text += choice["text"]
                for key, values in choice["logprobs"].items():
                    told[key] += values
    return text, told


def top_of(names: str, *others: str) -> dict[str, float]:
    return {name: logprob_of(ord(name)) for name in (*names, *others)}


def test_sampled_tokens(server: RunningServer) -> None:
    (choice,) = post(server, prompt="abc", max_tokens=4, logprobs=2)["choices"]
    assert choice["text"] == "abca"
    assert choice["logprobs"] == {
        "tokens": ["a", "b", "c", "a"],
        "token_logprobs": [logprob_of(ord(c)) for c in "abca"],
        "top_logprobs": [top_of("\x00\x01", c) for c in "abca"],
        "text_offset": [0, 1, 2, 3],
    }


def test_zero_tells_of_the_token_alone(server: RunningServer) -> None:
    (choice,) = post(server, prompt="abc", max_tokens=2, logprobs=0)["choices"]
    assert choice["logprobs"]["top_logprobs"] == [top_of("a"), top_of("b")]


def test_nothing_is_told_unasked(server: RunningServer) -> None:
    (choice,) = post(server, prompt="abc", max_tokens=2)["choices"]
    assert choice["logprobs"] is None
    (choice,) = post(server, prompt="abc", max_tokens=2, echo=True)["choices"]
    assert (choice["text"], choice["logprobs"]) == ("abcab", None)


@pytest.mark.parametrize("prompt", ["abc", [97, 98, 99]])
def test_echo_begins_with_the_prompt(server: RunningServer, prompt: Any) -> None:
    body = post(server, prompt=prompt, max_tokens=2, logprobs=1, echo=True)
    (choice,) = body["choices"]
    assert choice["text"] == "abcab"
    told = choice["logprobs"]
    assert told["tokens"] == list("abcab")
    assert told["token_logprobs"] == [None, *(logprob_of(ord(c)) for c in "bcab")]
    assert told["top_logprobs"] == [None, *(top_of("\x00", c) for c in "bcab")]
    assert told["text_offset"] == [0, 1, 2, 3, 4]
    usage = body["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (3, 2)


def test_max_tokens_zero_scores_the_prompt_alone(server: RunningServer) -> None:
    body = post(server, prompt="abc", max_tokens=0, logprobs=1, echo=True)
    (choice,) = body["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("abc", "length")
    assert choice["logprobs"]["token_logprobs"] == [None, *(logprob_of(ord(c)) for c in "bc")]
    assert body["usage"]["completion_tokens"] == 0
    chunks = streamed(server, prompt="abc", max_tokens=0, logprobs=1, echo=True)
    assert joined(chunks) == ("abc", choice["logprobs"])
    server.wait_idle()


def test_a_long_prompt_is_scored_chunk_by_chunk() -> None:
    """Chunks of 64 tokens, and a second time with all blocks in the prefix cache."""
    text = "".join(chr(32 + i % 90) for i in range(200))
    with running() as server:
        for _ in range(2):
            body = post(server, prompt=text, max_tokens=1, logprobs=0, echo=True)
            told = body["choices"][0]["logprobs"]["token_logprobs"]
            assert told == [None, *(logprob_of(ord(c)) for c in text[1:] + text[0])]
            assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        again = post(server, prompt=text, max_tokens=1, logprobs=0)
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 192


def test_lists_of_prompts_and_several_outputs(server: RunningServer) -> None:
    prompts = [[97, 98], [120, 121, 122], [100]]
    choices = post(server, prompt=prompts, max_tokens=1, n=2, logprobs=1, echo=True)["choices"]
    assert [choice["index"] for choice in choices] == list(range(6))
    for choice in choices:
        prompt = prompts[choice["index"] // 2]
        wanted = [*prompt[1:], prompt[0]]
        assert choice["logprobs"]["token_logprobs"] == [None, *map(logprob_of, wanted)]
        assert choice["text"] == bytes([*prompt, prompt[0]]).decode()


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("stop", [None, "öx"])
def test_a_stream_tells_the_same(server: RunningServer, echo: bool, stop: str | None) -> None:
    """Held-back text (half characters, what may become a stop string) loses no token."""
    body = {"prompt": "aöxbö", "max_tokens": 10, "logprobs": 2, "echo": echo, "stop": stop}
    (whole,) = post(server, **body)["choices"]
    text, told = joined(streamed(server, **body))
    assert (text, told) == (whole["text"], whole["logprobs"])
    shown = ("aöxbö" if echo else "") + ("a" if stop else "aöxböaö")
    assert text == shown


def test_tokens_that_are_no_text_are_named_by_their_bytes(server: RunningServer) -> None:
    (choice,) = post(server, prompt="öa", max_tokens=3, logprobs=0, echo=True)["choices"]
    told = choice["logprobs"]
    assert told["tokens"] == [r"bytes:\xc3", r"bytes:\xb6", "a"] * 2
    assert told["text_offset"] == [0, 0, 1, 2, 2, 3]


def test_the_token_that_ends_the_answer_is_told(server: RunningServer) -> None:
    (choice,) = post(server, prompt=[97, EOS], max_tokens=5, logprobs=0, echo=True)["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("a<|end|>a", "stop")
    assert choice["logprobs"]["tokens"] == ["a", "<|end|>", "a", "<|end|>"]
    assert choice["logprobs"]["text_offset"] == [0, 1, 8, 9]


def test_chat_form(server: RunningServer) -> None:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    messages = [{"role": "user", "content": "Hi"}]
    answer = client.chat.completions.create(
        model=MODEL, messages=messages, max_tokens=3, logprobs=True, top_logprobs=2
    )
    told = answer.choices[0].logprobs
    assert told is not None
    assert told.content is not None
    assert [one.token for one in told.content] == list("use")
    assert [one.bytes for one in told.content] == [[ord(c)] for c in "use"]
    assert [one.logprob for one in told.content] == [logprob_of(ord(c)) for c in "use"]
    assert [[top.token for top in one.top_logprobs] for one in told.content] == [
        ["\x00", "\x01"]
    ] * 3
    chunks = streamed(
        server, "chat/completions", messages=messages, max_tokens=3, logprobs=True, top_logprobs=2
    )
    parts = [c["choices"][0]["logprobs"] for c in chunks]
    assert parts[0] is None
    streamed_tokens = [one for part in parts[1:] for one in part["content"]]
    assert streamed_tokens == [one.model_dump() for one in told.content]


def test_chat_without_alternatives(server: RunningServer) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "logprobs": True}
    (choice,) = post(server, "chat/completions", **body)["choices"]
    assert choice["logprobs"]["content"][0]["top_logprobs"] == []


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": 1}, "logprobs"),
        ({"echo": True}, "echo"),
    ],
)
def test_chat_refuses(server: RunningServer, fields: dict[str, Any], param: str) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], **fields}
    response = httpx.post(f"{server.url}/v1/chat/completions", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
