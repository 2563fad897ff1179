"""Recorded expositions put into a real Prometheus, so that it holds the very same samples.

promtool makes TSDB blocks of them; nothing is scraped, so that answers can be compared exactly.
"""

from __future__ import annotations

import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from storage.sources.exposition import parse_exposition
from tests.storage.conftest import free_port, wait_until

Pages = Sequence[tuple[float, str]]


def openmetrics(recordings: Mapping[str, Pages]) -> str:
    """All pages by the name of their target, as samples with times; each with an `up` of 1."""
    lines = []
    for instance, pages in recordings.items():
        own = f'job="engine",instance="{instance}"'
        for at_s, page in pages:
            lines.append(f"up{{{own}}} 1 {at_s:.3f}")
            for key, value in parse_exposition(page, at_s).values.items():
                name, _, labels = key.partition("{")
                inside = ",".join(filter(None, [labels.removesuffix("}").strip(), own]))
                lines.append(f"{name}{{{inside}}} {value!r} {at_s:.3f}")
    return "\n".join([*lines, "# EOF", ""])


@contextmanager
def serving_prometheus(recordings: Mapping[str, Pages], folder: Path) -> Iterator[str]:
    """The URL of a Prometheus that holds the recordings."""
    text, data = folder / "pages.txt", folder / "data"
    text.write_text(openmetrics(recordings))
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)],
        check=True, capture_output=True,
    )  # fmt: skip
    (folder / "prometheus.yml").write_text("scrape_configs: []\n")
    port = free_port()
    process = subprocess.Popen(
        ["prometheus", f"--config.file={folder / 'prometheus.yml'}",
         f"--storage.tsdb.path={data}", "--storage.tsdb.retention.time=100y",
         f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: _ready(url), "Prometheus to be ready")
        yield url
    finally:
        process.terminate()
        process.wait(timeout=20)


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        time.sleep(0.05)
        return False
