"""tuner.toml: complete against the parsers, checked by them, and weaker than the command line."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.cli.config_file import flags_of, with_config
from tuner.cli.main import _build_parser, main
from tuner.errors import UserError

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs" / "tuner-toml.md"
SCRIPT = ROOT / "scripts" / "tuner_toml_keys.py"
_, PARSERS = _build_parser()
EVERY_FLAG = [(name, flag) for name, parser in PARSERS.items() for flag in flags_of(parser)]


def words(tmp_path: Path, text: str, *command: str) -> list[str]:
    file = tmp_path / "tuner.toml"
    file.write_text(text)
    return with_config([*command, "--config", str(file)], PARSERS)[0]


def example(action: argparse.Action) -> str:
    if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
        return "true"
    return '["x"]' if isinstance(action, argparse._AppendAction) else '"x"'


@pytest.mark.parametrize(("command", "flag"), EVERY_FLAG)
def test_every_flag_can_stand_in_the_file(command: str, flag: str, tmp_path: Path) -> None:
    action = flags_of(PARSERS[command])[flag]
    value = flag if example(action) == "true" else f"{flag}=x"
    for key in (flag[2:], flag[2:].replace("-", "_")):
        assert value in words(tmp_path, f"{key} = {example(action)}", command)
        assert value in words(tmp_path, f"[{command}]\n{key} = {example(action)}", command)


def test_every_key_is_documented() -> None:
    command = [sys.executable, str(SCRIPT), "--check"]
    done = subprocess.run(command, check=False)
    assert done.returncode == 0, f"the flags have changed: run python {SCRIPT.name}"


def test_the_documents_example_is_read() -> None:
    text = DOCS.read_text().split("```toml\n")[1].split("```")[0]
    parsed = parse(text, "optimize")
    assert parsed.url == "http://127.0.0.1:8000"
    assert parsed.slo == ["ttft_p95<500ms", "error_rate<1%"]
    assert "max_num_seqs=8:256:log" in parsed.knob
    assert "enforce_eager=true,false" in parsed.knob
    assert parse(text, "bench").duration == "60s"


def parse(text: str, *command: str) -> argparse.Namespace:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "x.toml"
        file.write_text(text)
        found, _ = with_config([*command, "--config", str(file)], PARSERS)
        return _build_parser()[0].parse_args(found)


FILE = """
url = "http://a:1"
slo = ["ttft_p95<1s"]
seed = 3
quiet = true
maximize = "goodput"
[sweep]
seed = 4
[knobs]
max_num_seqs = [8, 16]
chunk_size = ":= 64 * max_num_seqs"
"--stream-interval" = "1:8"
"""


def test_the_command_line_wins() -> None:
    assert parse(FILE, "optimize").seed == 3
    assert parse(FILE, "sweep").seed == 4
    assert parse(FILE, "sweep", "--seed", "5").seed == 5
    assert parse(FILE, "optimize", "--slo", "itl_p95<1s").slo == ["itl_p95<1s"]
    assert parse(FILE, "optimize", "--url=http://b:2").url == "http://b:2"
    assert parse(FILE, "optimize", "--target", "vllm").url is None
    assert parse(FILE, "optimize").quiet
    assert not parse(FILE, "optimize", "--no-quiet").quiet
    assert parse(FILE, "optimize", "--knob", "chunk_size=64").knob == ["chunk_size=64"]
    assert parse(FILE, "optimize").knob == [
        "max_num_seqs=8,16", "chunk_size:= 64 * max_num_seqs", "--stream-interval=1:8",
    ]  # fmt: skip
    assert parse(FILE, "bench", "http://b:2").url is None
    assert parse(FILE, "diagnose", "--prometheus", "http://p:9").url is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("slos = ['x']", "unknown key 'slos'; did you mean slo?"),
        ("[optimize]\nbudged = '5m'", "[optimize]: unknown key 'budged'; did you mean budget?"),
        ("[optimise]\nbudget = '5m'", "unknown key 'optimise'; did you mean optimize?"),
        ("zzz = 1", "keys are the names of the flags"),
        ("optimize = 3", "optimize is a table, [optimize]"),
        ("seed = [1, 2]", "seed takes one value, got a list"),
        ("seed = true", "seed takes one value, got true"),
        ("slo = [true]", "tuner.toml: slo takes a list of texts, got true"),
        ("quiet = 'yes'", "quiet takes true or false, got 'yes'"),
        ("slo = [[1]]", "slo takes a list of texts"),
        ("knobs = 3", "knobs is a table"),
        ("[optimize]\nknobs = 3", "[optimize]: knobs is a table, [optimize.knobs]"),
        ("[knobs]\nx = []", "x takes a text, a number, or a list"),
        ("seed = ", "is not valid TOML"),
        ("a = " + "[" * 5000, "is not valid TOML: it is nested too deeply"),
        ("seed = " + "9" * 5000, "is not valid TOML: it holds a whole number of more than 4300"),
    ],
)
def test_faults_are_one_sentence(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        words(tmp_path, text, "optimize")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wrong_value_names_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tuner.toml").write_text('seed = "many"')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(["optimize"])
    assert caught.value.code == 2
    assert "--seed" in (said := capsys.readouterr().err)
    assert "(in tuner.toml)" in said
    assert main(["studies", "--config", "none.toml"]) == 2
    assert "none.toml cannot be read: No such file" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["optimize", "--no-config", "--seed", "x"])
    assert "tuner.toml" not in capsys.readouterr().err


def test_a_flag_as_a_knob_is_no_option_of_ours() -> None:
    found, _ = with_config(["sweep", "--knob", "--stream-interval=1,2", "--no-config"], PARSERS)
    parsed = _build_parser()[0].parse_args(found)
    assert parsed.knob == ["--stream-interval=1,2"]
