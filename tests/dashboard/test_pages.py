"""Every page in every state it can be in, run as Streamlit runs it but without a browser."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from dashboard import connect, settings
from dashboard.settings import Settings
from storage import Database, StorageError, open_database
from storage.sources import RecordedSource
from storage.sources.base import MetricSource, Outcome
from tests.dashboard import seed
from tests.dashboard.fake_source import FakeSource

ROOT = Path(__file__).parents[2]
URL = "http://127.0.0.1:8000"
SLOS = ("ttft_p95<500ms", "output_tps>100")
Show = Callable[..., str]


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Show]:
    """Run a page against a source and a database; gives its text, tags removed."""

    def run(
        page: Callable[[], None], source: MetricSource | None = None, database: str = "none.db"
    ) -> str:
        st.cache_resource.clear()
        monkeypatch.setattr(connect, "open_source", lambda **_: source)
        settings.configure(
            Settings(
                url=URL if source is not None else None,
                database=str(tmp_path / database),
                slos=SLOS,
            )
        )
        return text_of(AppTest.from_function(page, default_timeout=30).run())

    yield run
    settings.configure(Settings())
    st.cache_resource.clear()


def text_of(app: AppTest) -> str:
    assert not app.exception, app.exception
    bodies = " ".join(element.proto.body for element in app.get("html"))
    pieces = [unescape(re.sub(r"<[^>]+>", " ", bodies))]
    pieces += [element.label for element in app.expander]
    pieces += [element.value for element in app.code]
    return re.sub(r"\s+", " ", " ".join(pieces))


def overview() -> None:
    from dashboard.views import overview

    overview.page()


def diagnosis() -> None:
    from dashboard.views import diagnosis

    diagnosis.page()


def studies() -> None:
    from dashboard.views import studies

    studies.page()


def test_the_app_starts_on_the_overview(show: Show) -> None:
    app = AppTest.from_file(str(ROOT / "dashboard" / "app.py"), default_timeout=30).run()
    assert "No target" in text_of(app)


@pytest.mark.parametrize("page", [overview, diagnosis])
def test_without_a_target_the_page_says_how_to_give_one(
    show: Show, page: Callable[[], None]
) -> None:
    text = show(page)
    assert "No target" in text
    assert "dashboard serve --url" in text


def test_overview_under_traffic(show: Show) -> None:
    text = show(overview, FakeSource())
    for words in (
        "slotune", "smollm2-135m", "12 seq of 16", "46.3 % now · of 65,536 tok", "812 tok/s",
        "last 1 min · 60 samples", "nothing waits 55 %", "seq_cap 31.0 %", "TTFT", "210 ms",
        "ttft_p95<500ms", "misses", "Not judged from live metrics: output_tps>100",
    ):  # fmt: skip
        assert words in text
    assert "no traffic" not in text


def test_overview_without_traffic_shows_zero_and_no_traffic_apart(show: Show) -> None:
    text = show(overview, FakeSource(Outcome.NO_TRAFFIC))
    assert "Running 0 seq" in text
    assert "Generated tokens no traffic" in text
    assert "no traffic: no step ran" in text
    assert "misses" not in text
    assert "meets" not in text


def test_overview_of_a_silent_target(show: Show) -> None:
    text = show(overview, FakeSource(Outcome.UNREACHABLE, reason="connection refused"))
    assert "down" in text
    assert "The target does not answer connection refused" in text
    assert "Running unreachable" in text
    assert " 0 " not in text.split("The target does not answer")[1].split("Last 5 min")[0]


@pytest.mark.parametrize("kind", ["url", "prometheus"])
@pytest.mark.parametrize("page", [overview, diagnosis])
def test_nothing_listens_there(page: Callable[[], None], kind: str, tmp_path: Path) -> None:
    """The real sources against a closed port: said at once, not after a time-out per figure."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        st.cache_resource.clear()
        settings.configure(Settings(database=str(tmp_path / "no.db"), **{kind: address}))
        try:
            text = text_of(AppTest.from_function(page, default_timeout=60).run())
        finally:
            settings.configure(Settings())
            st.cache_resource.clear()
    assert "does not answer" in text or "refused" in text
    assert not re.search(r"Running 0|green-badge", text)


def test_overview_names_a_missing_metric(show: Show) -> None:
    source = FakeSource(without=frozenset({"vllm:num_preemptions_total"}))
    text = show(overview, source)
    assert "Preemptions no data vllm:num_preemptions_total is not exported" in text


def test_overview_of_stale_data(show: Show) -> None:
    assert "Running stale" in show(overview, FakeSource(Outcome.STALE))


def recorded(*names: str) -> RecordedSource:
    pages = [(ROOT / "fixtures" / f"vllm-0.32-cpu-{name}.txt").read_text() for name in names]
    began_s = 1_796_010_200.0
    return RecordedSource([(began_s + 15 * i, page) for i, page in enumerate(pages)])


@pytest.fixture
def then(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recording's end is now, so that its data is fresh."""
    monkeypatch.setattr("time.time", lambda: 1_796_010_230.0)


@pytest.mark.usefixtures("then")
def test_diagnosis_of_a_recorded_vllm_starved_of_kv(show: Show) -> None:
    source = recorded("idle", "kv-starved", "kv-starved")
    text = show(diagnosis, source)
    assert "0 Trust" in text
    assert "traffic yes" in text
    assert "7 Uneven replicas" in text
    assert "can't tell" in text
    assert "Missing:" in text
    assert "--set max_num_seqs=N" in text
    assert "max(vllm:kv_cache_usage_perc)" in text


@pytest.mark.usefixtures("then")
def test_diagnosis_fires_on_the_second_look_and_shows_how_to_prove_it(
    show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.evaluator.BEAT_S", 0.0)
    source = recorded("idle", "kv-starved", "kv-starved")
    st.cache_resource.clear()
    show(diagnosis, source)
    app = AppTest.from_function(diagnosis, default_timeout=30).run()
    text = text_of(app)
    assert "KV-bound" in text
    assert "raising max_num_seqs" in text  # what will not help
    assert f"tuner sweep --url {URL} --knob gpu_memory_utilization=0.92,0.95" in text
    assert "--slo 'ttft_p95<500ms'" in text


@pytest.mark.usefixtures("then")
def test_diagnosis_without_traffic(show: Show) -> None:
    text = show(diagnosis, recorded("idle", "idle", "idle"))
    assert "No traffic in the window" in text
    assert "traffic none in the window" in text
    assert "critical" not in text


def test_diagnosis_of_a_silent_target_is_never_ok(show: Show) -> None:
    text = show(diagnosis, FakeSource(Outcome.UNREACHABLE, reason="connection refused"))
    assert "not judged" in text
    assert not re.search(r"green-badge\[ok\]", text)


def test_studies_without_a_database(show: Show) -> None:
    text = show(studies)
    assert "No database yet" in text
    assert "tuner optimize" in text


def test_studies_of_an_unreadable_database(show: Show, tmp_path: Path) -> None:
    (tmp_path / "broken.db").write_text("this is no database" * 100)
    assert "The database cannot be read" in show(studies, database="broken.db")


def test_studies_of_an_empty_database(show: Show, tmp_path: Path) -> None:
    open_database(tmp_path / "empty.db").close()
    assert "No study yet" in show(studies, database="empty.db")


def test_a_finished_study(show: Show, tmp_path: Path) -> None:
    seed.study(tmp_path / "done.db")
    text = show(studies, database="done.db")
    for words in (
        "optimize-done", "maximize output_tps", "ttft_p95<500ms", "max_num_seqs=48 chunk_size=512",
        "A better configuration is confirmed", "1.1 × baseline (95 % interval 1.06 to 1.14",
        "414 tok/s (389 … 439) n=310", "missed", "+9.9 %",
        "vllm serve MODEL --max-num-seqs 48", "chunk_size=64:4096:log", "concurrency=16",
        "Without a result", seed.OUT_OF_MEMORY, "All 19 measurements",
        "2 without a result lie on the axis",
    ):  # fmt: skip
        assert words in text


def test_a_study_that_keeps_the_baseline_shows_no_best(show: Show, tmp_path: Path) -> None:
    seed.study(tmp_path / "kept.db")
    with open_database(tmp_path / "kept.db") as database:
        kept = seed.result() | {
            "answer": "keep_baseline", "best": {}, "reason": "the baseline has the better figures",
        }  # fmt: skip
        database.update_study(database.list_studies()[0].id, result=kept)
    text = show(studies, database="kept.db")
    assert "Keep the baseline the baseline has the better figures" in text
    assert "change" not in text


def test_a_study_without_a_feasible_configuration_recommends_none(
    show: Show, tmp_path: Path
) -> None:
    seed.study(tmp_path / "none.db")
    with open_database(tmp_path / "none.db") as database:
        none = seed.result() | {
            "answer": "none_feasible", "best": {}, "closest": seed.BEST,
            "reason": "no configuration met the SLOs",
        }  # fmt: skip
        database.update_study(database.list_studies()[0].id, result=none)
    text = show(studies, database="none.db")
    assert "No configuration met the SLOs" in text
    assert "closest was max_num_seqs=48" in text
    assert "× baseline" not in text
    assert "engine serve" not in text


def test_a_failed_study_is_listed_with_its_reason(show: Show, tmp_path: Path) -> None:
    with open_database(tmp_path / "failed.db") as database:
        study = database.create_study("broken", command="tuner optimize", state="failed")
        database.add_measurement(
            study_id=study.id, stage="baseline", config=seed.BEST, started_at_s=1.0,
            state="failed", failure_kind="transient", failure_reason="no request was scheduled",
        )  # fmt: skip
    text = show(studies, database="failed.db")
    assert "failed" in text
    assert text.count("no request was scheduled") >= 2  # in the list, and with the measurement
    assert "nothing meets the SLOs so far" not in text


def test_a_sweep(show: Show, tmp_path: Path) -> None:
    seed.study(tmp_path / "swept.db")
    with open_database(tmp_path / "swept.db") as database:
        swept = {"answer": "swept", "knob": "max_num_seqs", "best": {"config": seed.BEST}}
        database.update_study(database.list_studies()[0].id, result=swept)
    text = show(studies, database="swept.db")
    assert "Swept max_num_seqs=48" in text
    assert "455 tok/s" in text


def test_a_study_with_a_front(show: Show, tmp_path: Path) -> None:
    seed.study(tmp_path / "front.db")
    points = [
        {"config": config, "runs": 2,
         "figures": {"output_tps": seed.figure(tps, "tok/s"), "ttft_p95": seed.figure(ttft, "s")}}
        for config, tps, ttft in ((seed.BEST, 455.0, 0.43), (seed.BASELINE, 300.0, 0.21))
    ]  # fmt: skip
    with open_database(tmp_path / "front.db") as database:
        result = seed.result() | {"front": points}
        database.update_study(database.list_studies()[0].id, result=result)
    text = show(studies, database="front.db")
    assert "none of these is beaten in every objective" in text
    assert "300 tok/s (282 … 318)" in text
    assert "210 ms" in text


def test_a_study_of_capacity(show: Show, tmp_path: Path) -> None:
    with open_database(tmp_path / "capacity.db") as database:
        load = {"text": "prompt=256,output=64,rate=2"}
        made = database.create_study("much", objective="maximize capacity", workload=load)
        for at_s, rate, ttft_s in ((1.0, 2, 0.2), (2.0, 8, 0.9), (3.0, 4, 0.3)):
            seed.add(database, made.id, "baseline", seed.BASELINE, tps=100.0, ttft_p95_s=ttft_s,
                     started_at_s=at_s, workload={"text": f"prompt=256,output=64,rate={rate}"}
            )  # fmt: skip
    text = show(studies, database="capacity.db")
    assert "at the level that it offered (req/s)" in text
    assert "4 req/s" in text
    assert "failed" not in text


def test_a_running_study(show: Show, tmp_path: Path) -> None:
    seed.study(tmp_path / "running.db", state="running", trials=5)
    text = show(studies, database="running.db")
    assert "running" in text
    assert "best so far" in text


def test_a_study_whose_first_measurement_runs(show: Show, tmp_path: Path) -> None:
    with open_database(tmp_path / "new.db") as database:
        database.create_study("fresh", objective="maximize output_tps")
    assert "No measurement yet The first measurement is running." in show(
        studies, database="new.db"
    )


def test_a_study_whose_every_measurement_failed(show: Show, tmp_path: Path) -> None:
    with open_database(tmp_path / "failed.db") as database:
        study = database.create_study("all failed", objective="maximize output_tps")
        seed.add(
            database, study.id, "baseline", {}, state="failed", started_at_s=1.0,
            failure_kind="configuration", failure_reason="the server ended while starting",
        )  # fmt: skip
        database.update_study(study.id, state="failed")
    text = show(studies, database="failed.db")
    assert "The baseline has no result" in text
    assert "the server ended while starting (configuration)" in text


def test_text_from_outside_is_shown_not_run(show: Show, tmp_path: Path) -> None:
    seed.hostile(tmp_path / "hostile.db")
    text = show(studies, database="hostile.db")
    # An unescaped tag would have been removed with the page's own.
    for place in (
        "name", "command", "slos", "objective", "axis", "workload", "config", "reason", "url",
        "clause",
    ):  # fmt: skip
        assert seed.hostile_text(place) in text, place


def test_runs_of_bench_with_their_verdicts(show: Show, tmp_path: Path) -> None:
    with open_database(tmp_path / "bench.db") as database:
        for tps, ttft_p95_s in ((410.0, 0.71), (300.0, 0.22)):
            seed.run(database, tps=tps, ttft_p95_s=ttft_p95_s, started_at_s=seed.BEGAN_S + tps)
        seed.run(
            database, started_at_s=seed.BEGAN_S, state="invalid", failure_reason="sent too late"
        )
    text = show(studies, database="bench.db")
    assert "No study yet" in text
    assert "Runs of tuner bench and tuner import (3)" in text
    first, second = text.index("410 tok/s"), text.index("300 tok/s")
    assert first < second  # the newest stands first
    assert "missed ttft_p95<500ms: 710 ms (639 … 781)" in text
    assert "met" in text[second:]
    assert "invalid sent too late" in text
    assert "127.0.0.1:8000" in text
    assert f"tuner export RUN --format html --output run.html --database {tmp_path}" in text


def test_a_study_tells_how_to_hand_its_answer_on(show: Show, tmp_path: Path) -> None:
    seed.study(tmp_path / "done.db")
    text = show(studies, database="done.db")
    sides = "optimize-done:baseline optimize-done:best"
    assert f"tuner compare {sides} --html compare.html --database {tmp_path}" in text


@pytest.mark.parametrize("lost", ["list_studies", "list_measurements", "get_study"])
def test_a_database_that_is_lost_while_the_page_is_open(
    show: Show, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StorageError("the database postgresql://x cannot be read: no server answers there")

    seed.study(tmp_path / "lost.db")
    monkeypatch.setattr(Database, lost, fail)
    text = show(studies, database="lost.db")
    assert "The database cannot be read the database postgresql://x cannot be read: no" in text
    assert "keeps trying" in text


def test_reading_never_locks_a_running_study(show: Show, tmp_path: Path) -> None:
    seed.study(tmp_path / "busy.db", state="running", trials=3)
    with open_database(tmp_path / "busy.db") as writer:
        study = writer.list_studies()[0]
        for step in range(3):
            assert "best so far" in show(studies, database="busy.db")
            seed.add(
                writer, study.id, "search", seed.BEST, tps=400.0 + step, ttft_p95_s=0.3,
                started_at_s=seed.BEGAN_S + 1000 + step,
            )  # fmt: skip
    assert "402 tok/s" in show(studies, database="busy.db")
