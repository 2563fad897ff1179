"""A flag that sets the size of the KV pool is proposed by the tree, and can be turned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.knobs import REPLACING
from tests.storage.sources.serving import serving
from tests.tuner.cli.running import tuner
from tests.tuner.diagnosis.cases import QUEUE, SLOS, signals
from tests.tuner.fake_engine import program
from tuner.cli.sweep_plan import advise
from tuner.diagnosis import Diagnosis, diagnose
from tuner.errors import UserError
from tuner.search.objective import Objective
from tuner.slo import SloSet
from tuner.targets.flags import flag_words, left_out, split_words, turned_at_start
from tuner.targets.restart import Start
from tuner.targets.vllm import VllmTarget
from tuner.verify.predict import Prediction, predict
from tuner.verify.proposal import of_knob, of_node
from tuner.verify.watch import seen_while

TTFT = Objective("ttft_p95", "minimize")
FULL = QUEUE | {"kv_usage": 0.99}
FORTY = {"num_gpu_blocks_override": "40"}


def starved(config: dict[str, str]) -> Diagnosis:
    found = diagnose(signals(config=config, **FULL), SLOS)
    assert found.causes[0].key == "3a.kv"
    return found


def started(tmp_path: Path, *serve_args: str) -> VllmTarget:
    return VllmTarget(Start(
        (str(program(tmp_path / "vllm", "vllm")),), "m", log_dir=tmp_path / "logs",
        serve_args=serve_args, startup_timeout_s=30,
    ))  # fmt: skip


def test_what_the_tree_proposes_is_turned_on_vllm(tmp_path: Path) -> None:
    target = started(tmp_path, "--num-gpu-blocks-override", "40", "--seed", "3")
    made = of_node(starved(FORTY).causes[0], target.knobs(), TTFT)
    assert made.change == "num_gpu_blocks_override 40 → 80"
    assert made.direction == "up"
    try:
        target.apply(made.before)
        target.apply(made.after)
    finally:
        target.stop()
    before, after = (tmp_path / "starts").read_text().splitlines()
    assert "--num-gpu-blocks-override 40 --seed 3" in before
    assert "--num-gpu-blocks-override 80 --seed 3" in after


def test_a_sweep_turns_it_too(tmp_path: Path) -> None:
    knobs = started(tmp_path, "--num-gpu-blocks-override=40").knobs()
    advice = advise(starved(FORTY), knobs, 3)
    assert [axis.name for axis in advice.axes] == ["num_gpu_blocks_override"]
    assert advice.axes[0].values[0] == 40
    assert advice.axes[0].values[-1] == 160


def test_without_a_size_to_start_from_a_new_one_is_asked_for(tmp_path: Path) -> None:
    """vLLM on a CPU takes its size from its environment, which no flag tells."""
    node = starved({"kv_cache_memory_bytes": "1073741824"}).causes[0]
    assert node.levers[0].knob == "kv_cache_memory_bytes"
    with pytest.raises(UserError, match="--knob kv_cache_memory_bytes=…"):
        of_node(node, started(tmp_path).knobs(), TTFT)
    given = started(tmp_path, "--kv-cache-memory-bytes", "1G").knobs()
    assert of_node(node, given, TTFT).change == "kv_cache_memory_bytes 1073741824 → 2147483648"


@pytest.mark.parametrize(
    ("text", "size"), [("40", 40), ("8k", 8000), ("2G", 2**31), ("1.5g", 1_500_000_000)]
)
def test_a_whole_number_is_read_as_vllm_reads_it(text: str, size: int) -> None:
    found, rest = split_words(("--kv-cache-memory-bytes", text), REPLACING, "vllm")
    assert (found, rest) == ({"kv_cache_memory_bytes": size}, ())


@pytest.mark.parametrize("text", ["G", "many", "infk", ""])
def test_what_is_no_whole_number_is_told(text: str) -> None:
    with pytest.raises(UserError, match="--kv-cache-memory-bytes takes a whole number"):
        split_words(("--kv-cache-memory-bytes", text), REPLACING, "vllm")


def test_this_engine_takes_it_by_either_name() -> None:
    for flag in ("--num-kv-blocks", "--num-gpu-blocks-override"):
        assert turned_at_start((), (flag, "40"), "slotune") == ("num_gpu_blocks_override",)
    assert flag_words({"num_gpu_blocks_override": 80}, "slotune") == ["--num-kv-blocks", "80"]
    assert turned_at_start(("block_size",), ("--seed", "1"), "slotune") == ("block_size",)


def test_it_is_not_carried_to_another_engine() -> None:
    """Forty blocks of another size, for another engine, are another pool."""
    config = {"num_gpu_blocks_override": 40, "max_num_seqs": 8}
    assert flag_words(config, "slotune", spoken="vllm") == ["--max-num-seqs", "8"]
    assert left_out(config, "slotune", "vllm") == ["num_gpu_blocks_override"]
    assert left_out(config, "vllm", "vllm") == []


def test_what_more_blocks_should_give_is_predicted(tmp_path: Path) -> None:
    knobs = started(tmp_path, "--num-gpu-blocks-override", "40").knobs()
    made = of_knob("num_gpu_blocks_override=80", knobs, Objective())
    found = predict(made, signals(running_mean=4.0, waiting_mean=9.0, kv_usage_mean=0.9))
    assert isinstance(found, Prediction)
    assert (found.low, found.high) == (1.0, pytest.approx(2.0))


def test_a_size_that_the_server_works_out_is_as_it_tells() -> None:
    page = (
        "vllm:num_requests_running 1\n"
        'vllm:cache_config_info{num_gpu_blocks_override="None",kv_cache_memory_bytes="9"} 1\n'
    )
    given = {"num_gpu_blocks_override": "auto", "kv_cache_memory_bytes": "auto", "max_num_seqs": 4}
    with serving(page) as server:
        _, seen = seen_while(server.url, given, SloSet(), lambda: None)
    assert seen is not None
    told = seen.signals.config
    assert (told["kv_cache_memory_bytes"], told["max_num_seqs"]) == ("9", "4")
    assert "num_gpu_blocks_override" not in told


def test_the_command_turns_it(tmp_path: Path) -> None:
    binary = program(tmp_path / "vllm", "vllm")
    done = tuner(
        "verify", "--target", "vllm", "--vllm-binary", str(binary), "--model", "m",
        "--serve-args=--num-gpu-blocks-override 40", "--knob", "num_gpu_blocks_override=80",
        "--pairs", "2", "--json", "--workload", "prompt=16,output=4,concurrency=2",
        "--duration", "700ms", "--warmup", "0s", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert json.loads(done.stdout)["change"] == "num_gpu_blocks_override 40 → 80"
    assert "--num-gpu-blocks-override 80" in (tmp_path / "starts").read_text()
