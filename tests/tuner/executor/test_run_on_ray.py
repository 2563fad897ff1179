"""`tuner optimize --executor ray` without Ray: names of studies, the state that each end leaves."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from storage import Study, open_database
from tests.tuner.cli.running import ROOT
from tests.tuner.fake_engine import program
from tuner.cli import main, run_on_ray
from tuner.cli.common import ProgressLine
from tuner.cli.ray_worker import MODULE
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
    """A cluster of two machines; orders: what its workers were given; studies: what was stored of
    the study when each was started."""

    def __init__(self) -> None:
        self.orders: list[dict[str, Any]] = []
        self.studies: list[Study | None] = []

    def machines(self) -> list[Machine]:
        return [Machine(address, 2.0, 1.0) for address in ("10.0.0.1", "10.0.0.2")]

    def all_here(self) -> bool:
        return True

    def seat(self, command: Sequence[str], order: str, share: Share) -> Seated:
        self.orders.append(json.loads(order))
        with open_database(self.orders[-1]["database"], read_only=True) as database:
            self.studies.append(database.get_study(self.orders[-1]["study"]))
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


def test_the_study_is_there_before_the_first_worker(
    places: TwoPlaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--workload", "prompt=8,output=4,rate=2", "--seed", "7", "--budget", "9 trials"]
    words = [*WORDS, *words, "--knob", "chunk_size=64:2048"]
    monkeypatch.setattr(sys, "argv", ["tuner", *words])
    assert main(words) == 0
    first = places.studies[0]
    assert first is not None
    assert (first.state, first.seed, first.slos) == ("running", 7, "ttft_p95<1s")
    assert first.command == shlex.join(["tuner", *words])
    assert (first.workload or {})["text"] == "prompt=8,output=4,rate=2"
    assert (first.space or {})["axes"] == ["chunk_size=64:2048"]
    assert (first.space or {})["objectives"] == ["maximize output_tps"]
    assert (first.budget or {})["text"] == "9 trials"
    assert (first.budget or {})["window_s"] == 15.0
    assert first.target is None  # a server's settings are told by one that runs
    assert [study and study.id for study in places.studies] == [first.id] * 2
    with open_database("slotune.db", read_only=True) as database:
        assert [study.state for study in database.list_studies()] == ["failed"]  # nobody ended it


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--knob", "chunk_size=few"], "'few' is no number"),
        (["--knob", "chunk_size=64:2048", "--constraint", "chunk_sise > 2"], "chunk_sise"),
        (["--knob", "dtype=auto", "--target", "slotune", "--constraint", "3 +"], "--constraint"),
        (["--target", "slotune", "--knob", "max_num_seqs=64:8"], "must run from low to high"),
        (["--budget", "soon"], "--budget"),
        (["--workload", "rate=fast"], "rate"),
        (["--quality", "/no/such/file"], "/no/such/file"),
        (["--apply"], "--apply needs --url"),
        (["--minimize", "capacity"], "capacity"),
        (["--workers", "9"], "--workers 9"),
    ],
)
def test_what_is_wrong_is_said_before_any_worker_starts(
    places: TwoPlaces, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert main([*WORDS, *words]) == 2
    seen = capsys.readouterr().err
    assert seen.startswith("tuner optimize: ")
    assert seen.count("\n") == 1
    assert told in seen
    assert places.orders == []
    with open_database("slotune.db", read_only=True) as database:
        assert database.list_studies() == []


def worker(order: dict[str, Any], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", MODULE], input=json.dumps(order), text=True, capture_output=True,
        cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=120, check=False,
    )  # fmt: skip


def test_a_worker_joins_and_never_begins_a_study(places: TwoPlaces, tmp_path: Path) -> None:
    assert main([*WORDS, "--workers", "1"]) == 0
    done = worker(places.orders[0] | {"database": str(tmp_path / "other.db")}, tmp_path)
    assert done.returncode == 2
    assert "which this worker was to join, is not in" in done.stderr
    with open_database(tmp_path / "other.db", read_only=True) as database:
        assert database.list_studies() == []


@pytest.mark.timeout(200)
def test_the_first_worker_fills_in_what_only_a_server_tells(
    places: TwoPlaces, tmp_path: Path
) -> None:
    words = [
        "--vllm-binary", str(program(tmp_path / "vllm", "vllm")), "--duration", "500ms",
        "--warmup", "100ms", "--sampler", "tpe", "--slo", "tpot_p95<500ms", "--budget", "5 trials",
        "--knob", "chunk_size=64,128", "--calibrate", "--workload",
        "prompt=16,output=4,concurrency=2",
    ]  # fmt: skip
    assert main([*WORDS, *words, "--workers", "1"]) == 0
    assert places.studies[0] is not None
    assert places.studies[0].workload is None
    done = worker(places.orders[0], tmp_path)
    assert done.returncode in (0, 1), done.stderr
    with open_database("slotune.db", read_only=True) as database:
        (study,) = database.list_studies()
        rows = database.list_measurements(study_id=study.id)
    assert study.state == "done"
    assert (study.target or {})["original_config"] == rows[0].config
    assert (study.workload or {}) == rows[0].workload
    assert (study.budget or {})["calibration_s"] > 0
    assert study.id == places.studies[0].id


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
