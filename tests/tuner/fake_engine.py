"""A whole fake engine as a program: OpenAI routes, /server_info, /admin/config, /metrics.

    python -m tests.tuner.fake_engine --port 8000 [--kind vllm|sglang] [that engine's flags]

Its latency follows from its knobs: tokens come later and slower with a larger chunk_size. With
max_num_seqs above --fail-above every request fails; with --refuse it ends at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

from tests.tuner.fake_server import FakeServer, Reply, _json, _plain, answer, refusal

ROOT = Path(__file__).parents[2]
SGLANG_METRICS = Path(__file__).parent / "targets" / "data" / "sglang-0.5.txt"

RESET = "the prefix cache is empty"
"""What it says when it was told to forget."""

BOUNDS = {
    "max_num_seqs": (1, 256),
    "chunk_size": (1, 8192),
    "gpu_memory_utilization": (0.1, 0.9),
}


class FakeEngine(FakeServer):
    """port 0: any free one. applied: every accepted change, in order. dev_mode: as vLLM's, without
    which it has no route to reset its cache."""

    def __init__(
        self,
        *,
        port: int = 0,
        admin: bool = True,
        fail_above: float = 1e9,
        knobs: dict[str, float] | None = None,
        api_key: str | None = None,
        kind: str = "slotune",
        dev_mode: bool = True,
    ) -> None:
        super().__init__(self._script, model="fake-model", api_key=api_key, metrics=self._metrics)
        self.admin, self.fail_above, self.kind = admin, fail_above, kind
        self.dev_mode = dev_mode
        self.wanted_port = port
        self.instance_id = str(uuid.uuid4())
        self.knobs: dict[str, float] = knobs or {
            "max_num_seqs": 128, "chunk_size": 2048, "gpu_memory_utilization": 0.9,
        }  # fmt: skip
        self.applied: list[dict[str, float]] = []
        self.resets = 0
        self.oom = False
        self.unstreamed: list[dict[str, Any]] = []

    def __enter__(self) -> FakeEngine:
        self._thread.start()
        starting = self._loop.create_server(
            self._protocol, "127.0.0.1", self.wanted_port, backlog=512
        )
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(10)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def _script(self, number: int, body: dict[str, Any]) -> Reply:
        self._die_without_memory(body)
        if self.knobs["max_num_seqs"] > self.fail_above:
            return refusal(500, "CUDA out of memory")
        share = self.knobs["chunk_size"] / 2048
        return answer(body, first_s=0.01 + 0.05 * share, gap_s=0.002 + 0.04 * share)

    def _metrics(self) -> str:
        if self.kind == "sglang":
            return SGLANG_METRICS.read_text()
        return f"vllm:request_success_total {float(len(self.requests))}\n"

    async def _route(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        raw: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        if path == "/health":
            return _plain(writer, 200, "")
        if path == "/version":
            return _json(writer, 200, {"version": "0.0-fake"})
        if path == ("/flush_cache" if self.kind == "sglang" else "/reset_prefix_cache"):
            if not self.dev_mode:
                return _json(writer, 404, {"error": {"message": "not found"}})
            self.resets += 1
            print(RESET, flush=True)
            # SGLang refuses while requests are still ending: here at first.
            refused = self.kind == "sglang" and self.resets == 1
            return _plain(writer, 400 if refused else 200, "")
        if self.kind == "sglang" and path == "/server_info":
            limits = {"max_running_requests": 48, "mem_fraction_static": 0.88}
            return _json(writer, 200, {"version": "0.5-fake", "model_path": "m", **limits})
        if self.kind == "slotune" and path in ("/server_info", "/admin/config"):
            if self.api_key and headers.get("authorization") != f"bearer {self.api_key}".lower():
                return _json(writer, 401, {"error": {"message": "wrong key"}})
            if path == "/server_info":
                return _json(writer, 200, self._info())
            return self._config(method, raw, writer)
        if path.endswith("/completions"):
            body = json.loads(raw)
            if not body.get("stream") and body.get("max_tokens", 1) > 1:
                self.unstreamed.append(body)
                self._die_without_memory(body)
                if self.knobs["max_num_seqs"] > self.fail_above:
                    return _json(writer, 500, {"error": {"message": "CUDA out of memory"}})
        await super()._route(method, path, headers, raw, reader, writer)
        return None

    def _die_without_memory(self, body: dict[str, Any]) -> None:
        """With --oom-under-load, at the first request that is more than a probe."""
        if self.oom and int(body.get("max_tokens", 1)) > 1:
            print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", flush=True)
            print("\n".join(f"shutting down {i}" for i in range(30)), flush=True)
            os._exit(1)

    def _info(self) -> dict[str, Any]:
        return {
            "engine": "slotune", "version": "0.0", "instance_id": self.instance_id,
            "pid": os.getpid(), "model": "", "admin": self.admin,
        }  # fmt: skip

    def _config(self, method: str, raw: bytes, writer: asyncio.StreamWriter) -> None:
        if not self.admin:
            return _json(writer, 404, {"error": {"message": "the admin endpoint is off"}})
        if method == "POST":
            wanted = self.knobs | json.loads(raw)
            if wanted["chunk_size"] < wanted["max_num_seqs"]:
                return _json(writer, 400, {"error": {"message": "chunk_size must be at least"}})
            self.knobs = wanted
            self.applied.append(dict(wanted))
        knobs = {
            name: {"value": self.knobs[name], "low": low, "high": high, "live": True}
            for name, (low, high) in BOUNDS.items()
        }
        return _json(writer, 200, {"knobs": knobs})


def program(path: Path, kind: str) -> Path:
    """An executable that is this fake engine, its starts recorded in `starts` beside it."""
    path.write_text(
        f"#!/bin/sh\ncd {ROOT}\nexec {sys.executable} -m tests.tuner.fake_engine --kind {kind} "
        f'--record {path.with_name("starts")} "$@"\n'
    )
    path.chmod(0o755)
    return path


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs="*")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--kind", default="slotune")
    parser.add_argument("--fail-above", type=float, default=1e9)
    parser.add_argument("--refuse", default="")
    parser.add_argument("--record", help="file to append the command line to")
    parser.add_argument("--max-num-seqs", type=float, default=128)
    parser.add_argument("--max-num-batched-tokens", "--chunk-size", type=float, default=2048)
    parser.add_argument("--oom-under-load", action="store_true", help="die as a CUDA OOM does")
    parser.add_argument("--stray", help="file for the pid of a child that leaves the group")
    parser.add_argument("--api-key")
    args, _ = parser.parse_known_args(argv)
    if args.record:
        with Path(args.record).open("a") as record:
            record.write(" ".join(argv) + "\n")
    if args.refuse:
        print(args.refuse, flush=True)
        return 1
    knobs = {
        "max_num_seqs": args.max_num_seqs, "chunk_size": args.max_num_batched_tokens,
        "gpu_memory_utilization": 0.9,
    }  # fmt: skip
    if args.stray:
        child = subprocess.Popen(["sleep", "300"], start_new_session=True)
        Path(args.stray).write_text(str(child.pid))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    engine = FakeEngine(
        port=args.port, fail_above=args.fail_above, knobs=knobs, api_key=args.api_key,
        kind=args.kind,
        dev_mode=args.kind != "vllm" or os.environ.get("VLLM_SERVER_DEV_MODE") == "1",
    )  # fmt: skip
    engine.oom = args.oom_under_load
    with engine:
        print(f"ready: {engine.url}", flush=True)
        stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
