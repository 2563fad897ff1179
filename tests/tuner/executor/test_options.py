"""`--executor ray`: what is refused before anything starts, none of it needing Ray."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import open_database
from tests.tuner.cli.running import ROOT, tuner
from tuner.cli import main
from tuner.cli.run_on_ray import _check_reach
from tuner.errors import UserError
from tuner.executor.cluster import Cluster, joined


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--executor", "ray", "--url", "http://h:8000"], "leave out --url"),
        (["--workers", "2"], "--workers is for --executor ray: give that too"),
        (["--cpus-per-worker", "2"], "--cpus-per-worker is for --executor ray"),
        (["--executor", "ray", "--workers", "0"], "must be at least 1, got 0"),
        (["--executor", "ray", "--gpus-per-worker", "-1"], "must be at least 0, got -1"),
        (["--executor", "ray", "--cpus-per-worker", "nan"], "must be a number of CPUs"),
        (["--executor", "ray", "--apply"], "--apply needs --url"),
        (["--executor", "ray", "--slo", "ttft_p95<500"], "unit"),
        (["--executor", "ray", "--target", "vllm"], "--target vllm needs --model"),
        (
            [
                "--executor",
                "ray",
                "--target",
                "vllm",
                "--model",
                "m",
                "--vllm-binary",
                "/far/vllm",
                "--knob",
                "gpu_memory_utilization=0.5,7",
            ],
            "gpu_memory_utilization",
        ),
    ],
)
def test_bad_input_is_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["optimize", *words])
    except SystemExit as stopped:  # what argparse refuses
        code = int(stopped.code or 0)
    out, err = capsys.readouterr()
    assert (code, out) == (2, ""), err
    assert says in err
    assert "Traceback" not in err


def test_without_ray_one_sentence_says_how_to_install_it(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise ModuleNotFoundError(\"No module named 'ray'\")\n")
    path = {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    done = tuner("optimize", "--executor", "ray", cwd=tmp_path, also=path)
    assert done.returncode == 2
    assert done.stderr == ("tuner optimize: --executor ray needs Ray: pip install 'slotune[ray]'\n")
    assert tuner("optimize", "--help", cwd=tmp_path, also=path).returncode == 0


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("head", "'head': write HOST:PORT of the head node"),
        ("127.0.0.1:9", "127.0.0.1:9: no Ray cluster answers there"),
        ("ray://127.0.0.1:9", "no Ray cluster answers there"),
    ],
)
def test_where_nobody_answers_is_told_at_once(address: str, says: str) -> None:
    with pytest.raises(UserError, match=says), joined(address):
        pass


class FakeRay:
    """What Cluster asks Ray of its machines, this one being 10.0.0.1."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses
        self.util = self

    def get_node_ip_address(self) -> str:
        return "10.0.0.1"

    def nodes(self) -> list[dict[str, object]]:
        up = [
            {"Alive": True, "NodeManagerAddress": address, "Resources": {"CPU": 4.0, "GPU": 1.0}}
            for address in self.addresses
        ]
        return [*up, {"Alive": False, "NodeManagerAddress": "10.0.0.9", "Resources": {}}]


def test_a_file_is_no_database_for_workers_on_other_machines(tmp_path: Path) -> None:
    with open_database(tmp_path / "s.db") as database:
        _check_reach(database, Cluster(FakeRay("10.0.0.1", "10.0.0.1")))
        with pytest.raises(UserError, match=r"a file of this machine.*give --database postgresql"):
            _check_reach(database, Cluster(FakeRay("10.0.0.1", "10.0.0.2")))


def test_only_machines_that_are_up_count() -> None:
    found = Cluster(FakeRay("10.0.0.1", "10.0.0.2")).machines()
    assert [machine.address for machine in found] == ["10.0.0.1", "10.0.0.2"]
    assert [(machine.cpus, machine.gpus) for machine in found] == [(4, 1), (4, 1)]
