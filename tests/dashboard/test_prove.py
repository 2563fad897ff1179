"""The command shown beside a lever turns that knob, in that direction, inside its range."""

import shlex

from dashboard.prove import sweep_command

URL = "http://127.0.0.1:8000"


def test_sweeps_from_the_present_value_in_the_lever_s_direction() -> None:
    command = sweep_command(
        "max_num_seqs", "up", {"max_num_seqs": "16"}, url=URL, slos=["ttft_p95<500ms"]
    )
    assert command is not None
    assert shlex.split(command) == [
        *("tuner", "sweep", "--url", URL, "--knob", "max_num_seqs=16,24,32"),
        *("--slo", "ttft_p95<500ms"),
    ]


def test_stays_inside_the_knob_s_range() -> None:
    command = sweep_command(
        "gpu_memory_utilization", "up", {"gpu_memory_utilization": "0.92"}, url=URL, slos=[]
    )
    assert command is not None
    assert "gpu_memory_utilization=0.92,0.95" in command


def test_a_present_value_beyond_the_usual_range_is_kept() -> None:
    def swept(knob: str, direction: str, present: str) -> str:
        return sweep_command(knob, direction, {knob: present}, url=URL, slos=[]) or ""

    assert swept("max_num_seqs", "up", "1").endswith(" max_num_seqs=1,2")
    assert swept("max_num_seqs", "up", "3").endswith(" max_num_seqs=3,4,6")
    assert swept("chunk_size", "down", "8192").endswith(" chunk_size=8192,6144,4096")


def test_peers_name_is_understood() -> None:
    command = sweep_command(
        "max_num_batched_tokens", "down", {"chunk_size": "512"}, url=URL, slos=[]
    )
    assert command is not None
    assert "chunk_size=512,384,256" in command


def test_no_command_where_a_sweep_cannot_turn_the_lever() -> None:
    assert sweep_command("replicas", "up", {}, url=URL, slos=[]) is None
    assert sweep_command("enable_prefix_caching", "up", {}, url=URL, slos=[]) is None
    at_limit = {"max_num_seqs": "256"}
    assert sweep_command("max_num_seqs", "up", at_limit, url=URL, slos=[]) is None


def test_a_setting_that_only_the_server_knows_gives_no_command() -> None:
    assert sweep_command("max_model_len", "down", {}, url=None, slos=[]) is None
    command = sweep_command("max_model_len", "down", {"max_model_len": "4096"}, url=None, slos=[])
    assert command is not None
    assert "max_model_len=4096,3072,2048" in command


def test_what_is_set_at_a_start_is_swept_on_a_server_that_is_started() -> None:
    told = {"num_gpu_blocks_override": "40", "max_num_seqs": "8", "max_model_len": "4096"}
    blocks = sweep_command("num_gpu_blocks_override", "up", told, url=URL, slos=[], engine="vllm")
    assert blocks == (
        "tuner sweep --target vllm --model MODEL --knob num_gpu_blocks_override=40,60,80"
    )
    seqs = sweep_command("max_num_seqs", "up", told, url=URL, slos=[], engine="vllm")
    assert seqs == "tuner sweep --target vllm --model MODEL --knob max_num_seqs=8,12,16"
    length = sweep_command("max_model_len", "down", told, url=URL, slos=[])
    assert length == "tuner sweep --target slotune --knob max_model_len=4096,3072,2048"
