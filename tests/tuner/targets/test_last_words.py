"""What the log of a dead server says."""

from __future__ import annotations

import pytest

from tuner.targets.last_words import classify, fault_line, worker_killed

VLLM_SETTINGS = (
    "(APIServer pid=7) INFO 11-30 13:56:14 [api_utils.py:286] non-default args: "
    "{'gpu_memory_utilization': 0.9, 'max_num_batched_tokens': 2048, 'max_num_seqs': 128}"
)
VLLM_DEATH = """\
(EngineCore pid=13250) ERROR 11-30 13:57:45 [multiproc_executor.py:315] Worker proc VllmWorker-0 \
died unexpectedly (exit code: -9), shutting down executor.
(EngineCore pid=13250) ERROR 11-30 13:57:45 [core.py:1510] RuntimeError: cancelled
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"""


@pytest.mark.parametrize(
    ("tail", "kind"),
    [
        ("ValueError: No available memory for the cache blocks.", "configuration"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", "configuration"),
        ("max_num_batched_tokens (64) is smaller than max_num_seqs (128)", "configuration"),
        ("OSError: [Errno 98] error while attempting to bind: address already in use", "transient"),
        ("vllm: error: unrecognized arguments: --frobnicate 3", "configuration"),
        ("launch_server.py: error: argument --dtype: invalid choice: 'int3'", "configuration"),
        ("something nobody has seen before", "transient"),
    ],
)
def test_failures_are_classified(tail: str, kind: str) -> None:
    assert classify(tail) == kind


def test_memory_that_another_process_has_yet_is_the_moments_fault() -> None:
    log = (
        "ValueError: Free memory on device (12.1/79.2 GiB) on startup is less than desired GPU "
        "memory utilization (0.9, 71.3 GiB).\nRuntimeError: Engine core initialization failed."
    )
    assert classify(log) == "transient"
    assert fault_line(log).startswith("ValueError: Free memory on device")


def test_settings_that_are_told_are_no_fault() -> None:
    log = f"{VLLM_SETTINGS}\n{VLLM_DEATH}"
    assert classify(log) == "transient"
    assert "VllmWorker-0 died unexpectedly" in fault_line(log)
    assert worker_killed(log)
    assert not worker_killed(VLLM_SETTINGS)


def test_a_port_that_was_told_and_taken_elsewhere_excuses_no_fault() -> None:
    log = "INFO Port 8000 is already in use, trying 8001\ntorch.OutOfMemoryError: out of memory"
    assert classify(log) == "configuration"


def test_the_cause_before_what_points_at_it() -> None:
    log = "ValueError: odd tokenizer\nRuntimeError: Engine failed. See root cause above.\nbye"
    assert fault_line(log) == "ValueError: odd tokenizer"
    assert classify(log) == "transient"


def test_without_a_fault_the_last_line_that_says_something() -> None:
    assert fault_line(f"{VLLM_SETTINGS}\n\nbye\n \n") == "bye"
    assert fault_line("") == "no output"
