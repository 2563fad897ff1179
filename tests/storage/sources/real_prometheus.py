"""A Prometheus server of our own, of the Debian package, for as long as a block lasts."""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.storage.conftest import free_port, wait_until

DATA = "data"
"""The TSDB, in the server's folder."""


@contextmanager
def prometheus(folder: Path, jobs: Sequence[str] = (), *flags: str) -> Iterator[str]:
    """Its URL once it is ready. jobs: entries of scrape_configs, every second, with {own} where the
    server's own address goes."""
    port = free_port()
    own = f"127.0.0.1:{port}"
    config = folder / "prometheus.yml"
    lines = ["global: {scrape_interval: 1s, scrape_timeout: 1s}", "scrape_configs:"]
    config.write_text("\n".join([*lines, *(f"  - {job.replace('{own}', own)}" for job in jobs)]))
    process = subprocess.Popen(
        ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / DATA}",
         f"--web.listen-address={own}", *flags],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder,
    )  # fmt: skip
    try:
        wait_until(lambda: _ready(f"http://{own}"), "Prometheus to be ready")
        yield f"http://{own}"
    finally:
        process.terminate()
        process.wait(timeout=20)


@contextmanager
def prometheus_of(target: str, folder: Path) -> Iterator[str]:
    """One that scrapes the target (its URL) as job `engine`, and itself as `self`."""
    address = target.split("//")[1]
    jobs = [
        f"{{job_name: engine, static_configs: [{{targets: ['{address}']}}]}}",
        "{job_name: self, static_configs: [{targets: ['{own}']}]}",
    ]
    with prometheus(folder, jobs) as url:
        yield url


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
