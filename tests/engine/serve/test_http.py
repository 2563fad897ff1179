"""The OpenAI API over real HTTP, with a scripted model behind the real scheduler."""

from __future__ import annotations

import json

import httpx
import openai
import pytest

from engine.serve.intake import MAX_BODY_BYTES
from tests.engine.fake_runner import FakeRunner
from tests.engine.serve.harness import MODEL, RunningServer, running

CHAT = [{"role": "user", "content": "Hi"}]


def client(server: RunningServer, key: str = "none") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)


def error_of(response: httpx.Response, status: int) -> dict[str, object]:
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return dict(error)


def events_of(text: str) -> list[str]:
    """The data of each server-sent event, with the framing checked byte by byte."""
    assert text.endswith("\n\n")
    events = text[:-2].split("\n\n")
    assert all(event.startswith("data: ") and "\n" not in event for event in events)
    return [event[len("data: ") :] for event in events]


def test_completion(server: RunningServer) -> None:
    answer = client(server).completions.create(model=MODEL, prompt="abc", max_tokens=5)
    assert answer.choices[0].text == server.expected("abc", 5)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 5)
    assert answer.usage.total_tokens == 8
    assert answer.object == "text_completion"
    assert answer.model == MODEL


def test_streamed_completion_gives_the_same_text(server: RunningServer) -> None:
    stream = client(server).completions.create(
        model=MODEL,
        prompt="abc",
        max_tokens=9,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
    assert text == server.expected("abc", 9)
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert reasons[-1] == "length"
    assert set(reasons[:-1]) <= {None}
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 9
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_stream_framing(server: RunningServer) -> None:
    body = {"prompt": "abc", "max_tokens": 4, "stream": True}
    response = httpx.post(f"{server.url}/v1/completions", json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    *chunks, done = events_of(response.text)
    assert done == "[DONE]"
    parsed = [json.loads(chunk) for chunk in chunks]
    assert len({chunk["id"] for chunk in parsed}) == 1
    assert all("usage" not in chunk for chunk in parsed)


def test_continuous_usage(server: RunningServer) -> None:
    body = {
        "prompt": "abc",
        "max_tokens": 4,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    *chunks, _ = events_of(httpx.post(f"{server.url}/v1/completions", json=body).text)
    counts = [json.loads(chunk)["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == 4


def test_chat(server: RunningServer) -> None:
    answer = client(server).chat.completions.create(
        model=MODEL, messages=CHAT, max_completion_tokens=6
    )
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == server.expected(server.chat_prompt("Hi"), 6)
    assert answer.choices[0].finish_reason == "length"


def test_streamed_chat_begins_with_the_role(server: RunningServer) -> None:
    stream = client(server).chat.completions.create(
        model=MODEL, messages=CHAT, max_tokens=6, stream=True
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[0].choices[0].delta.content == ""
    assert chunks[0].object == "chat.completion.chunk"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == server.expected(server.chat_prompt("Hi"), 6)
    assert chunks[-1].choices[0].finish_reason == "length"


def test_several_prompts_and_n(server: RunningServer) -> None:
    answer = client(server).completions.create(
        model=MODEL, prompt=["abc", "xyz"], n=2, max_tokens=3
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.choices[2].text == server.expected("xyz", 3)
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (6, 12)


def test_token_ids_are_a_prompt(server: RunningServer) -> None:
    answer = client(server).completions.create(model=MODEL, prompt=list(b"abc"), max_tokens=3)
    assert answer.choices[0].text == server.expected("abc", 3)


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_over_token_boundaries_is_not_shown(
    server: RunningServer, stream: bool
) -> None:
    whole = server.expected("abc", 20)
    stop = whole[5:9]
    body = {"prompt": "abc", "max_tokens": 20, "stop": [stop, "never"], "stream": stream}
    response = httpx.post(f"{server.url}/v1/completions", json=body)
    if stream:
        chunks = [json.loads(event) for event in events_of(response.text)[:-1]]
        choices = [chunk["choices"][0] for chunk in chunks]
        text, reason = "".join(c["text"] for c in choices), choices[-1]["finish_reason"]
    else:
        choice = response.json()["choices"][0]
        text, reason = choice["text"], choice["finish_reason"]
        assert choice["stop_reason"] == stop
        assert response.json()["usage"]["completion_tokens"] == whole.index(stop) + 4
    assert (text, reason) == (whole[: whole.index(stop)], "stop")
    server.wait_idle()


def test_characters_of_several_tokens_arrive_whole(slow_server: RunningServer) -> None:
    prompt = "é漢🏳"  # the scripted model repeats its prompt, one byte a token
    body = {"prompt": prompt, "max_tokens": 9, "stream": True}
    *chunks, _ = events_of(httpx.post(f"{slow_server.url}/v1/completions", json=body).text)
    pieces = [json.loads(chunk)["choices"][0]["text"] for chunk in chunks]
    assert len(pieces) > 1
    assert "".join(pieces) == prompt
    assert not any("\ufffd" in piece for piece in pieces)


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_eos_ends_the_text_unless_ignored(server: RunningServer, ignore_eos: bool) -> None:
    body = {
        "prompt": [97, 98, server.eos_token_id, 99],
        "max_tokens": 8,
        "ignore_eos": ignore_eos,
    }
    choice = httpx.post(f"{server.url}/v1/completions", json=body).json()["choices"][0]
    if ignore_eos:
        assert (choice["text"], choice["finish_reason"]) == ("abcabc", "length")
    else:
        assert (choice["text"], choice["finish_reason"]) == ("ab", "stop")


def test_stop_token_ids(server: RunningServer) -> None:
    body = {"prompt": "abc", "max_tokens": 8, "stop_token_ids": [99]}
    choice = httpx.post(f"{server.url}/v1/completions", json=body).json()["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("ab", "stop")


@pytest.mark.parametrize("ids", [[258], [10**9], list(range(130))])
def test_stop_token_ids_that_the_sampler_could_not_forbid(
    server: RunningServer, ids: list[int]
) -> None:
    """Beside min_tokens they are set to -inf: an id that is none, or all of them, must not get
    there."""
    body = {"prompt": "abc", "max_tokens": 8, "min_tokens": 4, "stop_token_ids": ids}
    answer = httpx.post(f"{server.url}/v1/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "stop_token_ids"


def test_models_and_health(server: RunningServer) -> None:
    models = client(server).models.list().data
    assert [model.id for model in models] == [MODEL]
    assert client(server).models.retrieve(MODEL).id == MODEL
    assert httpx.get(f"{server.url}/health").status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "param", "words"),
    [
        ({"prompt": "a", "model": "gpt-5"}, 404, "model", "gpt-5"),
        ({"prompt": "a", "max_tokens": 0}, 400, "max_tokens", "at least 1"),
        ({"prompt": "a", "max_tokens": -1}, 400, "max_tokens", "at least 1"),
        ({"prompt": "a", "temperature": -1}, 400, "temperature", "between 0"),
        ({"prompt": "a" * 300}, 400, "prompt", "maximum context length"),
        ({"prompt": "a" * 200, "max_tokens": 100}, 400, "max_tokens", "maximum context length"),
        ({"prompt": [70_000]}, 400, "prompt", "70000"),
        ({"prompt": "", "max_tokens": 1}, 400, "prompt", "empty"),
        ({"prompt": "a", "logprobs": 21}, 400, "logprobs", "less than or equal to 20"),
        ({"prompt": "a", "max_tokens": 0, "logprobs": 1}, 400, "max_tokens", "at least 1"),
        ({}, 400, "prompt", "required"),
    ],
)
def test_bad_requests(
    server: RunningServer, body: dict[str, object], status: int, param: str, words: str
) -> None:
    for stream in (False, True):
        response = httpx.post(f"{server.url}/v1/completions", json=body | {"stream": stream})
        error = error_of(response, status)
        assert error["param"] == param
        assert words in str(error["message"])
    server.wait_idle()


def test_a_body_beyond_the_limit_is_refused_and_the_server_goes_on(server: RunningServer) -> None:
    for path in ("/v1/completions", "/v1/chat/completions"):
        response = httpx.post(f"{server.url}{path}", content=b" " * (MAX_BODY_BYTES + 1))
        error = error_of(response, 413)
        assert error["code"] == "request_too_large"
        assert str(MAX_BODY_BYTES) in str(error["message"])
    assert httpx.get(f"{server.url}/health").status_code == 200


def test_a_text_that_can_never_fit_is_refused_before_it_is_tokenized(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(server.service.tokenizer), "encode", lambda *_, **__: 1 / 0)
    long = "a" * 1_000_000
    for path, body in (
        ("completions", {"prompt": long}),
        ("chat/completions", {"messages": [{"role": "user", "content": long}]}),
    ):
        error = error_of(httpx.post(f"{server.url}/v1/{path}", json=body), 400)
        assert error["code"] == "context_length_exceeded"
        assert "1000000 characters" in str(error["message"])


def test_the_default_of_max_tokens_yields_to_a_small_kv_pool() -> None:
    runner = FakeRunner(num_kv_blocks=4)
    room = 4 * runner.block_size
    with running(runner=runner) as server:
        url = f"{server.url}/v1/completions"
        answer = httpx.post(url, json={"prompt": "a" * (room - 4), "ignore_eos": True}).json()
        assert answer["usage"]["completion_tokens"] == 5  # the last token's KV is never needed
        error = error_of(httpx.post(url, json={"prompt": "a" * (room + 1)}), 400)
        assert error["code"] == "kv_pool_exceeded"


def test_malformed_json_and_unknown_paths(server: RunningServer) -> None:
    url = f"{server.url}/v1/chat/completions"
    assert "JSON" in str(error_of(httpx.post(url, content=b"{nope"), 400)["message"])
    assert "/v1/nope" in str(error_of(httpx.get(f"{server.url}/v1/nope"), 404)["message"])
    assert "POST" in str(error_of(httpx.get(url), 405)["message"])


def test_the_openai_client_raises_its_own_errors(server: RunningServer) -> None:
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client(server).completions.create(model=MODEL, prompt="a", temperature=-1)
    with pytest.raises(openai.NotFoundError, match="not served here"):
        client(server).completions.create(model="other", prompt="a")
