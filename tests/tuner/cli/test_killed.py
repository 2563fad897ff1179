"""`kill -9` at any stage of `tuner optimize`: the second sitting measures what is missing, no more.

With SLOs that all configurations meet a study takes exactly the trials of its budget, so that a
trial that was lost, or measured twice, is one too few or too many.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from storage import Measurement, open_database
from tests.tuner.cli.running import start, stop_when, stored, tuner
from tests.tuner.fake_engine import FakeEngine, program
from tests.tuner.fake_server import Reply, answer

pytestmark = pytest.mark.timeout(300)

ORIGINAL = {"max_num_seqs": 16, "chunk_size": 2048, "gpu_memory_utilization": 0.9}
SHORT, LONG = "prompt=16,output=4,concurrency=8", "prompt=32,output=4,concurrency=8"
FAST = [
    "--duration", "500ms", "--warmup", "100ms", "--sampler", "tpe", "--knob", "chunk_size=16:2048",
    "--knob", "max_num_seqs=8,16",
]  # fmt: skip
ALL_MEET = ["--slo", "tpot_p95<5s"]


def measurements(folder: Path) -> list[Measurement]:
    with open_database(folder / "slotune.db", read_only=True) as database:
        study = database.get_study("s")
        assert study is not None
        assert study.state == "done"
        return database.list_measurements(study_id=study.id)


def parts(rows: list[Measurement]) -> dict[tuple[object, ...], list[str]]:
    """Trial → its loads, in order of time."""
    found: dict[tuple[object, ...], list[str]] = {}
    for row in rows:
        trial = (row.stage, row.seed, json.dumps(row.config, sort_keys=True))
        found.setdefault(trial, []).append(str((row.workload or {})["text"]))
    return found


def kill_and_go_on(
    folder: Path, url: str, words: list[str], again: list[str], reached: Callable[[], bool]
) -> list[Measurement]:
    """All measurements, of both sittings; what the first one stored comes first."""
    database = folder / "slotune.db"
    optimize = ["optimize", "--study", "s", "--url", url, "--json"]
    first = start(*optimize, *words, cwd=folder)
    stop_when(first, reached, signal.SIGKILL)
    before = stored(database, "s")
    second = tuner(*optimize, *again, cwd=folder)
    assert second.returncode in (0, 1), second.stderr
    assert json.loads(second.stdout)["baseline"]["config"] == ORIGINAL
    rows = measurements(folder)
    assert [row.stage for row in rows[: len(before)]] == before
    return rows


@pytest.mark.parametrize("stage", ["baseline", "sweep", "search", "confirm"])
def test_at_every_stage(tmp_path: Path, stage: str) -> None:
    """The server is left at a trial's settings; the second sitting knows what was its own."""
    words = ["--workload", SHORT, *FAST, *ALL_MEET, "--budget", "8 trials"]
    with FakeEngine(knobs=dict(ORIGINAL)) as server:
        rows = kill_and_go_on(
            tmp_path, server.url, words, [], lambda: stage in stored(tmp_path / "slotune.db", "s")
        )
        assert server.knobs == ORIGINAL
    assert len(parts(rows)) == len(rows) == 8
    assert [row.stage for row in rows].count("baseline") == 2
    assert rows[-1].stage == "confirm"


def test_between_the_loads_of_one_trial(tmp_path: Path) -> None:
    words = ["--workload", SHORT, "--workload", LONG, *FAST, *ALL_MEET, "--budget", "5 trials"]
    with FakeEngine(knobs=dict(ORIGINAL)) as server:
        rows = kill_and_go_on(
            tmp_path, server.url, words, [],
            lambda: len(stored(tmp_path / "slotune.db", "s")) == 1,
        )  # fmt: skip
        assert server.knobs == ORIGINAL
    assert [*parts(rows).values()] == [[SHORT, LONG]] * 5


class Crowded(FakeEngine):
    """10 ms more between tokens for each other request that runs: 3 of them meet 25 ms."""

    running = 0

    def _script(self, number: int, body: dict[str, Any]) -> Reply:
        return answer(body, first_s=0.01, gap_s=0.002 + 0.01 * (self.running - 1))

    async def _stream(self, *words: Any) -> None:
        await super()._stream(*words)
        self.running -= 1

    def _problem(self, body: dict[str, Any]) -> str:
        """Asked once of each request, before it is answered."""
        self.running += bool(body.get("stream"))
        return super()._problem(body)


def test_between_the_levels_of_a_capacity(tmp_path: Path) -> None:
    words = ["--maximize", "capacity", "--slo", "tpot_p95<25ms", "--budget", "5 trials"]
    words += ["--workload", "prompt=16,output=4,concurrency=2", *FAST]
    with Crowded(knobs=dict(ORIGINAL)) as server:
        rows = kill_and_go_on(
            tmp_path, server.url, words, [],
            lambda: len(stored(tmp_path / "slotune.db", "s")) == 2,
        )  # fmt: skip
        assert server.knobs == ORIGINAL
    trials = [*parts(rows).values()]
    assert [row.stage for row in rows[:3]] == ["baseline"] * 3
    assert len(trials[0]) > 2, "the trial that was begun is finished"
    assert len(trials) == 5
    assert all(len(set(levels)) == len(levels) for levels in trials)


def test_while_the_load_is_sized(tmp_path: Path) -> None:
    """Nothing is stored yet: the same command begins anew."""
    words = ["--workload", SHORT, "--calibrate", *FAST, "--slo", "tpot_p95<30ms"]
    words += ["--budget", "5 trials"]
    with FakeEngine(knobs=dict(ORIGINAL)) as server:
        rows = kill_and_go_on(tmp_path, server.url, words, words, lambda: len(server.requests) > 0)
        assert server.knobs == ORIGINAL
    assert len(parts(rows)) == len(rows)
    assert [row.stage for row in rows].count("baseline") == 2
    with open_database(tmp_path / "slotune.db", read_only=True) as database:
        (study,) = database.list_studies()
    assert (study.budget or {})["calibration_s"] >= 7.0


def servers(folder: Path) -> list[psutil.Process]:
    """Fake servers of this test, and shells that are about to become one."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(folder) in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("starts", [1, 2])
def test_while_a_server_starts(tmp_path: Path, starts: int) -> None:
    """The first one, and the one of the first other configuration; it goes with its tuner."""
    begun, script = tmp_path / "begun", tmp_path / "vllm"
    fake = program(tmp_path / "fake", "vllm")
    script.write_text(f'#!/bin/sh\necho >> {begun}\nsleep 0.5\nexec {fake} "$@"\n')
    script.chmod(0o755)
    words = ["--target", "vllm", "--model", "m", "--vllm-binary", str(script), "--study", "s"]
    load = ["--workload", SHORT, *FAST, *ALL_MEET, "--budget", "5 trials"]
    first = start("optimize", *words, *load, cwd=tmp_path)
    stop_when(
        first, lambda: begun.exists() and begun.read_text().count("\n") == starts, signal.SIGKILL
    )
    assert len(stored(tmp_path / "slotune.db", "s")) == 2 * (starts - 1)
    deadline_s = time.monotonic() + 20
    while servers(tmp_path):
        assert time.monotonic() < deadline_s, servers(tmp_path)
        time.sleep(0.1)
    second = tuner("optimize", *words, "--json", cwd=tmp_path)
    assert second.returncode in (0, 1), second.stderr
    rows = measurements(tmp_path)
    assert len(parts(rows)) == len(rows) == 5
    assert servers(tmp_path) == []


def test_what_a_start_takes_is_planned_with(tmp_path: Path) -> None:
    """It is seen at the baseline's, which is started once for both its runs."""
    begun, script = tmp_path / "begun", tmp_path / "vllm"
    fake = program(tmp_path / "fake", "vllm")
    script.write_text(f'#!/bin/sh\necho >> {begun}\nsleep 2\nexec {fake} "$@"\n')
    script.chmod(0o755)
    words = ["--target", "vllm", "--model", "m", "--vllm-binary", str(script), "--study", "s"]
    load = ["--workload", SHORT, *FAST, *ALL_MEET, "--budget", "5 trials"]
    done = tuner("optimize", *words, *load, cwd=tmp_path)
    assert done.returncode in (0, 1), done.stderr
    assert "starting vllm for the baseline; logs are in .slotune/logs" in done.stderr
    rows = measurements(tmp_path)
    assert begun.read_text().count("\n") == starts_of([row.config for row in rows])
    with open_database(tmp_path / "slotune.db", read_only=True) as database:
        (study,) = database.list_studies()
    budget = study.budget or {}
    assert 2 <= budget["start_s"] == budget["change_s"]


def starts_of(configs: list[dict[str, Any]]) -> int:
    return sum(at == 0 or configs[at] != configs[at - 1] for at in range(len(configs)))


def test_a_start_that_fails_is_not_planned_with(tmp_path: Path) -> None:
    """Nothing was seen of what one takes: a study that goes on looks again."""
    script = tmp_path / "vllm"
    script.write_text("#!/bin/sh\nexit 1\n")
    script.chmod(0o755)
    words = ["--target", "vllm", "--model", "m", "--vllm-binary", str(script), "--study", "s"]
    failed = tuner("optimize", *words, "--workload", SHORT, *FAST, *ALL_MEET, cwd=tmp_path)
    assert failed.returncode == 2
    assert "the baseline failed" in failed.stderr
    with open_database(tmp_path / "slotune.db", read_only=True) as database:
        (study,) = database.list_studies()
    assert "start_s" not in (study.budget or {})
