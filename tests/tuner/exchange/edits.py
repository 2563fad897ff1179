"""Bundles edited by hand, and what is said of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner.errors import UserError
from tuner.exchange.bundle import read_bundle

Edit = Callable[[dict[str, Any]], object]


def written(document: Any, tmp_path: Path) -> Path:
    path = tmp_path / "b.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def refusal(path: Path) -> str:
    """The one sentence."""
    with pytest.raises(UserError) as caught:
        read_bundle(path)
    text = str(caught.value)
    assert "\n" not in text
    assert path.name in text
    return text


def drop(*path: Any) -> Edit:
    return lambda document: _at(document, path[:-1]).pop(path[-1])


def put(*path: Any, value: Any) -> Edit:
    return lambda document: _at(document, path[:-1]).__setitem__(path[-1], value)


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        document = document[part]
    return document
