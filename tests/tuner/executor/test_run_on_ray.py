"""`tuner optimize --executor ray` without Ray: names of studies, the state that each end leaves."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from storage import open_database
from tuner.cli import main, run_on_ray
from tuner.cli.common import ProgressLine
from tuner.executor import cluster
from tuner.executor.crew import Crew
from tuner.executor.places import Machine, Share
from tuner.executor.worker import Heard

WORDS = ["optimize", "--executor", "ray", "--target", "vllm", "--model", "m",
         "--vllm-binary", "/far/vllm", "--slo", "ttft_p95<1s", "--quiet"]  # fmt: skip


class Seated:
    """A worker that ends at once."""

    def poll(self) -> Heard:
        return Heard([], 0, "the report\n")

    def stop(self) -> None: ...


class TwoPlaces:
    """A cluster of two machines; orders: what its workers were given."""

    def __init__(self) -> None:
        self.orders: list[dict[str, Any]] = []

    def machines(self) -> list[Machine]:
        return [Machine(address, 2.0, 1.0) for address in ("10.0.0.1", "10.0.0.2")]

    def all_here(self) -> bool:
        return True

    def seat(self, command: Sequence[str], order: str, share: Share) -> Seated:
        self.orders.append(json.loads(order)["options"])
        return Seated()


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TwoPlaces:
    found = TwoPlaces()

    @contextlib.contextmanager
    def joined(address: str | None) -> Iterator[TwoPlaces]:
        yield found

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_on_ray, "joined", joined)
    monkeypatch.setattr(run_on_ray, "find_ray", lambda: None)
    return found


def test_only_the_workers_of_one_command_share_a_study_without_a_name(
    places: TwoPlaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = SimpleNamespace(strftime=lambda *_: "optimize-now", gmtime=time.gmtime)
    monkeypatch.setattr("tuner.cli.invocation.time", at_once)
    for _ in range(2):
        assert main([*WORDS, "--workers", "2"]) == 0
    first, again, second, other = [order["study"] for order in places.orders]
    assert first == again
    assert second == other
    assert first != second


def test_a_study_that_was_named_is_shared_under_its_name(places: TwoPlaces) -> None:
    assert main([*WORDS, "--workers", "2", "--study", "s"]) == 0
    assert [order["study"] for order in places.orders] == ["s", "s"]


class Interrupted(Crew):
    """Ctrl-C while it is heard, and again while its end is waited for."""

    def __init__(self) -> None:
        super().__init__({}, lambda name, line: None, "")

    def run(self) -> Any:
        raise KeyboardInterrupt

    def stop(self) -> bool:
        raise KeyboardInterrupt


def test_a_second_ctrl_c_leaves_the_study_stopped(tmp_path: Path) -> None:
    with open_database(tmp_path / "s.db") as database:
        database.create_study("s", state="running")
        with pytest.raises(KeyboardInterrupt):
            run_on_ray._run(
                argparse.Namespace(), "s", database, Interrupted(), ProgressLine(quiet=True)
            )
        study = database.get_study("s")
        assert study is not None
        assert study.state == "stopped"


class Init:
    """Ray's init: what it was called with, refused as it refuses them where a cluster is there."""

    exceptions = SimpleNamespace(RayError=RuntimeError)

    def __init__(self, *, is_there: bool) -> None:
        self.is_there, self.joined_with = is_there, dict[str, Any]()

    def init(self, **options: Any) -> None:
        if self.is_there and "object_store_memory" in options:
            raise ValueError("object_store_memory must not be provided")
        self.joined_with = options


@pytest.mark.parametrize(
    ("address", "environment", "is_there", "small"),
    [
        (None, "", False, True),
        (None, "", True, False),
        ("local", "10.0.0.1:6379", False, True),
        (None, "local", False, True),
        (None, "10.0.0.1:6379", True, False),
        ("10.0.0.1:6379", "", True, False),
    ],
)
def test_a_new_cluster_is_a_small_one_and_another_keeps_its_own(
    monkeypatch: pytest.MonkeyPatch,
    address: str | None,
    environment: str,
    is_there: bool,
    small: bool,
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", environment)
    ray = Init(is_there=is_there)
    cluster._join(ray, address)
    assert ("object_store_memory" in ray.joined_with) == small
    assert (ray.joined_with.get("include_dashboard") is False) == small
