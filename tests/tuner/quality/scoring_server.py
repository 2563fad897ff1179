"""A completions server with known likelihoods: one token per word, its log-probability in a table.

mode: "" is well-behaved; "no_echo" leaves the prompt out, "no_logprobs" tells none, "refuses"
answers 400 to both, "short" forgets an answer.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DEFAULT_LOGPROB = -5.0


class ScoringServer:
    """says: prompt → generated text. fails: whether a prompt gets HTTP 500. bodies: all that came
    with a prompt, in order."""

    def __init__(
        self,
        likes: dict[str, float] | None = None,
        says: dict[str, str] | None = None,
        *,
        mode: str = "",
        fails: Callable[[str], bool] = lambda prompt: False,
    ) -> None:
        self.likes, self.says, self.mode, self.fails = likes or {}, says or {}, mode, fails
        self.bodies: list[dict[str, Any]] = []
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> ScoringServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def respond(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        prompts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
        if not isinstance(prompts[0], str):  # the probe's token ids
            return 200, {"choices": [{"index": 0, "text": "x"}]}
        self.bodies.append(body)
        if any(map(self.fails, prompts)):
            return 500, {"error": {"message": "out of luck"}}
        if body.get("echo") and self.mode == "refuses":
            return 400, {"error": {"message": "echo is not supported"}}
        choices = [self._choice(i, prompt, body) for i, prompt in enumerate(prompts)]
        if self.mode == "short":
            choices.pop()
        return 200, {"choices": list(reversed(choices))}  # an order that no index promises

    def _choice(self, index: int, prompt: str, body: dict[str, Any]) -> dict[str, Any]:
        said = self.says.get(prompt, " nothing")
        for stop in body.get("stop") or ():
            said = said.split(stop)[0]
        if not body.get("echo"):
            return {"index": index, "text": said, "logprobs": None}
        words = re.findall(r"\s*\S+", prompt if self.mode != "no_echo" else "")
        told: list[float | None] = [self.likes.get(w.strip(), DEFAULT_LOGPROB) for w in words]
        if told:
            told[0] = None
        told.append(-0.5)  # the generated token
        logprobs = None if self.mode == "no_logprobs" else {"token_logprobs": told}
        return {"index": index, "text": prompt + " x", "logprobs": logprobs}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(200, {"data": [{"id": "scored"}]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with server._lock:
                    server.at_once += 1
                    server.most_at_once = max(server.most_at_once, server.at_once)
                status, answer = server.respond(body)
                with server._lock:
                    server.at_once -= 1
                self._send(status, answer)

            def _send(self, status: int, answer: dict[str, Any]) -> None:
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        return Handler
