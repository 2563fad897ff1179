"""The terminal view of a running measurement: rates, requests in flight, percentiles, time left.

On a terminal it is redrawn in place; elsewhere it is one line now and then. Everything goes to
stderr, so that results can be piped.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from tuner.measure.progress import Progress, Recent
from tuner.units import show

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

LINE_EVERY_S = 10.0
HISTORY = 60
BARS = "▁▂▃▄▅▆▇█"


def progress_text(progress: Progress) -> str:
    """The state in one line."""
    window = f"last {progress.recent_s:.0f} s"
    return (
        f"{progress.clock(width=4)} · in flight {progress.in_flight} · done {progress.completed} · "
        f"failed {progress.failed} · TTFT p95 {show(progress.ttft.p95_s, 's')} "
        f"n={progress.ttft.n} · "
        f"{progress.output_tps:.0f} tok/s ({window})"
    )


class LiveView:
    """A context manager; update() is called about twice a second. title: what is measured."""

    def __init__(self, title: str, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._title, self._quiet = title, quiet
        self._drawn = not quiet and self._stream.isatty()
        self._next_line_s = 0.0
        self._tps: deque[float] = deque(maxlen=HISTORY)
        self._ttft: deque[float] = deque(maxlen=HISTORY)

    def __enter__(self) -> LiveView:
        if self._drawn:
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream)
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._drawn:
            self._live.stop()

    def update(self, progress: Progress) -> None:
        if self._quiet:
            return
        self._tps.append(progress.output_tps)
        self._ttft.append(progress.ttft.p95_s)
        if self._drawn:
            self._live.update(self._frame(progress), refresh=True)
        elif time.monotonic() >= self._next_line_s:
            self._next_line_s = time.monotonic() + LINE_EVERY_S
            try:
                print(progress_text(progress), file=self._stream, flush=True)
            except BrokenPipeError:  # nobody reads it any more; the measurement goes on
                self._quiet = True

    def _frame(self, progress: Progress) -> RenderableType:
        from rich.console import Group
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        done_s = min(progress.elapsed_s, progress.total_s)
        clock = Table.grid(padding=(0, 1), expand=True)
        clock.add_column(ratio=1)
        clock.add_column(justify="right")
        left = progress.clock()
        if progress.phase != "draining":
            left += f" · {progress.eta_s:.0f} s left"
        total_s = max(1e-9, progress.total_s)
        bar = ProgressBar(total=total_s, completed=max(1e-9, done_s))
        clock.add_row(bar, Text(left))
        failed = f"{progress.failed} failed"
        counts = Text.assemble(
            f"{progress.sent} sent · {progress.completed} ok · ",
            (failed, "bold red") if progress.failed else failed,
            f" · {progress.in_flight} in flight",
        )
        rates = Text(
            f"sent {progress.sent_rate:.3g} req/s · ok {progress.completed_rate:.3g} req/s · "
            f"output {progress.output_tps:.0f} tok/s  {sparkline(list(self._tps))}"
        )
        foot = Text(
            f"rates and percentiles are of the last {progress.recent_s:.0f} s; the result counts "
            "the window only",
            style="dim",
        )
        body = Group(clock, counts, rates, _latencies(progress, sparkline(list(self._ttft))), foot)
        return Panel(body, title=Text(self._title), title_align="left")


def _latencies(progress: Progress, trend: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("latency")
    for name in ("p50", "p95", "p99", "n"):
        table.add_column(name, justify="right", min_width=9)
    table.add_column("p95 over time")
    rows: list[tuple[str, Recent, str]] = [
        ("TTFT", progress.ttft, trend),
        ("TPOT", progress.tpot, ""),
        ("E2E", progress.e2e, ""),
        ("own lag", progress.lag, ""),
    ]
    for name, recent, drawn in rows:
        values = (show(value, "s") for value in (recent.p50_s, recent.p95_s, recent.p99_s))
        table.add_row(name, *values, str(recent.n), drawn)
    return table


def sparkline(values: list[float]) -> str:
    """One bar per value, from 0 to the largest; blanks where there is no value."""
    known = [value for value in values if value == value and value != float("inf")]
    top = max(known, default=0.0)
    if top <= 0:
        return ""
    return "".join(
        BARS[min(len(BARS) - 1, int(value / top * (len(BARS) - 1) + 0.5))]
        if value == value and value != float("inf")
        else " "
        for value in values
    )
