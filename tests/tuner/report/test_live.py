"""The live view: drawn on a terminal, a line now and then in a log, nothing when quiet."""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace

from tuner.measure.progress import Progress, Recent
from tuner.report.live import LiveView, progress_text, sparkline

NONE = Recent(math.nan, math.nan, math.nan, 0)
RUNNING = Progress(
    elapsed_s=12.0, total_s=35.0, warmup_s=5.0, in_flight=16, sent=120, completed=101, failed=3,
    recent_s=10.0, sent_rate=9.8, completed_rate=9.5, output_tps=608.0,
    ttft=Recent(0.102, 0.23, 0.31, 95), tpot=Recent(0.021, 0.03, 0.04, 95), e2e=NONE,
    lag=Recent(0.0001, 0.0004, 0.002, 98),
)  # fmt: skip


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_rates_percentiles_and_time_left() -> None:
    terminal = Terminal()
    with LiveView("http://h:1 · m · chat", stream=terminal) as view:
        view.update(RUNNING)
        view.update(RUNNING)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue())
    for part in ("http://h:1 · m · chat", "measuring 12/35 s · 23 s left", "120 sent · 101 ok",
                 "3 failed", "16 in flight", "608 tok/s", "9.5 req/s", "230 ms", "own lag",
                 "last 10 s", "no data"):  # fmt: skip
        assert part in shown, part


def test_a_log_gets_a_line_and_not_every_time() -> None:
    log = io.StringIO()
    with LiveView("t", stream=log) as view:
        view.update(RUNNING)
        view.update(RUNNING)
    (line,) = log.getvalue().splitlines()
    assert "measuring   12/35 s" in line
    assert "TTFT p95 230 ms n=95" in line
    assert "608 tok/s (last 10 s)" in line


def test_what_is_waited_for_after_the_last_send_goes_on() -> None:
    late = replace(RUNNING, elapsed_s=76.0, in_flight=1)
    assert progress_text(late).startswith("draining for 41 s · in flight 1")
    terminal = Terminal()
    with LiveView("t", stream=terminal) as view:
        view.update(replace(late, total_s=0.0, warmup_s=0.0))
    assert "draining for 76 s" in terminal.getvalue()
    assert "left" not in terminal.getvalue()


def test_quiet_says_nothing() -> None:
    terminal = Terminal()
    with LiveView("t", quiet=True, stream=terminal) as view:
        view.update(RUNNING)
    assert terminal.getvalue() == ""


def test_sparkline() -> None:
    assert sparkline([0.0, 1.0, 2.0]) == "▁▅█"
    assert sparkline([math.nan, 1.0]) == " █"
    assert sparkline([math.nan, 0.0]) == ""
