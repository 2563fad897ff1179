"""A fresh database per test, SQLite and (where its programs are installed) PostgreSQL."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from storage import Database, open_database


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(true: Callable[[], bool], what: str, limit_s: float = 30.0) -> None:
    end_s = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end_s, f"waited {limit_s:g} s for {what}"
        time.sleep(0.05)


def _program(name: str) -> str | None:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else shutil.which(name)


def _as_postgres() -> list[str]:
    """PostgreSQL refuses to run as root: a prefix that steps down to its own user."""
    if os.geteuid() != 0:
        return []
    return ["runuser", "-u", "postgres", "--"]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a server of our own, on a free port, in a temporary folder."""
    initdb, server = _program("initdb"), _program("postgres")
    if initdb is None or server is None:
        pytest.skip("PostgreSQL is not installed: only SQLite was tested")
    if os.geteuid() == 0 and "postgres" not in {entry.pw_name for entry in pwd.getpwall()}:
        pytest.skip("there is no user postgres to run PostgreSQL as: only SQLite was tested")
    folder = Path(tempfile.mkdtemp(prefix="slotune-pg-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    prefix, data, port = _as_postgres(), folder / "data", free_port()
    subprocess.run(
        [*prefix, initdb, "-D", str(data), "-U", "postgres", "-A", "trust", "--no-sync"],
        check=True, capture_output=True, cwd=folder,
    )  # fmt: skip
    process = subprocess.Popen(
        [*prefix, server, "-D", str(data), "-p", str(port), "-k", str(folder),
         "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder,
    )  # fmt: skip
    url = f"postgresql://postgres@127.0.0.1:{port}"
    try:
        wait_until(lambda: _answers(port), "PostgreSQL")
        yield url
    finally:
        pid = int((data / "postmaster.pid").read_text().split()[0])
        os.kill(pid, 2)  # SIGINT: fast shutdown
        process.wait(timeout=30)
        shutil.rmtree(folder, ignore_errors=True)


def _answers(port: int) -> bool:
    try:
        engine = create_engine(f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres")
        with engine.connect():
            return True
    except Exception:
        return False


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database: nothing in it, no file yet."""
    if request.param == "sqlite":
        return str(tmp_path / "slotune.db")
    server: str = request.getfixturevalue("postgres_server")
    name = f"t{time.time_ns()}"
    engine = create_engine(
        f"{server}/postgres".replace("postgresql:", "postgresql+psycopg:"),
        isolation_level="AUTOCOMMIT",
    )
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return f"{server}/{name}"


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    with open_database(database_url) as opened:
        yield opened
