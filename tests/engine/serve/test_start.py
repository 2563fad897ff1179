"""Settings that do not fit the model or the machine: one sentence, before the memory is taken."""

from __future__ import annotations

import errno
import io
import json
import resource
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch

from engine.config import EngineConfig
from engine.errors import EngineConfigError
from engine.runner import device
from engine.serve import server
from engine.serve.options import ServeOptions
from engine.serve.start import build_service, ready_line, run
from tests.engine.serve.harness import byte_tokenizer
from tests.engine.tiny_models import save_folder, tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = save_folder(tiny_model("llama"), tmp_path_factory.mktemp("tiny"))
    byte_tokenizer().backend.save(str(path / "tokenizer.json"))
    return path


def refusal(path: Path, **settings: Any) -> str:
    config = EngineConfig(device="cpu", **settings).checked()
    with pytest.raises(EngineConfigError) as refused:
        build_service(config, ServeOptions(), path)
    return str(refused.value)


def test_limits_whose_step_cannot_fit(folder: Path) -> None:
    assert "--chunk-size-limit (1000000000" in refusal(folder, chunk_size_limit=10**12)
    assert "--max-num-seqs-limit (1000000000" in refusal(folder, max_num_seqs_limit=10**12)


def test_a_context_longer_than_the_models(folder: Path) -> None:
    assert "must not exceed the model's own 512" in refusal(folder, max_model_len=10**12)


def test_what_runs_is_named_and_the_device_gives_the_defaults(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "choose", lambda name: torch.device("cuda"))
    config = EngineConfig(not_given=frozenset({"chunk_size"}), max_num_seqs=8, num_kv_blocks=4)
    service = build_service(config.checked(), ServeOptions(), folder)
    assert service.config.model == service.served_model_name == folder.name
    assert service.knobs.values.chunk_size == 8192
    assert service.knobs.values.max_num_seqs == 8
    line = ready_line(service, "127.0.0.1", 8000)
    assert f"model={folder.name} max_num_seqs=8 chunk_size=8192 kv_blocks=4" in line
    assert f"attention={service.facts['attention_backend']}" in line


def test_memory_that_is_not_there(folder: Path) -> None:
    said = refusal(folder, device_memory_bytes=2**60, max_num_seqs_limit=1, chunk_size_limit=1)
    assert "the memory does not suffice" in said


def test_an_unknown_architecture_is_named_before_its_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    writer = gguf.GGUFWriter(str(path), "gemma")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert "architecture 'gemma'" in refusal(path)


def test_a_chat_template_that_is_no_text(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": 5}))
    try:
        assert "chat_template must be a text, is 5" in refusal(folder)
    finally:
        (folder / "tokenizer_config.json").unlink()


def test_as_many_connections_as_the_system_grants() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 512), hard))
    try:
        with server.bind("127.0.0.1", 0) as listener:
            server.listen(listener)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_requests_are_served_although_stdout_is_full(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = EngineConfig(model=str(folder), num_kv_blocks=8)
    service = build_service(config, ServeOptions(), folder)
    told: list[int] = []

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    class Once(server.Server):
        async def main_loop(self) -> None:
            told.append(len(self.servers))

    monkeypatch.setattr(server, "Server", Once)
    with server.bind("127.0.0.1", 0) as listener:
        monkeypatch.setattr("sys.stdout", Full())
        assert run(service, listener, host="127.0.0.1") == 0
    assert told == [1]
