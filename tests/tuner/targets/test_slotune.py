"""Our engine as a target: live knobs, one identity, restored by nobody else's hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from engine.cli import _parser, from_arguments
from tests.tuner.fake_engine import FakeEngine, program
from tests.tuner.fake_server import FakeServer
from tuner.errors import UserError
from tuner.targets import TargetError, TargetOptions, open_target
from tuner.targets.flags import flag_words
from tuner.targets.process import OwnProcess
from tuner.targets.slotune import SlotuneTarget
from tuner.targets.url import UrlTarget


def test_knobs_are_changed_live_and_verified() -> None:
    with FakeEngine() as engine:
        target = SlotuneTarget(engine.url)
        target.start()
        assert target.knobs()["chunk_size"].value == 2048
        target.apply({"chunk_size": 256, "max_num_seqs": 16})
        assert engine.knobs["chunk_size"] == 256
        assert target.knobs()["max_num_seqs"].value == 16
        target.reset_prefix_cache()
        assert engine.resets == 1
        assert target.endpoint.model == "fake-model"
        target.stop()
        assert target.knobs()["chunk_size"].value == 256  # it is not ours: still up


def test_a_refused_setting_is_the_configurations_fault() -> None:
    with FakeEngine() as engine:
        target = SlotuneTarget(engine.url)
        target.start()
        with pytest.raises(TargetError, match="chunk_size must be at least") as caught:
            target.apply({"chunk_size": 16})
        assert caught.value.kind == "configuration"
        assert not caught.value.gone


def test_another_engine_at_the_same_address_is_noticed() -> None:
    with FakeEngine() as engine:
        target = SlotuneTarget(engine.url)
        target.start()
        engine.instance_id = "another"
        with pytest.raises(TargetError, match="another engine") as caught:
            target.apply({"chunk_size": 256})
        assert caught.value.gone
        assert engine.applied == []


def test_a_measurement_over_a_restart_is_noticed() -> None:
    with FakeEngine() as engine:
        target = SlotuneTarget(engine.url)
        target.start()
        target.verify()
        engine.instance_id = "another"
        with pytest.raises(TargetError, match="another engine") as caught:
            target.verify()
        assert caught.value.gone


def test_one_tuner_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with FakeEngine() as engine:
        first, second = SlotuneTarget(engine.url), SlotuneTarget(engine.url)
        first.start()
        with pytest.raises(UserError, match="another tuner turns the knobs"):
            second.start()
        first.stop()
        second.start()
        assert len(list(tmp_path.iterdir())) == 1
        second.stop()
        assert not list(tmp_path.iterdir())


def test_a_killed_tuner_leaves_no_lock() -> None:
    code = (
        "import sys, time\nfrom tuner.targets.slotune import SlotuneTarget\n"
        "target = SlotuneTarget(sys.argv[1])\ntarget.start()\n"
        "print('held', flush=True)\ntime.sleep(300)\n"
    )
    with FakeEngine() as engine:
        command = [sys.executable, "-c", code, engine.url]
        holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        target = SlotuneTarget(engine.url)
        with pytest.raises(UserError, match="another tuner"):
            target.start()
        holder.kill()
        holder.wait()
        target.start()
        target.stop()


def test_a_setting_that_somebody_else_changed_spoils_the_measurement() -> None:
    with FakeEngine() as engine:
        target = SlotuneTarget(engine.url)
        target.start()
        target.apply({"chunk_size": 256})
        target.verify()
        engine.knobs["chunk_size"] = 512
        with pytest.raises(TargetError, match=r"chunk_size of .* from 256 to 512") as caught:
            target.verify()
        assert caught.value.gone
        target.stop()


@pytest.mark.parametrize("answer", [None, [], "ok", {}, {"knobs": [1]}, {"knobs": {"a": 1}}])
def test_answers_of_another_kind_of_server(answer: object, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeEngine() as engine:
        target = SlotuneTarget(engine.url)
        target.start()
        monkeypatch.setattr("tuner.targets.http.call", lambda *_, **__: answer)
        for action in (target.knobs, target.verify, lambda: target.apply({"chunk_size": 256})):
            with pytest.raises(TargetError, match="does not answer as this engine does"):
                action()


def test_an_engine_that_went_away_is_gone() -> None:
    with FakeEngine() as engine:
        target = SlotuneTarget(engine.url)
        target.start()
    with pytest.raises(TargetError) as caught:
        target.apply({"chunk_size": 256})
    assert caught.value.gone


def test_admin_off_is_one_sentence() -> None:
    with FakeEngine(admin=False) as engine, pytest.raises(UserError, match="--enable-admin"):
        SlotuneTarget(engine.url).start()


def test_the_api_key_is_asked_for_and_used() -> None:
    with FakeEngine(api_key="sesame") as engine:
        with pytest.raises(UserError, match="--api-key"):
            open_target(TargetOptions(url=engine.url))
        target = open_target(TargetOptions(url=engine.url, api_key="sesame"))
        target.start()
        assert "sesame" not in str(target.describe())


def test_a_url_is_asked_what_it_is() -> None:
    with FakeEngine() as engine:
        assert isinstance(open_target(TargetOptions(url=engine.url)), SlotuneTarget)
    with FakeServer() as server:
        target = open_target(TargetOptions(url=f"{server.url}/v1/"))
        assert isinstance(target, UrlTarget)
        target.start()
        assert target.knobs() == {}
        with pytest.raises(UserError, match="cannot change chunk_size"):
            target.apply({"chunk_size": 1})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (TargetOptions(url="http://127.0.0.1:9"), "nothing answers"),
        (TargetOptions(url="ftp://x"), "is not an address"),
        (TargetOptions(url="http://127.0.0.1:9", serve_args=("--x",)), "leave out --url"),
        (TargetOptions(kind="vllm"), "needs --model"),
        (TargetOptions(kind="vllm", model="m", vllm_binary="/no/vllm"), "not an executable"),
    ],
)
def test_faults_of_the_options(options: TargetOptions, says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        open_target(options)
    assert "\n" not in str(caught.value)


def test_knobs_of_the_start_are_changed_by_a_restart(tmp_path: Path) -> None:
    target = SlotuneTarget(log_dir=tmp_path, knobs=("block_size", "dtype", "chunk_size"))
    command = [
        sys.executable,
        "-m",
        "tests.tuner.fake_engine",
        "--record",
        str(tmp_path / "starts"),
    ]
    target._process = OwnProcess(
        lambda port: [*command, "--port", str(port), *flag_words(target._at_start, "slotune")],
        tmp_path / "log",
    )
    target.start()
    try:
        knobs = target.knobs()
        assert (knobs["block_size"].value, knobs["block_size"].live) == (16, False)
        assert knobs["dtype"].words == ("auto", "bfloat16", "float16", "float32")
        assert knobs["chunk_size"].live
        first = target.describe()["instance_id"]
        target.apply({"block_size": 16, "chunk_size": 512})
        assert target.describe()["instance_id"] == first  # live: no restart
        target.apply({"block_size": 32, "dtype": "float32", "chunk_size": 256})
        target.verify()
        assert target.describe()["instance_id"] != first
        assert target.knobs()["chunk_size"].value == 256
        starts = (tmp_path / "starts").read_text().splitlines()
        assert len(starts) == 2
        assert starts[1].endswith("--block-size 32 --dtype float32")
    finally:
        target.stop()


def test_what_an_engine_cannot_change_is_told() -> None:
    with pytest.raises(UserError, match="--knob quantization: this engine has no flag"):
        SlotuneTarget(knobs=("quantization",))
    with pytest.raises(UserError, match=r"is set when a server starts, and .* runs already"):
        SlotuneTarget("http://127.0.0.1:9", knobs=("block_size",))


def test_the_engine_is_started_by_its_own_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program stands for Python; the real engine's own parser reads the words."""
    python = program(tmp_path / "python", "slotune")
    monkeypatch.setattr("tuner.targets.slotune.sys", SimpleNamespace(executable=str(python)))
    target = open_target(TargetOptions(
        model="models/m", api_key="sesame", log_dir=tmp_path / "logs", startup_timeout_s=30,
        serve_args=("--max-model-len", "512", "--block-size=32"), knobs=("block_size", "dtype"),
    ))  # fmt: skip
    target.start()
    try:
        port = urlsplit(str(target.describe()["url"])).port
        assert target.describe()["started_here"]
    finally:
        target.stop()
    (started,) = (tmp_path / "starts").read_text().splitlines()
    words = started.partition(" -m ")[2]
    assert words == (
        f"engine serve --host 127.0.0.1 --port {port} --enable-admin --model models/m "
        "--api-key sesame --block-size 32 --max-model-len 512"
    )
    config, options = from_arguments(_parser().parse_args(words.split()[1:]))
    assert (config.model, config.block_size, config.max_model_len) == ("models/m", 32, 512)
    assert (options.port, options.enable_admin, options.api_key) == (port, True, "sesame")


@pytest.mark.parametrize("odd", [None, "8", []])
def test_settings_that_are_no_numbers_are_told(odd: object) -> None:
    with FakeEngine() as engine:
        target = SlotuneTarget(engine.url)
        target.start()
        engine.knobs["chunk_size"] = odd  # type: ignore[assignment]
        with pytest.raises(TargetError, match="/admin/config does not answer as this engine does"):
            target.knobs()
