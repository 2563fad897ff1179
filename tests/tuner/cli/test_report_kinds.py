"""`tuner report` of sweeps and verifications, with bundles; and of what it cannot show."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from storage import open_database
from storage.location import parse
from tests.tuner.cli.running import tuner
from tests.tuner.cli.test_report import body, refused
from tests.tuner.fake_engine import FakeEngine
from tests.tuner.report.stored_studies import (
    by_hand,
    diagnose_first,
    pairs,
    store,
    store_sweep,
    store_verification,
    swept,
)
from tuner.cli.main import main

Capture = pytest.CaptureFixture[str]
KNOBS = {"max_num_seqs": 16, "chunk_size": 2048, "gpu_memory_utilization": 0.9}
FAST = ["--workload", "prompt=16,output=4,concurrency=8", "--duration", "600ms", "--warmup", "0s"]


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Study name → its database."""
    folder = tmp_path_factory.mktemp("kinds")
    store_sweep(folder / "sweep.db", swept())
    store_verification(folder / "verify.db", pairs())
    diagnose_first(folder / "verify.db", name="v")
    return {"s": str(folder / "sweep.db"), "v": str(folder / "verify.db")}


@pytest.mark.parametrize(
    ("name", "told"),
    [("s", "Swept chunk_size: a value is shown"), ("v", "chunk_size 2048 → 256, judged by")],
)
def test_text_json_page_and_bundle_tell_the_same(
    databases: dict[str, str], tmp_path: Path, capsys: Capture, name: str, told: str
) -> None:
    stored = [name, "--database", databases[name]]
    bundle, page, again = (str(tmp_path / part) for part in ("b.json.gz", "a.html", "b.html"))
    assert main(["report", *stored]) == 0
    text = capsys.readouterr().out
    assert text.startswith(told)
    assert main(["report", *stored, "--html", page, "--bundle", bundle]) == 0
    assert main(["report", "--from-bundle", bundle, "--html", again]) == 0
    assert body(Path(page)) == body(Path(again))
    capsys.readouterr()
    assert main(["report", "--from-bundle", bundle]) == 0
    assert capsys.readouterr().out == text
    assert main(["report", *stored, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert main(["report", "--from-bundle", bundle, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert first["study"] == name


def test_a_name_that_is_none_is_told_with_those_that_are_near(
    tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "s.db"
    with open_database(path) as database:
        for number in range(8):
            database.create_study(f"optimize-{number}")
    assert "did you mean optimize-3" in refused(capsys, "optimise-3", "--database", str(path))
    several = refused(capsys, "optimize-", "--database", str(path))
    assert "optimize-7 and 3 more (`tuner studies` lists them)?" in several
    other = refused(capsys, "zzz", "--database", str(path))
    assert "it has: optimize-3, optimize-4" in other
    open_database(tmp_path / "e.db").close()
    assert "it holds no study" in refused(capsys, "a", "--database", str(tmp_path / "e.db"))


def test_nothing_that_is_read_is_written_over(
    databases: dict[str, str], tmp_path: Path, capsys: Capture
) -> None:
    bundle, page = str(tmp_path / "b.json"), str(tmp_path / "a.html")
    database = databases["s"]
    before = Path(database).read_bytes()
    stored = ["s", "--database", database]
    assert "this file is the database" in refused(capsys, *stored, "--html", database)
    assert "this file is the database" in refused(capsys, *stored, "--bundle", database)
    url = ["s", "--database", f"sqlite:///{database}", "--html", database]
    assert "this file is the database" in refused(capsys, *url)
    both = refused(capsys, *stored, "--html", page, "--bundle", page)
    assert "this file is that of --html" in both
    assert main(["report", *stored, "--bundle", bundle]) == 0
    capsys.readouterr()
    told = refused(capsys, "--from-bundle", database)
    assert "is a database, not a bundle: `tuner report STUDY --database " in told
    same = refused(capsys, "--from-bundle", bundle, "--html", bundle)
    assert "this file is that of --from-bundle" in same
    assert Path(database).read_bytes() == before
    assert json.loads(Path(bundle).read_text())["study"]["name"] == "s"
    assert not Path(page).exists()


def test_a_page_that_cannot_be_written_leaves_nothing(
    databases: dict[str, str], tmp_path: Path, capsys: Capture
) -> None:
    stored = ["s", "--database", databases["s"]]
    folder = tmp_path / "folder"
    folder.mkdir()
    assert "cannot be written" in refused(capsys, *stored, "--html", str(folder))
    assert "cannot be written" in refused(capsys, *stored, "--html", "/dev/full")
    assert "cannot be written" in refused(capsys, *stored, "--bundle", "/proc/x.json")
    assert list(tmp_path.rglob("*")) == [folder]


def test_an_older_schema_is_told_and_left_as_it_is(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "s.db"
    store(path, by_hand())
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE slotune_schema_version SET version_num = '0001'")
    told = refused(capsys, "s", "--database", str(path))
    assert "has the older schema 0001: any command that stores something upgrades it" in told
    assert parse(path).path == path


def test_a_bundle_of_the_first_format_is_reported(tmp_path: Path, capsys: Capture) -> None:
    store(tmp_path / "s.db", by_hand())
    file = tmp_path / "b.json"
    assert main(["report", "s", "--database", str(tmp_path / "s.db"), "--bundle", str(file)]) == 0
    document = json.loads(file.read_text())
    old = {k: v for k, v in document.items() if k not in ("findings", "verifications")}
    file.write_text(json.dumps(old | {"slotune_study": 1}))
    capsys.readouterr()
    assert main(["report", "--from-bundle", str(file)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("A better configuration is confirmed")
    assert "its bundle has format 1" in text


@pytest.mark.timeout(200)
def test_what_sweep_and_verify_have_printed_is_reported_again(tmp_path: Path) -> None:
    with FakeEngine(knobs=dict(KNOBS)) as server:
        words = ["--url", server.url, *FAST, "--slo", "tpot_p95<25ms"]
        first = tuner(
            "sweep", *words, "--knob", "chunk_size=32,512,2048", "--study", "s", cwd=tmp_path
        )
        second = tuner("verify", *words, "--knob", "chunk_size=64", "--json", cwd=tmp_path)
    again = tuner("report", "s", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    table = first.stdout.partition("  study s")[0].strip()
    assert table in again.stdout
    found = json.loads(second.stdout)
    told = json.loads(tuner("report", found["study"], "--json", cwd=tmp_path).stdout)
    assert {key: told[key] for key in found} == found
    assert told["why_no_findings"].startswith("nothing fires")


@pytest.mark.timeout(200)
def test_the_baseline_of_optimize_is_diagnosed_and_stored(tmp_path: Path) -> None:
    with FakeEngine(knobs=dict(KNOBS)) as server:
        done = tuner(
            "optimize", "--url", server.url, *FAST, "--slo", "tpot_p95<25ms", "--sampler", "tpe",
            "--knob", "chunk_size=16:2048", "--budget", "5 trials", "--study", "s", cwd=tmp_path,
        )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    assert done.stderr.count("diagnosis of the baseline: ") == 1
    with open_database(tmp_path / "slotune.db", read_only=True) as database:
        rows = database.list_measurements()
        found = {row.id: database.list_findings(measurement_id=row.id) for row in rows}
    first, *others = rows
    assert first.stage == "baseline"
    assert len(found[first.id]) > 5
    assert not any(found[row.id] for row in others)
    told = json.loads(tuner("report", "s", "--json", cwd=tmp_path).stdout)
    assert told["findings"] is not None
