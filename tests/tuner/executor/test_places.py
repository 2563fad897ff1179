"""Workers have places where their GPUs and CPUs are, and nowhere else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import UserError
from tuner.executor.places import Machine, Share, share_of, workers_of

GPU8, GPU2, HEAD = Machine("a", 64, 8), Machine("b", 8, 2), Machine("head", 4, 0)


@pytest.mark.parametrize(
    ("machines", "gpus", "cpus", "wanted", "count"),
    [
        ([GPU8, GPU2, HEAD], None, 1, None, 10),
        ([GPU8, GPU2, HEAD], 2, 1, None, 5),
        ([GPU8, GPU2], 4, 1, None, 2),
        ([GPU8, GPU2], 1, 8, None, 9),  # the CPUs of b suffice for one
        ([GPU8, GPU2], 1, 1, 3, 3),
        ([HEAD, Machine("other", 4, 0)], None, 1, None, 2),  # one a machine
        ([HEAD], None, 1, 4, 4),
        ([GPU8], 0, 1, None, 1),
        ([HEAD], 0, 0, 9, 9),  # nothing asked for, nothing to run out
        ([Machine("a", 2, 0)], None, 0.1, 20, 20),
    ],
)
def test_as_many_as_fit(
    machines: list[Machine], gpus: int | None, cpus: float, wanted: int | None, count: int
) -> None:
    assert workers_of(machines, share_of(machines, gpus, cpus), wanted) == count


@pytest.mark.parametrize(
    ("machines", "share", "wanted", "says"),
    [
        ([GPU2], Share(1, 1), 3, "--workers 3: the Ray cluster has places for 2 with 1 GPU"),
        ([GPU2, GPU2], Share(4, 1), None, "no machine of the Ray cluster has 4 GPUs and 1 CPU"),
        ([HEAD], Share(0, 8), 1, "no machine of the Ray cluster has 0 GPUs and 8 CPU"),
        ([], Share(0, 1), None, "no machine"),
    ],
)
def test_more_than_there_is_room_for_is_refused(
    machines: list[Machine], share: Share, wanted: int | None, says: str
) -> None:
    with pytest.raises(UserError, match=says):
        workers_of(machines, share, wanted)


@given(
    machines=st.lists(
        st.builds(Machine, st.just("m"), st.integers(0, 64), st.integers(0, 8)), max_size=5
    ),
    gpus=st.integers(0, 4),
    cpus=st.integers(1, 16),
)
def test_what_is_given_away_is_there(machines: list[Machine], gpus: int, cpus: int) -> None:
    share = Share(gpus, cpus)
    for machine in machines:
        count = share.fits(machine)
        assert count * gpus <= machine.gpus
        assert count * cpus <= machine.cpus
        assert (count + 1) * gpus > machine.gpus or (count + 1) * cpus > machine.cpus
