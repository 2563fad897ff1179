"""str(workload) is the workload: every text that is understood reads back as the same."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.workload import parse_workload

counts = st.integers(1, 5000).map(str)
numbers = st.floats(0.01, 4.0).map(lambda x: f"{x:.7f}")
seconds = st.one_of(st.integers(1, 900).map(lambda n: f"{n}s"), st.just("1.5m"), st.just("250ms"))


@st.composite
def spans(draw: st.DrawFn) -> str:
    low = draw(st.integers(1, 4000))
    return f"{low}..{low + draw(st.integers(0, 4000))}"


@st.composite
def quantiles(draw: st.DrawFn) -> str:
    tokens = sorted(draw(st.lists(st.integers(1, 9000), min_size=2, max_size=6)))
    inner = sorted(
        draw(st.sets(st.integers(1, 99), min_size=len(tokens) - 2, max_size=len(tokens) - 2))
    )
    points = zip([0, *inner, 100], tokens, strict=True)
    return f"quantiles({','.join(f'{percent}:{count}' for percent, count in points)})"


lengths = st.one_of(
    counts,
    spans(),
    st.tuples(counts, counts).map(lambda p: f"normal({p[0]},{p[1]})"),
    st.tuples(counts, st.floats(0.1, 2.5)).map(lambda p: f"lognormal({p[0]},{p[1]:.6f})"),
    quantiles(),
)
rates = st.one_of(
    numbers,
    st.tuples(numbers, numbers).map(lambda p: f"{p[0]}..{p[1]}"),
    st.lists(st.tuples(numbers, seconds), min_size=1, max_size=3).map(
        lambda steps: "/".join([*(f"{level}@{time}" for level, time in steps), "3"])
    ),
)
clients = st.one_of(
    counts, spans(), st.tuples(counts, seconds, counts).map(lambda p: f"{p[0]}@{p[1]}/{p[2]}")
)
shapes = st.one_of(st.just(""), st.just(",arrivals=constant"), numbers.map(",burstiness={}".format))
arrivals = st.one_of(
    st.tuples(rates, shapes).map(lambda p: f"rate={p[0]}{p[1]}"),
    clients.map("concurrency={}".format),
    counts.map("rate=inf,requests={}".format),
)
extras = st.lists(
    st.sampled_from(
        [
            "shared_prefix=20",
            "prefix_groups=7",
            "turns=1..4,followup=12",
            "turns=3,think=exponential(2s)",
        ]
    ),
    max_size=2,
    unique_by=lambda text: text.split("=")[0],
)
names = st.text(
    st.characters(codec="ascii", exclude_characters='"/\0', exclude_categories=["Cc"]),
    min_size=1, max_size=12,
).filter(lambda name: name.strip() == name and name not in (".", ".."))  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(lengths, lengths, arrivals, extras)
def test_drawn_workloads_read_back(prompt: str, output: str, load: str, more: list[str]) -> None:
    workload = parse_workload(",".join([f"prompt={prompt}", f"output={output}", load, *more]))
    again = parse_workload(str(workload))
    assert again == workload
    assert str(again) == str(workload)
    assert again.lengths(3, 5, 1) == workload.lengths(3, 5, 1)


@settings(max_examples=60, deadline=None)
@given(names, arrivals)
def test_files_of_any_name_read_back(name: str, load: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_text("time,prompt,output\n0,5,6\n3,7,8\n")
        for text in (f'file="{path}",{load}', f'trace="{path}",speed=2.5'):
            workload = parse_workload(text)
            assert parse_workload(str(workload)) == workload
