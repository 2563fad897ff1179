"""lm_eval's own local-completions model against our engine: the same answers as `tuner quality`.

lm_eval runs as a program, without network: a local task, local data, a local tokenizer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.models.locate import locate
from tests.servers import Program, running
from tuner.endpoint import Endpoint
from tuner.quality import QualityResult, read_task, run_task

ROOT = Path(__file__).parents[3]
LM_EVAL = Path(sys.prefix) / "lm-eval"
NUM_CHOICES, NUM_MATCHES = 24, 12
BATCH_SIZE = 4
"""Prompts a request: lm_eval sends them as a list of token-id lists."""
STOP = {"\n", ".", ","}

pytestmark = [
    pytest.mark.model,
    pytest.mark.e2e,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not (LM_EVAL / "lm_eval").is_dir(), reason="lm_eval is not installed: run make lm-eval"
    ),
]

CHOICES_YAML = r"""
task: made_choices
dataset_path: json
dataset_kwargs: {data_files: {test: CHOICES}}
test_split: test
output_type: multiple_choice
doc_to_text: "Question: {{question}}\nAnswer:"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: acc}, {metric: acc_norm}]
"""
MATCHES_YAML = r"""
task: made_matches
dataset_path: json
dataset_kwargs: {data_files: {test: MATCHES}}
test_split: test
output_type: generate_until
doc_to_text: "{{prompt}}"
doc_to_target: "{{target}}"
generation_kwargs: {until: ["\n", ".", ","], max_gen_toks: 8}
filter_list:
  - {name: bare, filter: [{function: remove_whitespace}, {function: take_first}]}
metric_list: [{metric: exact_match}]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Items of the carried task, twice: as ours and as lm_eval's, and a tokenizer."""
    import transformers

    folder = tmp_path_factory.mktemp("lm_eval")
    lines = (ROOT / "fixtures" / "quality-general.jsonl").read_text().splitlines()
    items = [json.loads(line) for line in lines]
    choices = [item for item in items if "choices" in item][:NUM_CHOICES]
    matches = [item for item in items if set(item.get("stop", [])) == STOP][:NUM_MATCHES]
    assert (len(choices), len(matches)) == (NUM_CHOICES, NUM_MATCHES)
    write(folder / "task.jsonl", choices + matches)
    for name, part, yaml in (
        ("choices", choices, CHOICES_YAML), ("matches", matches, MATCHES_YAML),
    ):  # fmt: skip
        data = write(folder / f"{name}.jsonl", part)
        (folder / f"{name}.yaml").write_text(yaml.replace(name.upper(), str(data)))
    gguf = locate("")
    tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.save_pretrained(folder / "tokenizer")
    return folder


def write(file: Path, items: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(item) + "\n" for item in items))
    return file


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Program]:
    """In float32, where what else is in a step moves no likelihood across another."""
    flags = ("--dtype", "float32", "--max-model-len", "512", "--device-memory", "2GiB")
    with running("engine", "serve", "--port", "0", *flags, log=folder / "engine.log") as program:
        yield program


@pytest.fixture(scope="module")
def ours(folder: Path, server: Program) -> QualityResult:
    return run_task(Endpoint(server.url).probe(), read_task(folder / "task.jsonl"))


def lm_eval(folder: Path, server: Program, model: str) -> dict[str, Any]:
    """task → metric → value, as lm_eval wrote them."""
    arguments = (
        f"model={model},base_url={server.url}/v1/completions,tokenizer={folder / 'tokenizer'},"
        "tokenizer_backend=huggingface,num_concurrent=2,max_retries=1"
    )
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hf")}
    done = subprocess.run(
        [
            sys.executable, "-m", "lm_eval", "--model", "local-completions",
            "--model_args", arguments, "--tasks", "made_choices,made_matches",
            "--include_path", str(folder), "--batch_size", str(BATCH_SIZE),
            "--output_path", str(folder / "out"),
        ],
        env=os.environ | offline | {"PYTHONPATH": str(LM_EVAL), "OMP_NUM_THREADS": "1"},
        cwd=folder, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (file,) = (folder / "out").rglob("results_*.json")
    return dict(json.loads(file.read_text())["results"])


def test_the_same_accuracy(folder: Path, server: Program, ours: QualityResult) -> None:
    assert ours.num_failed == 0
    model = Endpoint(server.url).probe().model
    theirs = lm_eval(folder, server, model)
    choices, matches = ours.results[:NUM_CHOICES], ours.results[NUM_CHOICES:]
    right = sum(one.right for one in choices)
    assert 0.25 * NUM_CHOICES < right < NUM_CHOICES, "neither guessing nor all right: it can differ"
    assert theirs["made_choices"]["acc,none"] == right / NUM_CHOICES
    by_length = sum(bool(one.right_by_length) for one in choices)
    assert theirs["made_choices"]["acc_norm,none"] == by_length / NUM_CHOICES
    matched = sum(one.right for one in matches)
    assert 0 < matched < NUM_MATCHES
    assert theirs["made_matches"]["exact_match,bare"] == matched / NUM_MATCHES
