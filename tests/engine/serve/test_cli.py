"""The command line: light help, and one clear sentence for what cannot work, before any model."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from engine.cli import _parser, from_arguments, main
from engine.config import EngineConfig
from engine.errors import EngineConfigError
from tests.servers import running


def parse(*flags: str) -> EngineConfig:
    return from_arguments(_parser().parse_args(["serve", *flags]))[0]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "engine", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )


def test_flags_and_vllms_names_for_them() -> None:
    config = parse("some/model", "--max-num-batched-tokens", "512", "--max-num-seqs", "16")
    assert (config.model, config.chunk_size, config.max_num_seqs) == ("some/model", 512, 16)
    assert parse("--no-enable-prefix-caching").enable_prefix_caching is False
    assert parse().enable_prefix_caching is True
    assert parse("--device-memory", "4").device_memory_bytes == 4 << 30
    assert parse("--device-memory", "512MiB").device_memory_bytes == 512 << 20
    assert parse("--num-gpu-blocks-override", "40").num_kv_blocks == 40


def test_a_small_chunk_size_alone_lowers_max_num_seqs() -> None:
    config = parse("--chunk-size", "64")
    assert (config.chunk_size, config.max_num_seqs) == (64, 64)
    with pytest.raises(EngineConfigError, match="at least --max-num-seqs"):
        parse("--chunk-size", "64", "--max-num-seqs", "128")


def test_defaults_are_those_of_the_device_once_it_is_known() -> None:
    def at(*flags: str) -> tuple[int, int]:
        config = parse(*flags).with_defaults_of("cuda").checked()
        return config.max_num_seqs, config.chunk_size

    assert at() == (256, 8192)
    assert at("--max-num-seqs", "16") == (16, 8192)
    assert at("--chunk-size", "64") == (64, 64)
    assert at("--max-num-seqs", "16", "--chunk-size", "512") == (16, 512)
    assert (parse().max_num_seqs, parse().chunk_size) == (128, 2048)
    assert parse("--device", "cuda").chunk_size == 8192


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["serve", "--gpu-memory-utilization-limit", "nan"], "and 1, got nan"),
        (["serve", "--gpu-memory-utilization-limit", "0.1"], "--gpu-memory-utilization (0.9)"),
        (["serve", "--num-kv-blocks", "1" + "0" * 20], "--num-kv-blocks must be between 1"),
        (["serve", "--block-size", "1073741824"], "--block-size must be at most"),
        (["serve", "--seed", "-1"], "--seed must be between 0"),
        (["serve", "--num-threads", "100000000"], "--num-threads must be at most"),
        (["serve", "--host", ""], "--host must be an address"),
        (["serve", "--api-key", ""], "--api-key must be at least one character"),
        (["serve", "--api-key", "a key"], "--api-key must be at least one character"),
        (["serve", "--long-prefill-token-threshold", "8193"], "must be at most 8192"),
        (["serve", "--model", "a" * 5000], "cannot be read: File name too long"),
        (["serve", "--no-such-flag"], "--no-such-flag"),
        (["serve", "--max-num-seqs", "0"], "at least 1"),
        (["serve", "--max-num-seqs", "many"], "integer"),
        (["serve", "--device-memory", "big"], "4GiB"),
        (["serve", "--dtype", "int3"], "int3"),
        (["serve", "--port", "70000"], "65535"),
        (["serve", "--gpu-memory-utilization", "1.5"], "(0, 1]"),
        (["serve", "--block-size", "12"], "power of two"),
        (["serve", "--host", "203.0.113.1"], "203.0.113.1"),
        (["serve", "/no/such/model.gguf"], "/no/such/model.gguf"),
        (["serve", "a", "--model", "b"], "once"),
        ([], "COMMAND"),
    ],
)
def test_what_cannot_work_is_one_sentence(flags: list[str], words: str) -> None:
    done = run(*flags)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("long_prefill_token_threshold", 0),
        ("long_prefill_token_threshold", -1),
        ("num_kv_blocks", 0),
        ("max_num_queued_reqs", 0),
        ("num_threads", 0),
        ("seed", 2**64),
    ],
)
def test_a_configuration_that_did_not_come_from_flags_is_checked_too(name: str, value: int) -> None:
    with pytest.raises(EngineConfigError, match=f"--{name.replace('_', '-')} must be"):
        replace(EngineConfig(), **{name: value}).checked()  # type: ignore[arg-type]


@pytest.mark.parametrize("words", [["--host", "\x1b[2Jx"], ["--port", "x" * 5_000]])
def test_what_is_told_fits_a_terminal(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        assert main(["serve", *words]) == 2
    except SystemExit as ended:
        assert ended.code == 2
    told = capsys.readouterr().err
    assert "\x1b" not in told
    assert 0 < len(told) < 900


def test_a_flag_without_effect_is_told() -> None:
    done = run("serve", "--enforce-eager", "--model", "/no/such/model", "--port", "0")
    assert "--enforce-eager has no effect" in done.stderr
    assert "--enforce-eager" not in run("serve", "--model", "/no/such/model", "--port", "0").stderr


def test_a_port_in_use_is_told_before_the_model_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", "--port", str(port), "--model", "/no/such/model")
    assert done.returncode == 2
    assert f"port {port}" in done.stderr
    assert "in use" in done.stderr


def test_help_imports_no_model_and_no_server() -> None:
    code = (
        "import sys\nfrom engine.cli import main\n"
        "try:\n    main(['serve', '--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "heavy = {'torch', 'fastapi', 'uvicorn', 'tokenizers', 'transformers'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, timeout=60)


@pytest.mark.model
@pytest.mark.e2e
def test_serve_answers_and_stops_on_a_signal(tmp_path: Path) -> None:
    with running(
        "engine", "serve", "--port", "0", "--dtype", "float32", "--device-memory", "2",
        "--max-num-seqs", "4", log=tmp_path / "engine.log",
    ) as engine:  # fmt: skip
        body = {
            "messages": [{"role": "user", "content": "What is the capital of France?"}],
            "temperature": 0,
            "max_tokens": 24,
        }
        answer = httpx.post(f"{engine.url}/v1/chat/completions", json=body, timeout=60).json()
        assert "Paris" in answer["choices"][0]["message"]["content"]
        assert answer["choices"][0]["finish_reason"] == "stop"
        os.kill(engine.process.pid, signal.SIGTERM)
        assert engine.process.wait(20) == 0
        assert "Traceback" not in engine.output()
