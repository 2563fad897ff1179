"""`dashboard serve`: checks what it was told, then becomes the Streamlit server.

One process: no child can be orphaned, Ctrl-C and SIGTERM end it. Every fault of the user is found
before the server starts and told in one sentence with exit code 2.
"""

from __future__ import annotations

import argparse
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

from dashboard.settings import DEFAULT_DATABASE, Settings, configure
from tuner.errors import UserError
from tuner.printable import readable

READY_TIMEOUT_S = 60.0


class _Parser(argparse.ArgumentParser):
    """Answers a wrong flag with one sentence instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {readable(message)} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    try:
        settings = _settings(args)
        port = _free_port(args.host, args.port)
    except UserError as fault:
        print(f"dashboard: {readable(str(fault))}", file=sys.stderr)
        return 2
    return _serve(settings, args.host, port)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="dashboard",
        description="Live overview, diagnosis and studies of an LLM server.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"slotune {version('slotune')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser("serve", help="serve the dashboard over HTTP", allow_abbrev=False)
    add = serve.add_argument
    add(
        "--url", action="append", default=[], metavar="URL",
        help="engine to watch, e.g. http://127.0.0.1:8000 (its /metrics is scraped); given several "
        "times, its replicas",
    )  # fmt: skip
    add("--prometheus", metavar="URL", help="read a Prometheus server instead of scraping")
    add(
        "--database",
        default=DEFAULT_DATABASE,
        help="studies to show, file or SQLAlchemy URL; the history of --url is kept beside it "
        f"(default {DEFAULT_DATABASE}, its history in slotune-history.db)",
    )
    add(
        "--no-history",
        action="store_true",
        help="write nothing: metrics of --url are then shown for the last 15 minutes only",
    )
    add(
        "--slo",
        action="append",
        default=[],
        metavar="SLO",
        help="objective to judge by, e.g. 'ttft_p95<500ms' (quoted; may be given again)",
    )
    add(
        "--label",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="only series with this label, with --prometheus e.g. job=vllm; with --url one that "
        "the server gives them itself, e.g. model_name=llama",
    )
    add(
        "--set",
        action="append",
        default=[],
        dest="knobs",
        metavar="KNOB=VALUE",
        help="a setting the server does not tell, e.g. max_num_seqs=64",
    )
    add("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    add("--port", type=int, default=8501, help="port to listen on; 0 takes a free one (8501)")
    add(
        "--refresh",
        type=float,
        default=2.0,
        metavar="SECONDS",
        help="how often live figures are read again (default 2)",
    )
    return parser


def _settings(args: argparse.Namespace) -> Settings:
    from tuner.diagnosis.settings import checked

    if args.url and args.prometheus:
        raise UserError("--url and --prometheus exclude each other: give the one to read from")
    if not 0.5 <= args.refresh <= 300:
        raise UserError(f"--refresh {args.refresh:g} is out of range: 0.5 to 300 seconds")
    _check_slos(args.slo)
    urls = tuple(_base_url("--url", url) or "" for url in args.url)
    return Settings(
        url=urls[0] if len(urls) == 1 else None,
        urls=urls if len(urls) > 1 else (),
        prometheus=_base_url("--prometheus", args.prometheus),
        database=_database(args.database),
        slos=tuple(args.slo),
        refresh_s=args.refresh,
        labels=_labels(args, urls),
        knobs=tuple(checked(dict(_pairs("--set", args.knobs))).items()),
        keep_history=not args.no_history,
    )


def _labels(args: argparse.Namespace, urls: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """What narrows the series; UserError for what a scraped server's series cannot carry, and for
    the same address twice."""
    from storage import StorageError
    from storage.sources.targets import check_labels, instances

    labels = _pairs("--label", args.label)
    if labels and not (urls or args.prometheus):
        raise UserError("--label narrows the series of --prometheus or --url: give one of them")
    try:
        instances(urls)
    except StorageError as fault:
        raise UserError(f"--url: {fault}") from None
    try:
        check_labels(urls, dict(labels))
    except StorageError as fault:
        raise UserError(str(fault)) from None
    return labels


def _database(text: str) -> str:
    """The location as given; UserError when it can be none (a file may still be to come)."""
    from storage import StorageError
    from storage.location import check, parse

    try:
        check(parse(text))
    except StorageError as fault:
        raise UserError(f"--database: {fault}") from None
    return text


def _pairs(flag: str, texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    pairs = []
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise UserError(f"{flag} {text!r}: write NAME=VALUE")
        pairs.append((name, value))
    return tuple(pairs)


def _base_url(flag: str, text: str | None) -> str | None:
    """The address in one form; of a Prometheus the whole path is its own."""
    from storage import address

    if text is None:
        return None
    try:
        return address.base_url(text, drop=address.PASTED if flag == "--url" else ())
    except ValueError as fault:
        raise UserError(f"{flag} {fault}") from None


def _check_slos(texts: Sequence[str]) -> None:
    if texts:
        from tuner.slo import parse_slos

        parse_slos(texts)


def _free_port(host: str, port: int) -> int:
    """The port to serve on (0: one the system picks); UserError when it cannot be had."""
    if not 0 <= port <= 65535:
        raise UserError(f"--port {port} is out of range: 0 to 65535")
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, proto) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            return int(probe.getsockname()[1])
    except (socket.gaierror, UnicodeError):
        raise UserError(f"--host {host[:60]!r} is not an address of this machine") from None
    except OSError as fault:
        raise UserError(
            f"cannot listen on {host}:{port} ({fault.strerror}): choose another --port"
        ) from None


def _serve(settings: Settings, host: str, port: int) -> int:
    configure(settings)
    from streamlit.web import cli as streamlit_cli

    from dashboard.connect import metric_source
    from dashboard.theme import server_flags

    metric_source()  # read from now on, so that the first visitor finds a history

    app = Path(__file__).with_name("app.py")
    threading.Thread(target=_announce, args=(settings, host, port), daemon=True).start()
    arguments = ["run", str(app), *server_flags(host, port)]
    try:
        streamlit_cli.main(arguments, prog_name="dashboard", standalone_mode=False)
    except (KeyboardInterrupt, SystemExit):
        return 0
    return 0


def _announce(settings: Settings, host: str, port: int) -> None:
    """Print the ready line once the server answers; no password in it."""
    from storage.location import history_beside, parse

    shown = f"[{host}]" if ":" in host else host
    reached = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(shown, shown)
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline_s:
        try:
            urllib.request.urlopen(f"http://{reached}:{port}/_stcore/health", timeout=2).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
            continue
        target, database = settings.target or "none", parse(settings.database).text
        kept = parse(history_beside(settings.database)).text
        history = f" history={kept}" if settings.watched and settings.keep_history else ""
        line = f"ready: http://{shown}:{port}  target={target} database={database}{history}"
        print(line, flush=True)
        return


if __name__ == "__main__":
    sys.exit(main())
