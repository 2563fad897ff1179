"""How many workers a cluster has places for, each with the GPUs and CPUs it is to own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.errors import UserError
from tuner.units import count_text


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of the cluster: its address, and what Ray may give away of it in all."""

    address: str
    cpus: float
    gpus: float


@dataclass(frozen=True, slots=True)
class Share:
    """What one worker and its server own."""

    gpus: int
    cpus: float

    def fits(self, machine: Machine) -> int:
        """Workers that have a place on the machine at once; one where nothing is asked for."""
        counts = []
        if self.gpus:
            counts.append(int(machine.gpus // self.gpus))
        if self.cpus:
            counts.append(int(machine.cpus / self.cpus + 1e-9))
        return min(counts, default=1)

    def __str__(self) -> str:
        return f"{count_text(self.gpus, 'GPU')} and {self.cpus:g} CPU"


def share_of(machines: Sequence[Machine], gpus: int | None, cpus: float) -> Share:
    """gpus None: one where the cluster has any."""
    if gpus is None:
        gpus = 1 if any(machine.gpus >= 1 for machine in machines) else 0
    return Share(gpus, cpus)


def workers_of(machines: Sequence[Machine], share: Share, wanted: int | None) -> int:
    """How many to start. wanted None: as many as have GPUs, or one a machine where no GPUs are
    asked for. Raises UserError for more than there are places."""
    fitting = [share.fits(machine) for machine in machines]
    if sum(fitting) == 0:
        raise UserError(
            f"no machine of the Ray cluster has {share} for a worker ({_text(machines)}): lower "
            "--gpus-per-worker or --cpus-per-worker"
        )
    if wanted is None:
        return sum(fitting) if share.gpus else sum(count > 0 for count in fitting)
    # Without a demand nothing limits them: several servers share what the machine has.
    if wanted > sum(fitting) and (share.gpus or share.cpus):
        raise UserError(
            f"--workers {wanted}: the Ray cluster has places for {sum(fitting)} with {share} each "
            f"({_text(machines)}); lower --workers, --gpus-per-worker or --cpus-per-worker"
        )
    return wanted


def _text(machines: Sequence[Machine]) -> str:
    return ", ".join(
        f"{machine.address}: {count_text(int(machine.gpus), 'GPU')}, {machine.cpus:g} CPU"
        for machine in machines
    )
