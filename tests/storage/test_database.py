"""What goes in comes out, on both kinds of database."""

from __future__ import annotations

import dataclasses
import math
import threading

import numpy as np
import pytest

from storage import Database, NewFinding, NewVerification, StorageError, open_database


def add(database: Database, **fields: object) -> int:
    given = {"stage": "search", "config": {"max_num_seqs": 8}, "started_at_s": 1000.0} | fields
    return database.add_measurement(**given)  # type: ignore[arg-type]


def test_study_comes_back_as_stored(database: Database) -> None:
    made = database.create_study(
        "night run",
        command="tuner optimize",
        target={"url": "http://a"},
        slos="ttft_p95<2s",
        objective="maximize output_tps",
        space={"max_num_seqs": [1, 64]},
        seed=2**40,
        budget={"time_s": 300},
        optuna_study_name="night run",
    )
    assert database.get_study("night run") == made == database.get_study(made.id)
    assert made.state == "running"
    assert made.seed == 2**40
    assert database.get_study("day run") is None
    assert database.get_study(999) is None


def test_one_measurement_by_its_id(database: Database) -> None:
    kept = add(database, stage="bench")
    (listed,) = database.list_measurements()
    assert database.get_measurement(kept) == listed
    for absent in (kept + 1, 0, -1, 2**31, 2**63 - 1, 2**63, -(2**80)):
        assert database.get_measurement(absent) is None


def test_study_is_updated_and_its_change_dated(database: Database) -> None:
    made = database.create_study("a")
    changed = database.update_study(made.id, state="done", result={"best": {"config": {"x": 1}}})
    assert changed.state == "done"
    assert changed.result == {"best": {"config": {"x": 1}}}
    assert changed.updated_at_s >= made.updated_at_s
    assert database.get_study("a") == changed


def test_unknown_or_wrong_study_fields_are_refused(database: Database) -> None:
    made = database.create_study("a")
    with pytest.raises(TypeError, match="color"):
        database.update_study(made.id, color="red")
    with pytest.raises(StorageError, match="no study 99"):
        database.update_study(99, state="done")
    with pytest.raises(StorageError, match="schema"):
        database.update_study(made.id, state="asleep")


def test_a_study_name_is_taken_once(database: Database) -> None:
    database.create_study("a")
    with pytest.raises(StorageError, match="'a' exists"):
        database.create_study("a")
    with pytest.raises(StorageError, match="name"):
        database.create_study("  ")


def test_measurements_are_listed_in_order_by_study_and_stage(database: Database) -> None:
    study = database.create_study("a")
    late = add(database, study_id=study.id, started_at_s=30.0)
    early = add(database, study_id=study.id, started_at_s=10.0, stage="baseline")
    lone = add(database, stage="bench", started_at_s=20.0)
    assert [m.id for m in database.list_measurements(study.id)] == [early, late]
    assert [m.id for m in database.list_measurements()] == [early, lone, late]
    assert [m.id for m in database.list_measurements(stage="bench")] == [lone]


def test_measurement_keeps_its_failure_and_its_figures(database: Database) -> None:
    number = add(
        database,
        state="failed",
        failure_kind="configuration",
        failure_reason="out of memory\x00 in the log",
        summary={"ttft_p95": {"value": math.nan, "low": 1.5, "n": np.int64(3)}},
    )
    (stored,) = database.list_measurements()
    assert stored.id == number
    assert stored.failure_reason == "out of memory in the log"
    assert stored.summary == {"ttft_p95": {"value": None, "low": 1.5, "n": 3}}


def test_what_is_no_text_is_spelt_out(database: Database) -> None:
    made = database.create_study("s", command="tuner \udcff", workload={"file": ["\udcff"]})
    assert database.get_study("s") == made
    assert (made.command, made.workload) == ("tuner \\udcff", {"file": ["\\udcff"]})
    assert database.get_study("\udcff") is None


def test_records_come_back_per_measurement(database: Database) -> None:
    first = add(database, records={"sent_s": [0.1, 0.2], "error": [None, "HTTP 503"]})
    second = add(database)
    loaded = database.load_records(first)
    np.testing.assert_array_equal(loaded["sent_s"], [0.1, 0.2])
    assert loaded["error"] == [None, "HTTP 503"]
    with pytest.raises(StorageError, match="no request records"):
        database.load_records(second)


def test_nothing_is_stored_of_a_measurement_whose_study_is_missing(database: Database) -> None:
    with pytest.raises(StorageError, match="referred to"):
        add(database, study_id=7, records={"sent_s": [0.1]})
    assert database.list_measurements() == []


def test_a_wrong_word_in_a_fixed_column_is_refused(database: Database) -> None:
    with pytest.raises(StorageError, match="schema"):
        add(database, stage="guess")


def test_findings_are_kept_newest_first(database: Database) -> None:
    number = add(database)
    found = [NewFinding("kv_pressure", "found", "high", {"value": 0.97}), NewFinding("ok", "clear")]
    database.add_findings(found, target="http://a", measurement_id=number, at_s=1.0)
    database.add_findings([NewFinding("stall", "found")], target="http://b", at_s=2.0)
    assert [f.node for f in database.list_findings()] == ["stall", "kv_pressure", "ok"]
    assert [f.node for f in database.list_findings(target="http://b")] == ["stall"]
    assert [f.node for f in database.list_findings(measurement_id=number, limit=1)] == [
        "kv_pressure"
    ]
    assert database.list_findings(since_s=1.5)[0].payload is None


def test_threads_that_write_at_once_all_get_through(database: Database) -> None:
    study = database.create_study("a")

    def write() -> None:
        for _ in range(10):
            add(database, study_id=study.id, records={"sent_s": [1.0] * 50})

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(database.list_measurements(study.id)) == 40


def test_reopening_keeps_everything(database_url: str) -> None:
    with open_database(database_url) as first:
        first.create_study("a")
    with open_database(database_url) as second:
        assert [s.name for s in second.list_studies()] == ["a"]


def test_optuna_lives_beside_our_tables(database_url: str) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with open_database(database_url) as database:
        study = optuna.create_study(storage=database.optuna_storage(), study_name="s")
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
        database.create_study("ours", optuna_study_name="s")
    with open_database(database_url) as database:  # both version tables are still understood
        again = optuna.load_study(study_name="s", storage=database.optuna_storage())
        assert len(again.trials) == 3
        assert [s.name for s in database.list_studies()] == ["ours"]
        assert database.optuna_storage() is database.optuna_storage()


def test_verifications_are_kept_oldest_first(database: Database) -> None:
    study = database.create_study("verify")
    made = NewVerification(
        knob="max_num_seqs", direction="up", before={"max_num_seqs": 4},
        after={"max_num_seqs": 8}, figure="output_tps", outcome="holds", study_id=study.id,
        node="3a.seq_cap", predicted={"low": 1.0, "high": 2.0, "ground": "queue"},
        realised={"ratio": 1.5, "low": 1.4, "high": float("inf")}, applied=True,
    )  # fmt: skip
    first = database.add_verification(made)
    database.add_verification(dataclasses.replace(made, knob="chunk_size", outcome="refuted"))
    both = database.list_verifications()
    assert [v.outcome for v in both] == ["holds", "refuted"]
    (only,) = database.list_verifications(knob="max_num_seqs")
    assert (only.id, only.applied, only.node) == (first, True, "3a.seq_cap")
    assert only.realised == {"ratio": 1.5, "low": 1.4, "high": None}
    with pytest.raises(StorageError, match="breaks the schema"):
        database.add_verification(dataclasses.replace(made, outcome="perfect"))  # type: ignore[arg-type]
