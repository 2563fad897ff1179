"""Dispatches `tuner COMMAND` and turns every fault of the user into one sentence and an exit code.

Each command is a module with NAME, HELP, add_arguments(parser) and run(args) -> int. Invariant:
building the parser imports nothing heavy; a command imports what it needs inside run.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import keyword
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any, ClassVar, NoReturn, Protocol, cast

from tuner import interrupts
from tuner.cli.common import EXIT_BAD_INPUT, EXIT_DONE, EXIT_FAULT, EXIT_INTERRUPTED
from tuner.cli.config_file import add_config_options, with_config
from tuner.cli.streams import have_streams
from tuner.errors import UserError
from tuner.printable import readable, shortened

COMMANDS = (
    "bench", "sweep", "optimize", "diagnose", "studies", "report", "runs", "compare", "rejudge",
    "export", "import", "workload", "quality", "export-config", "rules",
    "lint", "verify",
)  # fmt: skip

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

EPILOG = """\
An SLO holds a "<", which a shell reads as a redirection: keep it inside quotes, for example
  tuner optimize --url http://127.0.0.1:8000 --slo "ttft_p95<500ms"

exit codes: 0 done · 1 done, but the answer is no (an SLO is not met, diagnose gives a warning)
            2 bad input, one sentence on stderr · 3 a fault of the tuner itself, with its traceback
            4 diagnose finds something critical · 130 interrupted, what was measured is kept
"""


class Command(Protocol):
    """What a module of this package offers."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage text in front of it; and where it stands,
    when it is in the configuration file."""

    from_file: ClassVar[dict[str, str]] = {}

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """The text `--` in `--flag=--` too, of which argparse makes an empty list."""
        if action.option_strings and action.nargs is None and arg_strings == ["--"]:
            value = self._get_value(action, "--")
            self._check_value(action, value)
            return value
        return super()._get_values(action, arg_strings)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """As argparse does, without the name of a function of ours in what is told."""
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            if isinstance(error.__context__, ValueError):
                told = f"{shortened(arg_string)!r} is no number of the kind it takes"
                raise argparse.ArgumentError(action, told) from None
            raise

    def error(self, message: str) -> NoReturn:
        for flag, path in self.from_file.items():
            if message.startswith((f"argument {flag}:", f"argument {flag}/")):
                message += f" (in {path})"
        self.exit(EXIT_BAD_INPUT, f"{self.prog}: {readable(message)} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code (argparse itself exits for --help and bad flags).

    Without argv the whole process is this command's: signals are its own until the process ends.
    """
    if argv is not None:
        with interrupts.handled_by(interrupts.interrupt):
            return _main(argv)
    interrupts.own_process()
    have_streams()
    exit_code = _main(sys.argv[1:])
    if exit_code == EXIT_INTERRUPTED:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        interrupts.end_process(exit_code)
    return exit_code


def _main(argv: Sequence[str]) -> int:
    interrupts.forget()
    try:
        parser, commands = _build_parser()
        words, _Parser.from_file = with_config(argv, commands)
        args = parser.parse_args(words)
    except UserError as error:
        print(f"tuner: {readable(str(error))}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        return _interrupted()
    command: Command = args.command
    return run_command(command.NAME, command.run, args)


def run_command(
    name: str, run: Callable[[argparse.Namespace], int], args: argparse.Namespace
) -> int:
    """The exit code, every fault told on stderr."""
    try:
        exit_code = run(args)
        sys.stdout.flush()  # while a fault of it can still be told
        return exit_code
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:
        # The reader (`| head`) has seen enough; keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_DONE
    except Exception as error:
        if not _is_users_fault(error):
            traceback.print_exc()
            return EXIT_FAULT  # Python's own 1 would read as "the answer is no"
        print(f"tuner {name}: {readable(_told(error))}", file=sys.stderr)
        return EXIT_BAD_INPUT


def _interrupted() -> int:
    print("tuner: interrupted", file=sys.stderr)
    return EXIT_INTERRUPTED


def _build_parser() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The parser, and those of its commands by name."""
    parser = _Parser(
        prog="tuner",
        allow_abbrev=False,
        description="Measure an LLM server, find the knob settings that meet its SLOs, prove it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"slotune {version('slotune')}")
    commands = parser.add_subparsers(
        title="commands", required=True, metavar="COMMAND", parser_class=_Parser
    )
    children: dict[str, argparse.ArgumentParser] = {}
    for name in COMMANDS:
        file = f"{name}_" if keyword.iskeyword(name) else name.replace("-", "_")
        module = cast(Command, importlib.import_module(f"tuner.cli.{file}"))
        child = commands.add_parser(
            module.NAME,
            allow_abbrev=False,
            help=module.HELP,
            description=module.HELP,
            epilog=EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(child)
        add_config_options(child)
        child.set_defaults(command=module)
        children[name] = child
    return parser, children


def _told(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno in FULL:
        return f"standard output cannot be written: {error.strerror}"
    return str(error)


def _is_users_fault(error: Exception) -> bool:
    if isinstance(error, UserError):
        return True
    if isinstance(error, OSError) and error.errno in FULL:  # the file that stdout is
        return True
    # Looked up, not imported: a command that never opened a database must not pay for SQLAlchemy.
    faults = sys.modules.get("storage.errors")
    return faults is not None and isinstance(error, faults.StorageError)
