"""`tuner.toml`: whatever the flags can say, in a file; the command line wins.

A key is a flag's name, for every command that has the flag; the table of a command's name holds
keys for it alone; [knobs] holds NAME = VALUES. Invariant: a file becomes words of a command line
and is checked by the same parser, so that file and flags cannot mean different things.
"""

from __future__ import annotations

import argparse
import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.documents import read_document
from tuner.errors import UserError

DEFAULT_FILE = "tuner.toml"
KNOBS = "knobs"
_NEVER = {"--help", "--config", "--no-config"}
_KINDS = {dict: "table", list: "list"}
_VALUE_MAY_BE_A_FLAG = ("--knob", "--serve-args")


def add_config_options(parser: argparse.ArgumentParser) -> None:
    """--config, --no-config."""
    group = parser.add_argument_group("configuration file")
    group.add_argument(
        "--config",
        metavar="FILE",
        help=f"TOML file with what no flag says (default: ./{DEFAULT_FILE} where there is one)",
    )
    group.add_argument("--no-config", action="store_true", help=f"read no ./{DEFAULT_FILE}")


def with_config(
    words: Sequence[str], parsers: Mapping[str, argparse.ArgumentParser]
) -> tuple[list[str], dict[str, str]]:
    """(words with those of the file put in, flag → the file it came from). Raises UserError."""
    joined = _joined(words)
    name = next((word for word in joined if not word.startswith("-")), "")
    if name not in parsers:
        return joined, {}
    at = joined.index(name) + 1
    given = _given(parsers[name], joined[at:])
    path = _path(joined[at:])
    if path is None or given & {"--help", "-h"}:
        return joined, {}
    found = read_document(path, tomllib.loads, "TOML")
    _check_keys(found, path, parsers)
    chosen = _chosen(found, name, path, parsers[name], given)
    put_in = [
        word for flag, value in chosen.items() for word in _words(parsers[name], flag, value, path)
    ]
    kept = [word for word in joined[at:] if not _switches_off(word, chosen, parsers[name])]
    off = {word.replace("--no-", "--", 1) for word in joined[at:] if word not in kept}
    put_in = [word for word in put_in if word not in off]
    return [*joined[:at], *put_in, *kept], dict.fromkeys(chosen, str(path))


def flags_of(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """The long flags a file can set."""
    return {
        flag: action
        for flag, action in parser._option_string_actions.items()
        if flag.startswith("--") and flag not in _NEVER and action.option_strings[0] == flag
    }


def _joined(words: Sequence[str]) -> list[str]:
    """`--knob --a-flag=1,2` as `--knob=--a-flag=1,2`, which argparse would take for two options."""
    found: list[str] = []
    for word in words:
        if found and found[-1] in _VALUE_MAY_BE_A_FLAG and word.startswith("--"):
            found[-1] += f"={word}"
        else:
            found.append(word)
    return found


def _given(parser: argparse.ArgumentParser, words: Sequence[str]) -> set[str]:
    """Flags on the command line, and the names of positional arguments that are there."""
    flags: set[str] = set()
    positionals = 0
    left = iter(words)
    for word in left:
        flag, equals, _ = word.partition("=")
        action = parser._option_string_actions.get(flag)
        if action is None:
            positionals += not word.startswith("-")
            continue
        flags.update(action.option_strings)
        if not equals and action.nargs != 0:
            next(left, None)
    names = [action.dest for action in parser._actions if not action.option_strings]
    return flags | set(names[:positionals])


def _path(words: Sequence[str]) -> Path | None:
    found = None
    for index, word in enumerate(words):
        if word.startswith("--config="):
            found = word.partition("=")[2]
        elif word == "--config" and index + 1 < len(words):
            found = words[index + 1]
    if found is not None:
        return Path(found)
    default = Path(DEFAULT_FILE)
    return default if "--no-config" not in words and default.is_file() else None


def _check_keys(
    found: Mapping[str, Any], path: Path, parsers: Mapping[str, argparse.ArgumentParser]
) -> None:
    everywhere = {flag for parser in parsers.values() for flag in flags_of(parser)}
    for key, value in found.items():
        is_command = key in parsers and (isinstance(value, dict) or _flag(key) not in everywhere)
        if key == KNOBS or is_command:
            if not isinstance(value, dict):
                raise UserError(f"{path}: {key} is a table, [{key}]")
            for inner in value if key in parsers else ():
                if inner == KNOBS and not isinstance(value[inner], dict):
                    raise UserError(f"{path}, [{key}]: {KNOBS} is a table, [{key}.{KNOBS}]")
                if inner != KNOBS:
                    _check_key(inner, flags_of(parsers[key]), f"{path}, [{key}]")
        else:
            _check_key(key, everywhere, str(path), also=[*parsers, KNOBS])


def _check_key(key: str, flags: Iterable[str], where: str, also: Iterable[str] = ()) -> None:
    if _flag(key) in flags:
        return
    known = [*(flag[2:].replace("-", "_") for flag in flags), *also]
    close = difflib.get_close_matches(key.replace("-", "_"), known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}?" if close else "keys are the names of the flags"
    raise UserError(f"{where}: unknown key {key!r}; {hint}")


def _chosen(
    found: Mapping[str, Any],
    command: str,
    path: Path,
    parser: argparse.ArgumentParser,
    given: set[str],
) -> dict[str, Any]:
    """Flag → value for this command: its own table over the common keys, without what the command
    line says or excludes."""
    flags = flags_of(parser)
    own = found.get(command) if isinstance(found.get(command), dict) else {}
    merged: dict[str, Any] = {}
    for table in (own or {}, found):
        for key, value in table.items():
            if key == KNOBS and "--knob" in flags:
                merged.setdefault("--knob", [_knob(n, v, path) for n, v in value.items()])
            elif _flag(key) in flags and not (table is found and isinstance(value, dict)):
                merged.setdefault(_flag(key), value)
    excluded = set(given)
    if "base_url" in given:  # bench's server, named without its flag
        excluded |= {"--url"}
    if excluded & {"--url"}:  # a server that runs is not started
        excluded |= {"--target", "--serve-args"}
    elif "--target" in given:
        excluded |= {"--url"}
    for group in parser._mutually_exclusive_groups:
        members = {flag for action in group._group_actions for flag in action.option_strings}
        in_file = [flag for flag in merged if flag in members]
        excluded |= members if members & given else set(in_file[1:])
    return {flag: value for flag, value in merged.items() if flag not in excluded}


def _knob(name: str, value: Any, path: Path) -> str:
    """NAME = "8:256:log", [1, 2, 4], true, ":= 4 * max_num_seqs" as a --knob text."""
    if isinstance(value, str) and value.strip().startswith(":="):
        return f"{name}{value.strip()}"
    values = value if isinstance(value, list) else [value]
    if not values or any(isinstance(item, (dict, list)) for item in values):
        raise UserError(f"{path}, [knobs]: {name} takes a text, a number, or a list of them")
    return f"{name}={','.join(_text(item) for item in values)}"


def _words(parser: argparse.ArgumentParser, flag: str, value: Any, path: Path) -> list[str]:
    action = parser._option_string_actions[flag]
    name = flag[2:].replace("-", "_")
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise UserError(f"{path}: {name} takes true or false, got {value!r}")
        return [flag] if value else []
    if isinstance(action, argparse.BooleanOptionalAction):
        return [flag if value else f"--no-{flag[2:]}"]
    many = isinstance(action, argparse._AppendAction)
    values = value if isinstance(value, list) and many else [value]
    for item in values:
        if isinstance(item, (dict, list, bool)):
            takes = "a list of texts" if many else "one value"
            got = _text(item) if isinstance(item, bool) else f"a {_KINDS[type(item)]}"
            raise UserError(f"{path}: {name} takes {takes}, got {got}")
    return [f"{flag}={_text(item)}" for item in values]


def _switches_off(word: str, chosen: Mapping[str, Any], parser: argparse.ArgumentParser) -> bool:
    """`--no-quiet` on the command line takes back a switch that the file has put on."""
    flag = f"--{word[5:]}"
    return (
        word.startswith("--no-")
        and word not in parser._option_string_actions
        and flag in chosen
        and parser._option_string_actions[flag].nargs == 0
    )


def _flag(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
