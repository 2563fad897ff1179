"""The Ray cluster: joined or started, its machines, and workers on them. Nothing else imports Ray.

Invariant: a worker is an actor that belongs to this process: Ray ends it, and with it its sitting
and its server, when this process is gone, however it ended.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tuner.errors import UserError
from tuner.executor.crew import WorkerLostError
from tuner.executor.places import Machine, Share
from tuner.executor.worker import Heard, Worker

LOCAL = "local"
_STORE_BYTES = 100 * 1024**2
"""Object store of a local cluster: lines of text are all that passes through it."""

_ANSWER_S = 10.0
"""How long a head node, and a worker that has no place yet, is waited for at a time."""


class Cluster:
    """Made by joined()."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    def machines(self) -> list[Machine]:
        """Those that are up."""
        return [
            Machine(
                node["NodeManagerAddress"],
                node["Resources"].get("CPU", 0.0),
                node["Resources"].get("GPU", 0.0),
            )
            for node in self._ray.nodes()
            if node["Alive"]
        ]

    def all_here(self) -> bool:
        """Whether every machine of the cluster is this one."""
        here = {self._ray.util.get_node_ip_address(), "127.0.0.1"}
        return all(machine.address in here for machine in self.machines())

    def seat(self, command: Sequence[str], order: str, share: Share) -> RaySeat:
        """A worker wherever the share is free, now or later."""
        options = {
            "num_gpus": share.gpus, "num_cpus": share.cpus, "max_restarts": 0,
            "scheduling_strategy": "SPREAD",
        }  # fmt: skip
        actor = self._ray.remote(**options)(Worker).remote(list(command), order, os.getcwd())
        return RaySeat(self._ray, actor, share)


class RaySeat:
    """A crew's seat, wherever it is."""

    def __init__(self, ray: Any, actor: Any, share: Share) -> None:
        self._ray, self._actor, self._share = ray, actor, share
        self._asked: Any = None
        self._placed = self._told = False

    def poll(self) -> Heard:
        try:
            if self._asked is None:
                self._asked = self._actor.poll.remote()
            ready, _ = self._ray.wait([self._asked], timeout=_ANSWER_S)
            if not ready:
                return self._waiting()
            heard: Heard = self._ray.get(self._asked)
        except self._ray.exceptions.RayError as error:
            raise WorkerLostError(_why(error)) from error
        self._asked, self._placed = None, True
        return heard

    def stop(self) -> None:
        with contextlib.suppress(self._ray.exceptions.RayError):
            if self._placed:
                self._actor.stop.remote()
            else:
                self._ray.kill(self._actor)

    def _waiting(self) -> Heard:
        """Told once, and only of one that has never answered."""
        if self._placed or self._told:
            return Heard()
        self._told = True
        return Heard([f"waits until {self._share} are free in the cluster"])


@contextlib.contextmanager
def joined(address: str | None) -> Iterator[Cluster]:
    """The cluster at address ("local": a new one here); None: the one this machine belongs to, else
    a new one here. Raises UserError."""
    _check_answers(address or os.environ.get("RAY_ADDRESS") or LOCAL)
    ray = find_ray()
    try:
        _join(ray, address)
        yield Cluster(ray)
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """UserError where nobody listens: Ray itself would wait for ever."""
    if address in (LOCAL, "auto"):
        return
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S).close()
    except ValueError:
        raise UserError(f"--ray-address {address!r}: write HOST:PORT of the head node") from None
    except OSError as error:
        raise UserError(
            f"--ray-address {address}: no Ray cluster answers there ({error.strerror or error}); "
            "give HOST:PORT of its head node, or leave it out for a local one"
        ) from error


def find_ray() -> Any:
    """The module. Raises UserError, saying how to install it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a local cluster reports to nobody
    if (Path.home() / ".ray" / "auth_token").exists():  # as Ray's own programs decide
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    try:
        import ray
    except ImportError as error:
        raise UserError("--executor ray needs Ray: pip install 'slotune[ray]'") from error
    return ray


def _join(ray: Any, address: str | None) -> None:
    before = signal.getsignal(signal.SIGTERM)  # init puts its own in its place
    try:
        _init(ray, address)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        where = f" at {address}" if address else ""
        raise UserError(
            f"the Ray cluster{where} cannot be joined: {_why(error)}; one that asks for a token "
            "needs RAY_AUTH_MODE=token and RAY_AUTH_TOKEN here, too"
        ) from error
    finally:
        signal.signal(signal.SIGTERM, before)


def _init(ray: Any, address: str | None) -> None:
    """What Ray raises. A new cluster, also one that Ray starts because this machine belongs to
    none, is a small one; one that is there refuses the options of a new one and keeps its own."""
    new = {"include_dashboard": False, "object_store_memory": _STORE_BYTES}
    given = address or os.environ.get("RAY_ADDRESS") or None
    init = functools.partial(ray.init, log_to_driver=False, logging_level="ERROR")
    if given == LOCAL:
        init(address=LOCAL, **new)
    elif given is not None:
        init(address=address)
    else:
        try:
            init(address=None, **new)
        except ValueError:  # raised before it connects
            init(address=None)


def _why(error: Exception) -> str:
    """One line of what Ray says in many."""
    lines = [line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()]
    missing = [line for line in lines if line.startswith("ModuleNotFoundError")]
    if missing:
        return f"{missing[-1]}; slotune must be installed alike on every machine of the cluster"
    return lines[0] if lines else type(error).__name__
