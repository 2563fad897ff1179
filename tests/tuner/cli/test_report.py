"""`tuner report` and `tuner optimize --html`: pages, bundles, and every file that is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage import open_database
from tests.tuner.cli.running import tuner
from tests.tuner.fake_engine import FakeEngine
from tests.tuner.report.stored_studies import broken, by_hand, measured, store
from tuner.cli.common import EXIT_FAULT
from tuner.cli.main import main
from tuner.report.html import study_page

ORIGINAL = {"max_num_seqs": 16, "chunk_size": 2048, "gpu_memory_utilization": 0.9}

COMMAND = "tuner optimize --url http://h:1 --knob chunk_size=1:8192"

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "s.db"
    store(path, by_hand(), name="night", command=COMMAND)
    store(path, [], name="empty", state="stopped")
    return str(path)


def refused(capsys: Capture, *words: str) -> str:
    """What stands on stderr: one sentence."""
    assert main(["report", *words]) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err.startswith("tuner report: ")
    assert seen.err.count("\n") == 1
    return seen.err


def body(path: Path) -> str:
    page = path.read_text()
    return page[: page.index(" · page made")]


def test_tells_a_study_in_the_terminal(database: str, capsys: Capture) -> None:
    assert main(["report", "night", "--database", database]) == 0
    text = capsys.readouterr().out
    assert text.startswith("A better configuration is confirmed: meets the SLOs")
    assert "what ttft_p95<500ms costs" in text
    assert f"began as: {COMMAND}\n" in text
    assert "go on with" not in text  # the server and database of a report are not known


def test_a_study_without_a_measurement_has_no_answer(database: str, capsys: Capture) -> None:
    assert main(["report", "empty", "--database", database]) == 0
    assert "no data: the study is stopped and holds no measurement" in capsys.readouterr().out


def test_page_and_bundle_hold_the_same(database: str, tmp_path: Path, capsys: Capture) -> None:
    page, again, file = tmp_path / "a.html", tmp_path / "b.html", tmp_path / "b.json.gz"
    words = ["--database", database, "--html", str(page), "--bundle", str(file)]
    assert main(["report", "night", *words]) == 0
    assert main(["report", "--from-bundle", str(file), "--html", str(again)]) == 0
    assert capsys.readouterr().out == ""
    assert body(page) == body(again)
    assert "study night" in body(page)
    assert file.read_bytes()[:2] == b"\x1f\x8b"
    assert main(["report", "--from-bundle", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["answer"] == "improved"


def test_a_bundle_is_plain_json_unless_its_name_ends_in_gz(database: str, tmp_path: Path) -> None:
    file = tmp_path / "b.json"
    assert main(["report", "night", "--database", database, "--bundle", str(file)]) == 0
    assert json.loads(file.read_text())["study"]["name"] == "night"


def test_what_cannot_be_is_told_in_one_sentence(
    database: str, tmp_path: Path, capsys: Capture
) -> None:
    assert "name a STUDY of the database, or give --from-bundle FILE" in refused(capsys)
    assert "one of the two" in refused(capsys, "night", "--from-bundle", "x")
    assert "did you mean night?" in refused(capsys, "nigth", "--database", database)
    gone = str(tmp_path / "none" / "x.html")
    told = refused(capsys, "night", "--database", database, "--html", gone)
    assert "there is no folder of that name" in told
    assert "does not exist" in refused(capsys, "night", "--database", str(tmp_path / "n.db"))


def test_a_file_that_is_no_bundle_is_told_in_one_sentence(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "b.json"
    file.write_text('{"slotune_study": 7}')
    assert "of a newer slotune" in refused(capsys, "--from-bundle", str(file))
    file.write_text('{"x": 1}')
    assert "is no bundle of a study" in refused(capsys, "--from-bundle", str(file))
    assert "No such file" in refused(capsys, "--from-bundle", str(tmp_path / "none"))


def test_a_bundle_whose_parts_do_not_fit_each_other_is_told(
    database: str, tmp_path: Path, capsys: Capture
) -> None:
    file = tmp_path / "b.json"
    assert main(["report", "night", "--database", database, "--bundle", str(file)]) == 0
    assert "night: 9 measurements in " in capsys.readouterr().err
    document = json.loads(file.read_text())
    document["study"]["space"]["price_per_hour"] = "dear"
    file.write_text(json.dumps(document))
    assert "b.json is damaged, or of another version" in refused(capsys, "--from-bundle", str(file))


def test_a_fault_of_drawing_is_not_called_a_damaged_bundle(
    tiny: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(_: object) -> str:
        raise AttributeError("a fault of the page")

    monkeypatch.setattr(study_page, "render_study_html", faulty)
    words = ["report", "--from-bundle", str(tiny), "--html", f"{tiny}.html"]
    assert main(words) == EXIT_FAULT
    seen = capsys.readouterr().err
    assert "AttributeError: a fault of the page" in seen
    assert "damaged" not in seen


JUNK = [None, -1, 1e300, 10**30, "x", "", "inf", [], {}, True, [1], {"a": 1}]


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_whatever_stands_in_a_bundle_is_reported_or_refused(
    tiny: Path, capsys: Capture, data: Any
) -> None:
    document = json.loads(tiny.read_text())
    at, key = document, ""
    while True:
        key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        below = at[key]
        if not isinstance(below, (dict, list)) or not below or data.draw(st.booleans()):
            break
        at = below
    at[key] = data.draw(st.sampled_from(JUNK))
    spoilt = tiny.with_name("spoilt.json")
    spoilt.write_text(json.dumps(document))
    words = ["--from-bundle", str(spoilt), "--html", f"{spoilt}.html"]
    if main(["report", *words]) == 0:
        assert f"on the page {spoilt}.html" in capsys.readouterr().err
    else:
        capsys.readouterr()
        told = refused(capsys, *words)
        assert "spoilt.json" in told, told


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of three short measurements and a failed one."""
    folder = tmp_path_factory.mktemp("tiny")
    outcomes = [measured(ORIGINAL, stage="baseline", seed=i, at_s=20 * i, count=5) for i in (0, 1)]
    other = ORIGINAL | {"chunk_size": 64}
    outcomes += [measured(other, seed=2, at_s=40, count=5), broken(other, "oom", seed=3, at_s=60)]
    store(folder / "s.db", outcomes, target={"original_config": ORIGINAL})
    words = ["report", "s", "--database", str(folder / "s.db")]
    assert main([*words, "--bundle", str(folder / "b.json")]) == 0
    return folder / "b.json"


@pytest.mark.timeout(200)
def test_optimize_writes_the_page_of_its_study(tmp_path: Path) -> None:
    with FakeEngine(knobs=dict(ORIGINAL)) as server:
        done = tuner(
            "optimize", "--url", server.url, "--workload", "prompt=16,output=4,concurrency=8",
            "--duration", "600ms", "--warmup", "100ms", "--sampler", "tpe",
            "--slo", "tpot_p95<25ms", "--knob", "chunk_size=16:2048", "--budget", "6 trials",
            "--html", "study.html", cwd=tmp_path,
        )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    with open_database(tmp_path / "slotune.db", read_only=True) as opened:
        (study,) = opened.list_studies()
    page = (tmp_path / "study.html").read_text()
    assert f"study {study.name}" in page
    assert done.stdout.strip().splitlines()[0] in page


def test_optimize_refuses_a_page_in_no_folder_before_it_measures(
    tmp_path: Path, capsys: Capture
) -> None:
    words = ["--url", "http://127.0.0.1:9", "--html", str(tmp_path / "no" / "x.html")]
    assert main(["optimize", *words, "--database", str(tmp_path / "s.db")]) == 2
    assert "there is no folder of that name" in capsys.readouterr().err
    assert not (tmp_path / "s.db").exists()
