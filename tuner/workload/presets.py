"""Named workloads of common use: shapes of lengths, and where each figure comes from.

One table: docs/workloads.md and `tuner workload show` print it. A figure is a published mean or
median; a spread that its source does not give, and every shape without a source, is our own choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap

OWN = "our own choice"


@dataclass(frozen=True, slots=True)
class Preset:
    """text: what the name stands for. figures: what is relied on, of the source; the rest is ours.

    mean and median: the published (prompt, output) tokens that the shape reproduces; None: no such
    figure.
    """

    name: str
    text: str
    figures: str
    source: str
    mean: tuple[float | None, float | None] = (None, None)
    median: tuple[float | None, float | None] = (None, None)


TABLE: tuple[Preset, ...] = (
    Preset(
        "chat",
        "prompt=lognormal(98,1),output=lognormal(245,0.8)",
        "ShareGPT: mean prompt 161.31, mean output 337.99 tokens; spread: our own choice",
        "Kwon et al., Efficient Memory Management for LLM Serving with PagedAttention, SOSP 2023",
        mean=(161.31, 337.99),
    ),
    Preset(
        "rag",
        "prompt=normal(1500,400),output=lognormal(120,0.5),shared_prefix=200",
        "no published figure",
        OWN,
    ),
    Preset(
        "summarize",
        "prompt=normal(1200,300),output=normal(150,30)",
        "no published figure",
        OWN,
    ),
    Preset(
        "code",
        "prompt=lognormal(1500,0.9),output=lognormal(13,0.9)",
        "Azure coding trace: median prompt 1500, median output 13 tokens; spread: our own choice",
        "Patel et al., Splitwise: Efficient Generative LLM Inference Using Phase Splitting, "
        "ISCA 2024",
        median=(1500, 13),
    ),
    Preset(
        "agent",
        "prompt=lognormal(6345,0.778),output=lognormal(30,1.9),shared_prefix=2048,"
        "prefix_groups=16,prefix_skew=1",
        "Mooncake trace: prompt median 6345 and mean 8590, output median 30 and mean 182 tokens; "
        "prefix groups: our own choice",
        "Qin et al., Mooncake, FAST 2025, the released mooncake_trace.jsonl as analysed in "
        "NVIDIA Dynamo's benchmark documentation",
        mean=(8590, 182),
        median=(6345, 30),
    ),
    Preset(
        "offline",
        "prompt=256,output=128,concurrency=64",
        "no published figure",
        OWN,
    ),
)

PRESETS: dict[str, str] = {preset.name: preset.text for preset in TABLE}


def table_lines() -> list[str]:
    """For a terminal: a preset and below it what it stands for and stands on."""
    lines = []
    for preset in TABLE:
        rest = f"{preset.figures} ({preset.source})"
        lines += [f"{preset.name:10}{preset.text}"]
        lines += wrap(rest, 90, initial_indent=" " * 10, subsequent_indent=" " * 10)
    return lines
