"""The Verify button: the process it starts, what is shown meanwhile and at the end, and when it is
offered."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import settings, verify
from dashboard.prove import Subject, subject_of
from dashboard.settings import Settings
from dashboard.verify_run import Verifications, View, words
from storage import NewVerification, open_database
from tests.tuner.fake_engine import FakeEngine
from tuner.diagnosis.levers import MORE_REPLICAS, MORE_SEQS
from tuner.diagnosis.model import Diagnosis, NodeResult, State
from tuner.workload.grammar import DEFAULT

ORIGINAL = {"max_num_seqs": 16, "chunk_size": 2048, "gpu_memory_utilization": 0.9}
LOAD = [
    "--workload", "prompt=16,output=8,concurrency=4", "--duration", "700ms", "--warmup", "0s",
]  # fmt: skip


@pytest.fixture
def runs() -> Iterator[Verifications]:
    made = Verifications()
    yield made
    made.close()


def seen(runs: Verifications, holds: Callable[[View], bool]) -> View:
    deadline_s = time.monotonic() + 90
    while (view := runs.view()) is None or not holds(view):
        assert time.monotonic() < deadline_s, view
        time.sleep(0.05)
    return view


def test_the_command_is_what_a_person_would_type() -> None:
    command = words("http://h:1", "3a.kv", "prompt=8,output=8,rate=1", ["ttft_p95<1s"], "a.db")
    assert command == [
        "tuner", "verify", "--url", "http://h:1", "--node", "3a.kv", "--workload",
        "prompt=8,output=8,rate=1", "--slo", "ttft_p95<1s", "--database", "a.db",
    ]  # fmt: skip


def test_a_verification_runs_beside_the_page_and_its_answer_is_read(
    runs: Verifications, tmp_path: Path
) -> None:
    assert runs.view() is None
    with FakeEngine(knobs=dict(ORIGINAL)) as server:
        command = [
            "tuner", "verify", "--url", server.url, "--knob", "chunk_size=64", "--figure",
            "tpot_p50", "--database", str(tmp_path / "a.db"), *LOAD,
        ]  # fmt: skip
        assert runs.start("4.interference", command)
        assert not runs.start("4.interference", command), "one at a time"
        view = seen(runs, lambda view: not view.running)
    assert (view.code, view.fault, view.result["outcome"]) == (0, "", "holds")
    assert any("pair 1" in line for line in view.told)
    shown = verify._ended(view)
    assert "The advice holds: chunk_size 2048 → 64" in shown
    assert "tpot_p50 ×" in shown


def test_what_cannot_be_verified_says_why(runs: Verifications, tmp_path: Path) -> None:
    with FakeEngine(knobs=dict(ORIGINAL)) as server:
        command = words(server.url, "no.node", LOAD[1], [], str(tmp_path / "a.db"))
        runs.start("no.node", [*command, *LOAD[2:]])
        view = seen(runs, lambda view: not view.running)
    assert view.code == 2
    assert "is no node of the tree" in view.fault
    assert "no.node was not verified" in verify._ended(view)


def test_stopping_puts_the_settings_back(runs: Verifications, tmp_path: Path) -> None:
    with FakeEngine(knobs=dict(ORIGINAL)) as server:
        command = [
            "tuner", "verify", "--url", server.url, "--knob", "chunk_size=1024", "--pairs", "8",
            "--database", str(tmp_path / "a.db"), *LOAD[:2], "--duration", "5s",
        ]  # fmt: skip
        runs.start("x", command)
        seen(runs, lambda view: server.knobs["chunk_size"] == 1024)
        runs.stop()
        view = seen(runs, lambda view: not view.running)
        assert server.knobs == ORIGINAL
    assert view.code == 130
    assert view.result == {}


NODE = NodeResult("3a.seq_cap", "Cap", State.CRITICAL, "fires", levers=(MORE_SEQS,))


@pytest.mark.parametrize(
    ("node", "config", "url", "offered"),
    [
        (NODE, {"admin": "True"}, "http://h:1", True),
        (NODE, {"admin": "False"}, "http://h:1", False),
        (NODE, {}, "http://h:1", False),
        (NODE, {"admin": "True"}, None, False),
        (replace(NODE, levers=(MORE_REPLICAS,)), {"admin": "True"}, "http://h:1", False),
    ],
)
def test_offered_only_where_a_knob_turns_live(
    node: NodeResult, config: dict[str, str], url: str | None, offered: bool
) -> None:
    assert verify.offered(node, Subject(url, config)) is offered


def page() -> None:
    import streamlit as st

    from dashboard import verify
    from dashboard.prove import Subject
    from tests.dashboard.test_verify import NODE

    def body() -> None:
        verify.panel()
        verify.offer(NODE, Subject("http://h:1", {"admin": "True"}))

    st.fragment(body)()


class Recorded:
    """In place of Verifications: keeps what is started."""

    def __init__(self) -> None:
        self.started: list[tuple[str, list[str]]] = []
        self.shown: View | None = None
        self.stopped = False

    def view(self) -> View | None:
        return self.shown

    def start(self, node: str, command: list[str]) -> bool:
        self.started.append((node, command))
        self.shown = View(node, time.time(), ("pair 1 of at most 5",), None, {})
        return True

    def stop(self) -> None:
        self.stopped = True


def test_the_button_starts_it_with_the_load_given_and_shows_progress_and_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs = Recorded()
    monkeypatch.setattr(verify, "verifications", lambda: runs)
    path = str(tmp_path / "a.db")
    with open_database(path) as database:
        for outcome in ("holds", "refuted"):
            database.add_verification(
                NewVerification(
                    "max_num_seqs", "up", {}, {}, "ttft_p95", outcome, node="3a.seq_cap",
                    realised={"ratio": 0.5},
                )  # type: ignore[arg-type]
            )  # fmt: skip
    settings.configure(Settings(url="http://h:1", slos=("ttft_p95<1s",), database=path))
    try:
        app = AppTest.from_function(page, default_timeout=30).run()
        assert not app.exception
        known = " ".join(element.proto.body for element in app.get("html"))
        assert "max_num_seqs up held 1 of 2 times, median ttft_p95 × 0.5: keeps failing" in known
        app.text_input(key="verify-load-3a.seq_cap").set_value("chat,rate=2")
        app.button(key="verify-3a.seq_cap").click().run()
        assert not app.exception
        ((node, command),) = runs.started
        assert node == "3a.seq_cap"
        assert command == words("http://h:1", node, "chat,rate=2", ["ttft_p95<1s"], path)
        app.run()
        assert app.button(key="verify-3a.seq_cap").disabled
        assert "pair 1 of at most 5" in " ".join(e.proto.body for e in app.get("html"))
        app.button(key="verify-stop").click().run()
        assert runs.stopped
        runs.shown = replace(
            runs.view() or View("", 0, (), 0, {}), code=1,
            result={"outcome": "harmful", "change": "max_num_seqs 4 → 8", "reason": "an SLO",
                    "realised": {"ratio": None}, "side_effects": {}},
        )  # fmt: skip
        app.run()
        text = " ".join(element.proto.body for element in app.get("html"))
        assert "The advice does harm: max_num_seqs 4 → 8" in text
    finally:
        settings.configure(Settings())


TWO = Settings(urls=("http://a:1", "http://b:1"), slos=("ttft_p95<1s",), database="x.db")


def diagnosed(**admin: str) -> Diagnosis:
    """Of these replicas, each with a cap of its own."""
    each = {
        f"{name}:1": {"admin": value, "max_num_seqs": cap}
        for (name, value), cap in zip(admin.items(), ("8", "64"), strict=True)
    }
    return Diagnosis(
        0.0, 60.0, "t", "slotune", "traffic", "", config={"device": "cpu"}, config_by_replica=each
    )


@pytest.mark.parametrize(
    ("a", "b", "url", "cap"),
    [("True", "True", "http://a:1", "8"), ("False", "True", "http://b:1", "64"),
     ("False", "False", "http://a:1", "8")],
)  # fmt: skip
def test_advice_for_several_is_tried_on_the_first_that_lets_its_knobs_be_changed(
    a: str, b: str, url: str, cap: str
) -> None:
    found = subject_of(TWO, diagnosed(a=a, b=b))
    assert (found.url, found.config["max_num_seqs"], found.config["device"]) == (url, cap, "cpu")
    assert verify.offered(NODE, found) is (found.config["admin"] == "True")


def test_the_engines_of_one_of_them_are_found_by_its_instance() -> None:
    each = {"b:1/0": {"admin": "True"}, "b:1/1": {"admin": "True"}, "a:11/0": {"admin": "True"}}
    found = subject_of(TWO, replace(diagnosed(a="", b=""), config_by_replica=each))
    assert (found.url, found.config) == ("http://b:1", {"device": "cpu", "admin": "True"})


def several() -> None:
    from dashboard import verify
    from dashboard.prove import subject_of
    from tests.dashboard.test_verify import NODE, TWO, diagnosed

    verify.offer(NODE, subject_of(TWO, diagnosed(a="False", b="True")))


def test_of_several_the_page_shows_the_whole_command_for_one_and_starts_nothing() -> None:
    settings.configure(TWO)
    try:
        app = AppTest.from_function(several, default_timeout=30).run()
        assert not app.exception
        [code] = app.code
        assert code.value == (
            "tuner verify --url http://b:1 --node 3a.seq_cap --workload "
            f"{shlex.quote(DEFAULT)} --slo 'ttft_p95<1s' --database x.db"
        )
        assert not app.button
        assert "one of them" in " ".join(element.proto.body for element in app.get("html"))
    finally:
        settings.configure(Settings())
