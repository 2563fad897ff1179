"""Text output stays within 100 columns; thresholds files are read strictly."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tuner.diagnosis.cases import SLOS, signals
from tuner.diagnosis import (
    History,
    Lever,
    NodeResult,
    State,
    diagnose,
    load_thresholds,
    render,
)
from tuner.diagnosis.proof import proof
from tuner.diagnosis.thresholds import TABLE
from tuner.errors import UserError


def test_text_fits_and_is_plain_unless_asked() -> None:
    look = signals(queue=1.6, ttft_p95=3.0, e2e=3.9, inference=2.2, waiting=9.0, kv_usage=0.99)
    text = render(diagnose(look, SLOS), verbose=True)
    assert max(map(len, text.splitlines())) <= 100
    assert "\x1b" not in text
    assert "gpu_memory_utilization up" in text
    assert "will not help" in text
    assert "\x1b[" in render(diagnose(look, SLOS), colour=True)


def test_without_traffic_only_what_is_judged_is_listed() -> None:
    quiet = diagnose(
        signals(running=0, waiting=0, finished=0, generated=0, preemptions=0, rejections=0), SLOS
    )
    text = render(quiet)
    assert "No traffic in the window" in text
    assert "Ask again while requests run" in text
    assert "Trust" in text
    assert "Queue-dominated" not in text
    assert "Queue-dominated" in render(quiet, verbose=True)
    assert "Ask again" not in render(diagnose(signals(), SLOS))


def test_missing_slo_is_said() -> None:
    diagnosis = diagnose(signals())
    text = render(diagnosis)
    assert "No SLO for ttft: the nodes that need one show figures and no verdict." in text
    assert all(line in text.splitlines() for line in diagnosis.unjudged)
    assert "tpot_p95<50ms" in text


def test_what_is_in_order_is_not_told_as_a_fault_would_be() -> None:
    """Nothing waits, the KV pool is not small beside the cap, and nobody was asked for clients."""
    text = render(diagnose(signals(kv_usage=0.7, kv_usage_mean=0.7), SLOS))
    for words in ("although", "only 70%", "collected"):
        assert words not in text
    assert "what clients saw is not known" in text
    full = diagnose(signals(running=64.0, waiting=4.0), SLOS).node("5.seq_cap")
    assert full.summary.endswith("KV only 40%")


def test_override_moves_a_node(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text("[thresholds]\npreemption_warning = 0.5\npreemption_critical = 0.9\n")
    look = signals(preemptions=6.0)
    assert diagnose(look).node("6").firing
    assert not diagnose(look, thresholds=load_thresholds(file)).node("6").firing


def test_device_peak_makes_the_roofline_tell(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text("[device]\nbytes_per_s = 1.2e9\nflops_per_s = 2e12\n")
    bare = signals(peak_bytes=None, peak_flops=None, tpot_p95=0.2, itl_p50=0.1)
    assert diagnose(bare, SLOS).node("4.bandwidth").state == "cant_tell"
    told = diagnose(bare, SLOS, thresholds=load_thresholds(file)).node("4.bandwidth")
    assert told.firing
    assert told.value == pytest.approx(1.1 / 1.2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[thresholds]\nqueue_share_warnin = 1", "did you mean queue_share_warning"),
        ("[thresholds]\nkv_full = 'a'", "must be a number above 0"),
        ("[thresholds]\nkv_full = -1", "must be a number above 0"),
        ("[thresholds]\nkv_full = nan", "must be a number above 0"),
        (f"[thresholds]\nkv_full = {'9' * 400}", "must be a number above 0, not 99"),
        ("a = " + "[" * 5000, "is not valid TOML: it is nested too deeply"),
        (f"[thresholds]\nkv_full = {'9' * 5000}", "is not valid TOML: it holds a whole number"),
        ("[limits]\nkv_full = 1", "unknown table"),
        ("thresholds = 3", "must be a table"),
        ("[thresholds", "not valid TOML"),
    ],
)
def test_bad_file_is_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "t.toml"
    file.write_text(text)
    with pytest.raises(UserError, match=says):
        load_thresholds(file)


def test_absent_file() -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load_thresholds("/nonexistent/t.toml")


def test_every_threshold_has_unit_and_source() -> None:
    assert all(row.unit and row.source and row.value > 0 for row in TABLE.values())


CAPPED = {"running": 8.0, "waiting": 9.0, "queue": 1.6, "ttft_p95": 3.0, "e2e": 3.9,
          "inference": 2.2}  # fmt: skip


def test_the_command_that_proves_a_lever_names_the_server_and_never_a_prometheus() -> None:
    look = diagnose(signals(config={"max_num_seqs": "8"}, **CAPPED), SLOS)
    asked = replace(look, target="http://prometheus:9090")
    for url, named in (("", "--url http://HOST:PORT "), ("http://a:8000", "--url http://a:8000 ")):
        text = render(asked, url=url)
        told, command = re.findall(r"to prove it, (.+)\n +(.+)$", text, re.MULTILINE)[0]
        assert told == "with your --workload and --slo:"
        assert re.fullmatch(rf"tuner verify {re.escape(named)}--node [\w.]+", command)
        assert "--url http://prometheus:9090" not in text
    elsewhere = " ".join(render(replace(asked, dialect="vllm"), url="http://a:8000").split())
    flags = "--model, --serve-args, --workload and --slo"
    assert f"with your {flags}: tuner verify --target vllm --node" in elsewhere


@pytest.mark.parametrize(
    ("dialect", "knob", "direction", "command"),
    [
        ("slotune", "chunk_size", "up", "--url http://a:1 --node K"),
        ("slotune", "enable_prefix_caching", "on",
         "--target slotune --knob enable_prefix_caching=true"),
        ("vllm", "enable_prefix_caching", "on", "--target vllm --knob enable_prefix_caching=true"),
        ("vllm", "quantization", "on", "--target vllm --knob quantization=…"),
        ("slotune", "num_gpu_blocks_override", "up", "--target slotune --node K"),
        ("sglang", "chunk_size", "up", "--target sglang --node K"),
    ],
)  # fmt: skip
def test_what_is_set_at_a_start_is_proved_on_a_server_that_is_started(
    dialect: str, knob: str, direction: str, command: str
) -> None:
    act = Lever(knob, direction, "effect", "cost")
    node = NodeResult("K", "A node", State.WARNING, "", levers=(act,))
    told, flags = proof(node, dialect, "http://a:1")
    assert told == f"tuner verify {command}"
    own = "" if "--url" in command else "--model, --serve-args, "
    assert flags == f"{own}--workload and --slo"


def test_what_the_engine_has_no_flag_for_is_proved_by_no_command() -> None:
    for name in ("quantization", "the router"):
        act = Lever(name, "on", "effect", "cost")
        node = NodeResult("K", "A node", State.WARNING, "", levers=(act,))
        assert proof(node, "slotune", "http://a:1") == ("", "")


def test_what_holds_but_does_not_fire_yet_is_not_called_ok() -> None:
    look, history = signals(config={"max_num_seqs": "8"}, **CAPPED), History()
    first = diagnose(look, SLOS, history)
    assert first.node("3").pending
    text = render(first)
    [line] = [line for line in text.splitlines() if line.startswith("3 TTFT")]
    assert "on watch" in line
    assert " ok " not in line
    assert re.match(r"Nothing fires yet: \d+ nodes? on watch", first.headline)
    assert "on watch" not in render(diagnose(look, SLOS, history))


def test_n_is_labelled_and_agrees_with_the_confidence() -> None:
    look = signals(config={"max_num_seqs": "8"}, **CAPPED)
    one = {name: replace(look.readings[name], samples=1) for name in ("running", "waiting")}
    text = " ".join(
        render(diagnose(replace(look, readings={**look.readings, **one}), SLOS)).split()
    )
    assert re.search(r"likely, n=100 requests", text)
    assert not re.search(r"n=\d+\]", text)
