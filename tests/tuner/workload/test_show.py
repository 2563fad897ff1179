"""`tuner workload show`: what is drawn, in numbers and in the terminal; the table of presets."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from tuner.cli import workload as command
from tuner.errors import UserError
from tuner.workload import PRESETS, parse_workload
from tuner.workload.grammar import KEYS
from tuner.workload.presets import TABLE
from tuner.workload.show import Picture, lines, picture, shown_s

DOCS = Path(__file__).parents[3] / "docs" / "workloads.md"


def shown(text: str, sessions: int = 400, duration_s: float = 60.0) -> Picture:
    return picture(parse_workload(text), 0, sessions, duration_s)


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


def test_every_sample_is_in_one_bin() -> None:
    for text in ("prompt=1..7,output=9", "prompt=lognormal(90,1.5),output=normal(50,9)",
                 "prompt=1..2000,output=1,turns=1..3,think=exponential(2s)", "agent"):  # fmt: skip
        for drawn in shown(text).drawn:
            assert sum(count for _, _, count in drawn.bins) == drawn.samples
            assert len(drawn.bins) <= 13
            widths = [high - low for low, high, _ in drawn.bins]
            assert all(width >= 0 for width in widths)


def test_figures_are_those_of_the_load() -> None:
    made = shown("prompt=100..300,output=9,turns=2,followup=10,rate=5")
    prompt, output, turns = made.drawn[:3]
    assert (made.sessions, made.requests) == (400, 800)
    assert (prompt.samples, prompt.unit) == (800, "tokens")
    assert prompt.mean == pytest.approx(200 + (9 + 10) / 2, rel=0.03)
    assert output.quantiles["p95"] == output.largest == 9
    assert turns.mean == 2
    assert made.arrivals.count == pytest.approx(300, rel=0.2)
    assert sum(count for _, _, count in made.arrivals.bins) == made.arrivals.count


def test_arrivals_of_a_closed_loop_are_its_clients() -> None:
    curve = shown("prompt=1,output=1,concurrency=2@30s/8").arrivals
    assert curve.closed
    assert [count for _, _, count in curve.bins] == [2] * 6 + [8] * 6


def test_requests_end_both_samples_and_arrivals() -> None:
    made = shown("prompt=1,output=1,rate=inf,requests=30")
    assert made.sessions == made.arrivals.count == 30


def test_a_text_file_is_shown_as_an_estimate(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "' + "x" * 40 + '", "response": "' + "y" * 8 + '"}\n')
    made = shown(f"file={path}")
    assert made.sessions == 1, "a row is drawn once, not again and again"
    assert (made.drawn[0].mean, made.drawn[1].mean) == (10, 2)
    assert all("4 characters a token" in drawn.note for drawn in made.drawn)
    assert made.repeated_share is None
    text = "\n".join(lines(made))
    assert text.count("JSONL, 1 row\n") == 1
    assert "prefix sharing" not in text


def test_lines_say_unit_and_samples() -> None:
    text = "\n".join(lines(shown("chat,shared_prefix=50,prefix_groups=3,rate=2")))
    assert "prompt (tokens, 400 samples): mean " in text
    assert "prefix group (number, 400 samples)" in text
    assert "of prompt tokens repeat earlier ones" in text
    assert "sessions, " in text
    assert "█" in text
    assert max(len(line) for line in text.splitlines()[2:]) <= 100


def test_command_prints_and_gives_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "chat,rate=2", "--sessions", "50", "--json") == 0
    made = json.loads(capsys.readouterr().out)
    assert made["sessions"] == 50
    assert made["drawn"][0]["unit"] == "tokens"
    assert run("show", "chat,rate=2", "--sessions", "50", "--seed", "3") == 0
    assert "seed 3, 50 sessions" in capsys.readouterr().out


def test_command_without_a_text_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show") == 0
    out = capsys.readouterr().out
    told = " ".join(out.split())
    for preset in TABLE:
        assert f"{preset.name} {preset.text} {preset.figures} ({preset.source})" in told
    assert "|" not in out
    assert max(len(line) for line in out.splitlines()) <= 120  # a text stays whole
    assert all(f"{key}=" in out for key in KEYS)
    assert run("show", "--json") == 0
    assert [p["name"] for p in json.loads(capsys.readouterr().out)["presets"]] == list(PRESETS)


def test_a_ramp_is_drawn_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    text = "prompt=8,output=4,rate=1..10@5m"
    assert run("show", text, "--sessions", "9", "--json") == 0
    arrivals = json.loads(capsys.readouterr().out)["arrivals"]
    assert arrivals["duration_s"] == 300
    assert arrivals["bins"][-1][2] > 4 * arrivals["bins"][0][2]
    assert run("show", text, "--sessions", "9", "--duration", "30s", "--json") == 0
    assert json.loads(capsys.readouterr().out)["arrivals"]["duration_s"] == 30
    assert shown_s(parse_workload("prompt=8,output=4,rate=2@10s/8")) == 60


def test_a_level_that_stays_is_one_line() -> None:
    text = lines(shown("prompt=8,output=4,concurrency=16"))
    assert text[-1] == "clients: 16 all the time (closed loop)"
    assert "█" in lines(shown("prompt=8,output=4,concurrency=2@30s/8"))[-1]


@pytest.mark.parametrize(
    "words", [("chat", "--seed", "-1"), ("chat", "--sessions", "0"), ("chat", "--duration", "9")]
)
def test_command_faults(words: tuple[str, ...]) -> None:
    with pytest.raises(UserError):
        run("show", *words)


def test_the_documents_table_is_the_codes() -> None:
    header = (
        "| name | stands for | figures relied on (tokens) | source |\n| --- | --- | --- | --- |"
    )
    rows = [f"| `{p.name}` | `{p.text}` | {p.figures} | {p.source} |" for p in TABLE]
    assert "\n".join([header, *rows]) in DOCS.read_text()


def test_every_key_is_in_the_document() -> None:
    text = DOCS.read_text()
    assert [key for key in KEYS if f"`{key}=" not in text] == []


def test_every_workload_of_the_document_is_understood() -> None:
    """Those of code blocks; files are not there, so that only their grammar is read."""
    found = [
        line.split('"')[1]
        for line in DOCS.read_text().splitlines()
        if "--workload" in line and line.count('"') == 2
    ]
    assert len(found) >= 8
    for text in found:
        try:
            parse_workload(text)
        except UserError as fault:
            assert "there is no such file" in str(fault), (text, str(fault))
