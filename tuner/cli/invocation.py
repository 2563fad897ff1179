"""Names and command lines of a study, as they are stored and shown; never with a secret in them."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import time

from tuner.cli.common import DEFAULT_DATABASE
from tuner.cli.executor_options import executor_words

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
    """The command that goes on with a study; budget: what stands for the larger one."""
    words = ["tuner", "optimize", "--study", study]
    if args.url:
        words += ["--url", args.url]
    else:
        words += ["--target", args.target]
        words += ["--model", args.model] if args.model else []
        words += ["--vllm-binary", args.vllm_binary] if args.target == "vllm" else []
        words += ["--sglang-command", args.sglang_command] if args.target == "sglang" else []
        words += [f"--serve-args={args.serve_args}"] if args.serve_args else []
        words += executor_words(args)
    if args.database != DEFAULT_DATABASE:
        words += ["--database", args.database]
    return shlex.join([*map(without_secrets, words), "--budget", budget])
