"""Requests of a running engine that end as nobody wanted: refused, given up, cut off. Named first
over its /metrics, and gone with what the lever says: a knob, or what the clients ask."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.servers import running
from tests.tuner.diagnosis.real_engine import (
    FLAGS,
    GOOD,
    LIMIT_S,
    SMALL,
    Load,
    calm,
    levers,
    look,
    named_alone,
    named_first,
    turn,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

FAR = ["ttft_p95<60s"]
"""No latency is too long here: what ends badly is to be seen by itself."""

ENDS_BY_ITSELF = {"ignore_eos": False, "temperature": 1.0, "stop_token_ids": list(range(40))}
"""The tiny model gives all of its 270 tokens alike: about one in seven ends the answer."""


def test_a_full_queue_refuses_and_more_places_end_it(small_model: Path, tmp_path: Path) -> None:
    """One place and four to wait in, for eight clients. No two pause or ask alike, so that they do
    not come back together."""
    own = ("--max-num-queued-reqs", "4")
    arguments = ("serve", "--model", str(small_model), *FLAGS, *SMALL, *own)
    with (
        running("engine", *arguments, log=tmp_path / "log") as program,
        contextlib.ExitStack() as clients,
    ):
        turn(program.url, max_num_seqs=1)
        for number in range(8):
            load = Load(program.url, 1, 40, 60 + 7 * number, 0.03 + 0.005 * number, comes_back=True)
            clients.enter_context(load.offered())
        ill = look(program.url, FAR, lambda found: named_first("2.rejections", found))
        assert named_first("2.rejections", ill), ill.headline
        assert levers(ill, "2.rejections")[0] == "raise the queue limit or add capacity"
        turn(program.url, max_num_seqs=GOOD["max_num_seqs"])
        well = look(program.url, FAR, calm)
    assert calm(well), well.headline


def test_clients_that_give_up_are_aborts_until_they_wait(engine: str) -> None:
    turn(engine, **GOOD)
    hasty = Load(engine, 3, 40, 600, patience_s=0.2, comes_back=True)
    patient = Load(engine, 2, 40, 100, 0.2, asks=ENDS_BY_ITSELF)
    with hasty.offered(), patient.offered():
        ill = look(engine, FAR, lambda found: named_alone("2.aborts", found))
        assert named_alone("2.aborts", ill), ill.headline
        assert levers(ill, "2.aborts") == ["clients' timeouts and max_tokens"]
        hasty.patience_s = LIMIT_S
        well = look(engine, FAR, lambda found: calm(found, "2.aborts"))
        hasty.output_tokens = 1
    assert calm(well, "2.aborts"), well.headline


def test_answers_that_max_tokens_cuts_off_end_by_themselves_with_more(engine: str) -> None:
    turn(engine, **GOOD)
    with Load(engine, 4, 40, 5, asks=ENDS_BY_ITSELF).offered() as load:
        ill = look(engine, FAR, lambda found: named_alone("2.length", found))
        assert named_alone("2.length", ill), ill.headline
        assert levers(ill, "2.length") == ["clients' timeouts and max_tokens"]
        load.output_tokens = 100
        well = look(engine, FAR, calm)
    assert calm(well), well.headline
