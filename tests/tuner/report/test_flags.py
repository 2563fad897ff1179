"""Flags that reproduce a configuration, and text without invention."""

from __future__ import annotations

import math
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tuner.exchange.run import settings_text
from tuner.report.flags import Exported, Served, commands, exported_text, model_note
from tuner.report.optimize import estimate_text, gain_text
from tuner.search.decide import Decision
from tuner.search.objective import Objective
from tuner.slo import Verdict
from tuner.slo.pooled import Pooled
from tuner.stats import Comparison, Estimate
from tuner.targets.base import Setting, config_text
from tuner.targets.flags import DIALECTS, Dialect, flag_words, left_out, split_words

CONFIG = {"max_num_seqs": 24, "chunk_size": 512, "gpu_memory_utilization": 0.85}


def test_both_engines_flags() -> None:
    lines = commands(CONFIG, Served("models/a b", "slotune"))
    assert lines["slotune"] == (
        "engine serve --model 'models/a b' --max-num-seqs 24 --chunk-size 512 "
        "--gpu-memory-utilization 0.85"
    )
    assert lines["vllm serve"] == (
        "vllm serve MODEL --max-num-seqs 24 --max-num-batched-tokens 512 "
        "--gpu-memory-utilization 0.85"
    )
    assert config_text(CONFIG) == "max_num_seqs=24 chunk_size=512 gpu_memory_utilization=0.85"


def test_engine_flags_are_what_the_engine_reads() -> None:
    from engine.cli import _parser, from_arguments

    words = commands(CONFIG, Served())["slotune"].split()[1:]
    config, _ = from_arguments(_parser().parse_args(words))
    assert {name: getattr(config, name) for name in CONFIG} == CONFIG


def test_estimates_carry_interval_and_samples() -> None:
    assert estimate_text(Estimate(0.31, 0.28, math.inf, 41, "s", "m")) == "310 ms [280 ms, ∞] n=41"
    assert estimate_text(Estimate.missing("s", "none")) == "–"


def gain(ratio: float, low: float, high: float, n: int, outcome: str) -> str:
    nothing = Pooled(1, {}, Verdict("pass", ()))
    comparison = Comparison(ratio, low, high, n, outcome, "m")  # type: ignore[arg-type]
    return gain_text(Decision("improved", "", {}, nothing, gain=comparison), Objective())


def test_a_gain_carries_its_ground() -> None:
    assert gain(1.31, 1.22, 1.41, 3, "improved").startswith(
        "output_tps 1.31 × baseline (95 % interval 1.22 to 1.41 from 3 interleaved pairs"
    )
    assert gain(1.31, 1.22, 1.41, 3, "improved").endswith(": confirmed")
    assert gain(1.1, 0.9, 1.3, 3, "inconclusive").endswith(": not confirmed")


def test_one_pair_claims_nothing() -> None:
    assert "no gain or loss is claimed" in gain(2.0, 0.0, math.inf, 1, "inconclusive")


RICH: dict[str, Setting] = CONFIG | {
    "enable_prefix_caching": False, "enforce_eager": True, "dtype": "bfloat16",
    "kv_cache_dtype": "fp8", "max_model_len": "auto", "tensor_parallel_size": 2,
    "--stream-interval": 4, "--async-scheduling": False, "block_size": "default",
}  # fmt: skip


def test_each_engines_way_to_say_it() -> None:
    lines = commands(RICH, Served("m", "vllm"))
    assert lines["vllm serve"].endswith(
        "--no-enable-prefix-caching --enforce-eager --dtype bfloat16 --kv-cache-dtype fp8 "
        "--tensor-parallel-size 2 --stream-interval 4 --no-async-scheduling"
    )
    assert lines["slotune"].endswith("--no-enable-prefix-caching --enforce-eager --dtype bfloat16")
    assert lines["sglang"].endswith(
        "--max-running-requests 24 --chunked-prefill-size 512 --mem-fraction-static 0.85 "
        "--disable-radix-cache --disable-cuda-graph --dtype bfloat16 --kv-cache-dtype fp8 "
        "--tp-size 2"
    )
    assert "kv_cache_dtype=fp8 max_model_len=auto" in config_text(RICH)


def test_a_stored_runs_settings_are_written_as_a_configurations() -> None:
    whom: dict[str, Setting] = {"url": "http://127.0.0.1:8000", "model": "m"}
    assert settings_text(whom) == ""
    knobs: dict[str, Setting] = {"enable_prefix_caching": True, "kv_cache_dtype": "fp8"}
    assert settings_text(whom | knobs | CONFIG) == config_text(knobs | CONFIG)
    assert settings_text(knobs) == "enable_prefix_caching=true kv_cache_dtype=fp8"


def test_what_is_written_is_read_back() -> None:
    for dialect in DIALECTS:
        words = flag_words(RICH, dialect)
        found, others = split_words(words, [*RICH], dialect)
        gone = set(left_out(RICH, dialect)) | {"max_model_len", "block_size"}
        if dialect == "sglang":  # a switch that is off has no word
            gone.add("--async-scheduling")
        assert others == () or others == ("--no-async-scheduling",)
        assert found == {n: v for n, v in RICH.items() if n not in gone and n in found}


def test_a_form_says_what_it_leaves_out() -> None:
    text = exported_text(Exported(RICH, "vllm", "m"), "slotune")
    assert text.splitlines()[0] == (
        "# slotune has no flag for: kv_cache_dtype, tensor_parallel_size, --stream-interval, "
        "--async-scheduling"
    )


def test_an_environment_file_is_what_a_shell_reads(tmp_path: Path) -> None:
    file = tmp_path / "tuned.env"
    file.write_text(exported_text(Exported(RICH, "vllm", "a model"), "env"))
    shell = f'set -eu; . {file}; echo "$MAX_NUM_SEQS $STREAM_INTERVAL"; echo "$SERVE_ARGS"'
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True)
    first, flags = done.stdout.splitlines()
    assert first == "24 4"
    assert flags.split() == flag_words(RICH, "vllm")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_compose_gives_the_whole_command(dialect: Dialect) -> None:
    what = Exported(CONFIG, dialect, "org/model", "llm")
    command = yaml.safe_load(exported_text(what, "compose"))["services"]["llm"]["command"]
    assert all(isinstance(word, str) for word in command)
    assert "org/model" in command
    assert " ".join(command).count("24") == 1


def test_our_compose_override_starts_the_engine() -> None:
    from engine.cli import _parser, from_arguments

    command = yaml.safe_load(exported_text(Exported(CONFIG, "slotune"), "compose"))
    config, options = from_arguments(_parser().parse_args(command["services"]["engine"]["command"]))
    assert (config.max_num_seqs, options.host, options.enable_admin) == (24, "0.0.0.0", True)


def test_helm_values_of_the_production_stack() -> None:
    values = yaml.safe_load(exported_text(Exported(RICH, "vllm", "org/model", "mine"), "helm"))
    (spec,) = values["servingEngineSpec"]["modelSpec"]
    assert (spec["name"], spec["modelURL"]) == ("mine", "org/model")
    assert spec["vllmConfig"] == {
        "maxNumSeqs": 24, "gpuMemoryUtilization": 0.85, "enablePrefixCaching": False,
        "dtype": "bfloat16", "tensorParallelSize": 2,
        "extraArgs": [
            "--max-num-batched-tokens", "512", "--enforce-eager", "--kv-cache-dtype", "fp8",
            "--stream-interval", "4", "--no-async-scheduling",
        ],
    }  # fmt: skip
    plain = yaml.safe_load(exported_text(Exported(CONFIG, "slotune"), "helm"))
    (spec,) = plain["servingEngineSpec"]["modelSpec"]
    assert spec["vllmConfig"]["enablePrefixCaching"] is True  # else the chart turns it off


STARTED = ("--max-model-len", "1024", "--max-num-seqs", "99", "--stream-interval", "2")


@pytest.mark.parametrize("form", ["vllm", "env", "compose", "helm"])
def test_what_the_study_was_started_with_belongs_to_the_configuration(form: str) -> None:
    """What was chosen wins over it; other flags are handed through to the engine measured."""
    what = Exported({"max_num_seqs": 24}, "vllm", "m", serve_args=STARTED)
    assert what.words("vllm") == [
        "--max-model-len", "1024", "--max-num-seqs", "24", "--stream-interval", "2",
    ]  # fmt: skip
    text = exported_text(what, form)
    assert all(word in text for word in ("1024", "stream-interval"))
    assert "99" not in text


def test_other_engines_get_what_they_have_a_flag_for() -> None:
    what = Exported({"max_num_seqs": 24}, "vllm", "m", serve_args=STARTED)
    first, command = exported_text(what, "sglang").splitlines()
    assert first == "# not carried from vllm: --stream-interval 2"
    assert command.endswith("--context-length 1024 --max-running-requests 24")
    told = commands({"max_num_seqs": 24}, Served("m", "vllm", STARTED))
    assert told["vllm serve"].endswith("--max-num-seqs 24 --stream-interval 2")
    assert told["slotune"].endswith("--max-model-len 1024 --max-num-seqs 24")


@pytest.mark.parametrize("form", ["vllm", "sglang", "helm"])
def test_the_model_of_another_engine_is_a_placeholder_that_is_explained(form: str) -> None:
    served = Served("SmolLM2-135M-Instruct", "slotune")
    text = exported_text(served.exported({"max_num_seqs": 24}), form)
    note, command = text.splitlines()[-2:]
    if form == "helm":
        note = next(line for line in text.splitlines() if line.startswith("# MODEL"))
        (spec,) = yaml.safe_load(text)["servingEngineSpec"]["modelSpec"]
        command = spec["modelURL"]
    assert "MODEL" in command
    assert "SmolLM2" not in command
    assert note == f"# {model_note('SmolLM2-135M-Instruct')}"
    told = commands({"max_num_seqs": 24}, served)
    assert told["slotune"].startswith("engine serve --model SmolLM2-135M-Instruct ")
    if form == "vllm":
        assert told["vllm serve"] == command


def test_a_vllm_model_is_no_model_of_ours_unless_it_is_given() -> None:
    what = Exported({"max_num_seqs": 24}, "vllm", "org/m")
    assert what.command("slotune")[:4] == ["engine", "serve", "--model", "MODEL"]
    assert what.command("sglang")[-3] == "org/m"
    given = exported_text(replace(what, given="/models/m"), "slotune")
    assert given.startswith("engine serve --model /models/m ")
    assert "MODEL" not in given
