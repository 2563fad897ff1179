"""What --settings FILE may tell of a server: its flags as they are written, or TOML."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.cli.main import main
from tuner.diagnosis.settings_file import file_settings
from tuner.errors import UserError

UNIT = """\
[Service]
# started by hand before
ExecStart=/usr/bin/vllm serve meta/llama --host 0.0.0.0 --port 8000 \\
    --max-num-seqs 256 --max-num-batched-tokens=8192 \\
    --gpu-memory-utilization 0.92 --no-enable-prefix-caching
Restart=always
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "settings"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (UNIT, {"max_num_seqs": "256", "chunk_size": "8192", "gpu_memory_utilization": "0.92",
                "enable_prefix_caching": "false"}),
        ("--max-num-seqs 64", {"max_num_seqs": "64"}),
        ("engine serve --max-num-seqs 64 --chunk-size 8k", {"max_num_seqs": "64",
                                                            "chunk_size": "8000"}),
        ("python -m sglang.launch_server --max-running-requests 48 --chunked-prefill-size 2048 "
         "--disable-radix-cache",
         {"max_num_seqs": "48", "chunk_size": "2048", "enable_prefix_caching": "false"}),
        ("vllm serve m --kv-cache-memory-bytes 8G --tensor-parallel-size 2 --dtype auto "
         "--pipeline-parallel-size 4 --data-parallel-size 8 --max-model-len auto",
         {"kv_cache_memory_bytes": str(8 * 2**30), "tensor_parallel_size": "2",
          "pipeline_parallel_size": "4", "data_parallel_size": "8"}),
        ("vllm serve m --max-num-seqs 64 --max-model-len -1", {"max_num_seqs": "64"}),
        ("sglang serve --tp-size 2 --chunked-prefill-size -1", {"tensor_parallel_size": "2"}),
        ("max_num_seqs = 256\nchunk_size = 8192\n", {"max_num_seqs": "256", "chunk_size": "8192"}),
        ("max_num_batched_tokens = 8192\nenable_prefix_caching = true\ndevice = 'cuda'\n",
         {"chunk_size": "8192", "enable_prefix_caching": "true", "device": "cuda"}),
    ],
)  # fmt: skip
def test_settings_are_taken(text: str, told: dict[str, str], tmp_path: Path) -> None:
    assert file_settings(written(tmp_path, text)) == told


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no setting that the diagnosis knows"),
        ("vllm serve m --port 8000", "holds no setting that the diagnosis knows"),
        ("max_num_seqs 256", "neither flags (--max-num-seqs 256) nor TOML"),
        ("max_num_seq = 256", "max_num_seq: the diagnosis knows no such setting; did you mean"),
        ("max_num_seqs = -1", "max_num_seqs: '-1' is not a whole number above 0"),
        ("[server]\nmax_num_seqs = 1", "server is no single value"),
        ("--max-num-seqs many", "--max-num-seqs takes a whole number, got 'many'"),
        ("--max-num-seqs '64", "not the words of a command line"),
    ],
)
def test_what_is_wrong_is_told_with_the_file(text: str, says: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UserError, match=f"^{path}") as refused:
        file_settings(path)
    assert says in str(refused.value)


def test_the_command_takes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "max_num_seq = 1")
    words = ["diagnose", "--url", "http://127.0.0.1:9", "--quiet", "--settings", str(path)]
    assert main(words) == 2
    assert f"{path}: max_num_seq: the diagnosis knows no" in capsys.readouterr().err
