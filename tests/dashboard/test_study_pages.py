"""The studies page in every state that a study and its database can be in."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.views import sweep
from storage import Database, StorageError, open_database
from tests.dashboard import seed
from tests.dashboard.pages import Show, studies
from tests.tuner.report.stored_studies import (
    broken,
    measured,
    pairs,
    store,
    store_sweep,
    store_verification,
    swept,
)
from tests.tuner.search.synthetic import DEFAULTS
from tuner.search.objective import parse_objectives
from tuner.search.trial import Outcome


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


def test_a_sweep_shows_each_value_and_asks_for_no_baseline(show: Show, tmp_path: Path) -> None:
    """As `tuner sweep` keeps it where its knobs were named: no measurement is a baseline."""
    store_sweep(tmp_path / "sweep.db", [*swept()[:2], broken_value()], knobs=[
        "chunk_size=256,1024,2048,4096"
    ])  # fmt: skip
    text = show(studies, database="sweep.db")
    assert "The baseline has no result" not in text
    assert "Swept chunk_size: a value is shown to meet the SLOs" in text
    for words in ("2048 (own)", "it trades: larger steps", "met", "not measured", "out of memory",
                  "best output_tps among values that meet the SLOs: chunk_size=1024",
                  "n=60", "n=70"):  # fmt: skip
        assert words in text, words


def test_a_search_is_not_read_whole_to_learn_that_it_is_no_sweep(
    show: Show, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(_opened: Database, name: str) -> None:
        raise AssertionError(f"all of {name} was read")

    monkeypatch.setattr(sweep, "of_database", read)
    seed.study(tmp_path / "done.db")
    assert "A better configuration is confirmed" in show(studies, database="done.db")


def test_a_study_of_two_loads_keeps_them_apart(show: Show, tmp_path: Path) -> None:
    """Figures of one load are no figures of the other, nor of the study."""
    loads = ("prompt=64,output=8,rate=10", "prompt=128,output=4,rate=5")
    outcomes = [
        measured(DEFAULTS, stage="baseline", count=60 - 20 * place, load=load, at_s=20.0 * place)
        for place, load in enumerate(loads)
    ]
    store(tmp_path / "two.db", outcomes, loads=loads, state="running",
          objectives=parse_objectives(["output_tps"], ["ttft_p95"]))  # fmt: skip
    text = show(studies, database="two.db")
    assert f"workload {loads[0]} and {loads[1]}" in text
    for load in loads:
        assert f"History under {load}" in text
    assert "objective maximize output_tps and minimize ttft_p95" in text
    assert text.count("maximize output_tps and minimize ttft_p95") == 2  # in the list too
    assert "under 2 loads: open it for what each gave" in text
    assert "budget 20 trials" in text
    assert "best so far" not in text.partition("History under")[0]
    assert "Baseline and best" not in text


def test_an_invalid_measurement_is_not_called_failed(show: Show, tmp_path: Path) -> None:
    with open_database(tmp_path / "i.db") as database:
        made = database.create_study("i", objective="maximize output_tps")
        seed.add(database, made.id, "baseline", seed.BASELINE, tps=100.0, ttft_p95_s=0.2,
                 started_at_s=1.0)  # fmt: skip
        for at_s, state in ((2.0, "invalid"), (3.0, "failed"), (4.0, "failed")):
            seed.add(database, made.id, "search", seed.BEST, state=state, started_at_s=at_s,
                     failure_reason="it lagged")  # fmt: skip
    assert "4 2 failed, 1 invalid" in show(studies, database="i.db")


def broken_value() -> Outcome:
    return broken(DEFAULTS | {"chunk_size": 4096}, "out of memory", stage="sweep", at_s=60.0)


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


def test_a_verification_answers_whether_the_advice_holds(show: Show, tmp_path: Path) -> None:
    """Its stored result is that of a choice between two: none of its words answer what it asked."""
    chosen = seed.result() | {"answer": "none_feasible", "best": {}}
    store_verification(tmp_path / "verified.db", pairs(), result=chosen)
    text = show(studies, database="verified.db")
    assert "No configuration met the SLOs" not in text
    assert text.count("The advice holds") >= 2  # in the list, and above the figures
    for words in ("Before and after", "predicted", "realised", "before after"):
        assert words in text
