"""Recorded expositions put into a real Prometheus, so that it holds the very same samples.

promtool makes TSDB blocks of them; nothing is scraped, so that answers can be compared exactly.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from storage.sources.exposition import parse_exposition
from tests.storage.sources.real_prometheus import DATA, prometheus

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
    text = folder / "pages.txt"
    text.write_text(openmetrics(recordings))
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder / DATA)],
        check=True, capture_output=True,
    )  # fmt: skip
    with prometheus(folder, (), "--storage.tsdb.retention.time=100y") as url:
        yield url
