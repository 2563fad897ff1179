"""Names and command lines of a study, as they are stored and shown; never with a secret in them."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import time

from tuner.cli.common import DEFAULT_DATABASE
from tuner.cli.executor_options import executor_words
from tuner.cli.targets import DEFAULT_LOG_DIR, DEFAULT_STARTUP_S

_SECRET = "--api-key"
_SECRET_INSIDE = re.compile(rf"{_SECRET}(?:=|\s+)\S+")
_URL_PASSWORD = re.compile(r"(://[^/:@\s]*:)[^@\s]+(?=@)")


def study_name(command: str) -> str:
    """`optimize-20261130-060200`, UTC."""
    return time.strftime(f"{command}-%Y%m%d-%H%M%S", time.gmtime())


def command_text() -> str:
    """This process's command line without API keys and passwords."""
    words = iter(sys.argv[1:])
    kept: list[str] = []
    for word in words:
        if word == _SECRET:
            next(words, None)
        elif not word.startswith(f"{_SECRET}="):
            kept.append(word)
    return shlex.join(["tuner", *map(without_secrets, kept)])


def without_secrets(text: str) -> str:
    """Passwords of URLs and API keys of flags inside the text become ***."""
    return _SECRET_INSIDE.sub(f"{_SECRET}=***", _URL_PASSWORD.sub(r"\1***", text))


def resume_text(args: argparse.Namespace, study: str, budget: str = "TIME") -> str:
    """The command that goes on with a study of optimize; budget: what stands for the larger one."""
    words = [*_target_words(args), *executor_words(args), *_database_words(args)]
    return _text("optimize", study, [*words, "--budget", budget])


def resume_sweep_text(args: argparse.Namespace, study: str) -> str:
    """The command that goes on with a sweep."""
    return _text("sweep", study, [*_target_words(args), *_database_words(args)])


def _text(command: str, study: str, words: list[str]) -> str:
    return shlex.join(map(without_secrets, ["tuner", command, "--study", study, *words]))


def _target_words(args: argparse.Namespace) -> list[str]:
    """KEY stands for the API key."""
    model = ["--model", args.model] if args.model else []
    key = ["--api-key", "KEY"] if args.api_key else []
    if args.url:
        return ["--url", args.url, *model, *key]
    words = ["--target", args.target, *model, *key]
    words += ["--vllm-binary", args.vllm_binary] if args.target == "vllm" else []
    words += ["--sglang-command", args.sglang_command] if args.target == "sglang" else []
    words += [f"--serve-args={args.serve_args}"] if args.serve_args else []
    if args.startup_timeout != DEFAULT_STARTUP_S:
        words += ["--startup-timeout", f"{args.startup_timeout:g}"]
    return words + (["--log-dir", args.log_dir] if args.log_dir != DEFAULT_LOG_DIR else [])


def _database_words(args: argparse.Namespace) -> list[str]:
    return ["--database", args.database] if args.database != DEFAULT_DATABASE else []
