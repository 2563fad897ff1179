"""The main job on this machine, with a real model: engine, dashboard, one `tuner optimize`.

Starts its own engine and dashboard, tunes the engine under an SLO, prints what was found, and
leaves both up until Ctrl-C (with --exit it ends by itself). Whatever way it ends, nothing it
started is left running: each child has a process group of its own, and dies with this process.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

BIN = Path(sys.executable).parent
HOME = Path(".slotune/demo")
DASHBOARD_PORT = 8501
PR_SET_PDEATHSIG = 1


class DemoError(Exception):
    """What went wrong, in a sentence."""


ENGINE_NICENESS = 5
"""The load generator shares the cores with the engine, whose threads would keep it waiting."""


@dataclass
class Child:
    """A process group of ours, with its log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def stop(self, grace_s: float = 10.0) -> None:
        """Ask the group to end, then make it."""
        for signal_number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
            try:
                os.killpg(self.process.pid, signal_number)
            except ProcessLookupError:
                break
            try:
                self.process.wait(wait_s)
            except subprocess.TimeoutExpired:
                continue
        self.process.wait()

    def log_tail(self, lines: int = 15) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def start(name: str, command: list[str], *, niceness: int = 0) -> Child:
    log = HOME / f"{name}.log"
    libc = ctypes.CDLL(None)

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        os.nice(niceness)

    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=prepare,
        )
    return Child(name, process, log)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def require_port_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise DemoError(
                f"port {port} on 127.0.0.1 is in use: stop what listens there, "
                "or choose another with ARGS='--dashboard-port 8502'"
            ) from None


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def wait_until_up(child: Child, url: str, timeout_s: float) -> float:
    """Seconds until url answers 200; progress on the terminal; DemoError with the log's tail."""
    began = time.monotonic()
    while not answers(url):
        waited_s = time.monotonic() - began
        if child.process.poll() is not None:
            raise DemoError(f"{child.name} ended while starting:\n{child.log_tail()}")
        if waited_s > timeout_s:
            raise DemoError(f"{child.name} is not up after {timeout_s:.0f} s:\n{child.log_tail()}")
        if sys.stdout.isatty():
            say(f"\r   waiting for {child.name}: {waited_s:4.0f} s", end="")
        time.sleep(0.5)
    waited_s = time.monotonic() - began
    told = f"   {child.name} is up after {waited_s:.0f} s"
    say(f"\r{told:<40}" if sys.stdout.isatty() else told)
    return waited_s


def check_owner(base_url: str, child: Child) -> None:
    """The server that answers must be the one that was started here."""
    with urllib.request.urlopen(f"{base_url}/server_info", timeout=5) as response:
        pid = int(json.load(response)["pid"])
    if os.getpgid(pid) != child.process.pid:
        raise DemoError(f"{base_url} is answered by process {pid}, which is not the demo's engine")


def say(text: str = "", end: str = "\n") -> None:
    print(text, end=end, flush=True)


def run(options: argparse.Namespace, children: list[Child]) -> int:
    HOME.mkdir(parents=True, exist_ok=True)
    require_port_free(options.dashboard_port)
    port = free_port()
    engine_url = f"http://127.0.0.1:{port}"
    dashboard_url = f"http://127.0.0.1:{options.dashboard_port}"
    database = str(HOME / "slotune.db")
    slo = options.slo

    say("1/3 engine: SmolLM2-135M-Instruct on this machine")
    engine = start(
        "engine", [str(BIN / "engine"), "serve", "--port", str(port), "--enable-admin",
         "--gpu-memory-utilization-limit", "0.95"],
        niceness=ENGINE_NICENESS,
    )  # fmt: skip
    children.append(engine)
    wait_until_up(engine, f"{engine_url}/health", timeout_s=180)
    check_owner(engine_url, engine)

    say(f"2/3 dashboard: {dashboard_url}")
    dashboard = start(
        "dashboard",
        [
            str(BIN / "dashboard"), "serve", "--port", str(options.dashboard_port),
            "--url", engine_url, "--database", database, "--slo", slo,
        ],
    )  # fmt: skip
    children.append(dashboard)
    wait_until_up(dashboard, f"{dashboard_url}/_stcore/health", timeout_s=60)

    command = [
        "optimize", "--url", engine_url, "--slo", slo, "--calibrate", "--apply",
        "--budget", options.budget, "--database", database,
    ]  # fmt: skip
    shown = " ".join(f'"{word}"' if "<" in word else word for word in command)
    say(f"3/3 tuning: tuner {shown}\n")
    code = subprocess.run([str(BIN / "tuner"), *command]).returncode
    if code not in (0, 1):
        return code
    say(f"\nlogs and database are kept in {HOME}/")
    if options.exit:
        say("engine and dashboard are stopped; to go on, start an engine and give its --url")
        say(f"see the study again: {again(database)}")
    else:
        say(f"engine {engine_url} and dashboard {dashboard_url} stay up until Ctrl-C")
        while all(child.process.poll() is None for child in children):
            time.sleep(1)
        ended = next(c for c in children if c.process.poll() is not None)
        raise DemoError(f"{ended.name} ended by itself:\n{ended.log_tail()}")
    return 0  # also when the answer was that nothing meets the SLO: it has been printed


def again(database: str) -> str:
    """The command that shows the stored study without an engine."""
    return f"{BIN / 'dashboard'} serve --database {database}"


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo ARGS=…", description=__doc__)
    parser.add_argument("--exit", action="store_true", help="end when the tuning run has ended")
    parser.add_argument("--budget", default="5m", help="time for the tuning run (default 5m)")
    parser.add_argument("--slo", default="ttft_p95<500ms", help="default ttft_p95<500ms")
    parser.add_argument("--dashboard-port", type=int, default=DASHBOARD_PORT)
    return parser.parse_args(argv)


def interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    options = parse()
    children: list[Child] = []
    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGHUP, interrupt)
    try:
        return run(options, children)
    except KeyboardInterrupt:
        say("\nstopping")
        return 0
    except DemoError as error:
        say()
        print(f"demo: {error}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for child in reversed(children):
            child.stop()


if __name__ == "__main__":
    sys.exit(main())
