"""Optuna's own storage inside our database; the only module of this room that imports optuna."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, TypeGuard

import optuna
from sqlalchemy import event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError

from storage import location
from storage.errors import StorageError
from storage.faults import sentence
from storage.location import Location

_TRIES, _PAUSE_S = 10, 0.1
"""Optuna makes its tables without a lock: who comes second at the same moment finds them made."""


def open_optuna_storage(where: Location, check: Callable[[], None]) -> optuna.storages.RDBStorage:
    """Creates Optuna's tables on first use. Raises StorageError, as whatever is asked of it later
    does; check: called at the beginning of every transaction."""
    options: dict[str, Any] = {"pool_pre_ping": True}
    if where.path is not None:
        options = {"connect_args": {"timeout": location.BUSY_TIMEOUT_S}}
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            storage = _opened(where.url.render_as_string(hide_password=False), options)
    except SQLAlchemyError as fault:
        raise StorageError(sentence(where.text, "opened for the search", fault)) from fault
    except optuna.exceptions.StorageInternalError as fault:
        why = fault.__cause__ or fault
        raise StorageError(sentence(where.text, "opened for the search", why)) from fault
    except RuntimeError as fault:
        raise StorageError(
            f"the search history in {where.text} was written by another version of optuna: {fault}"
        ) from fault
    if where.path is not None:
        event.listen(storage.engine, "connect", _sync_normal)

    def translate(context: ExceptionContext) -> None:
        """In place of Optuna's own fault, which blames the data."""
        fault = context.sqlalchemy_exception
        if _is_final(fault) and not context.is_pre_ping:
            raise StorageError(sentence(where.text, "written", fault)) from fault

    event.listen(storage.engine, "handle_error", translate)
    event.listen(storage.engine, "begin", lambda connection: check())
    return storage


def _opened(url: str, options: dict[str, Any]) -> optuna.storages.RDBStorage:
    for tries_left in range(_TRIES - 1, -1, -1):
        try:
            return optuna.storages.RDBStorage(url, engine_kwargs=options)
        except SQLAlchemyError as fault:
            if not tries_left or not _made_meanwhile(fault):
                raise
            time.sleep(_PAUSE_S)
    raise AssertionError("not reached")


def _made_meanwhile(fault: SQLAlchemyError) -> bool:
    """Whether another process made the same table, type or row; a lock has its own time to wait."""
    return isinstance(fault, IntegrityError) or "already exists" in str(fault).lower()


def _is_final(fault: BaseException | None) -> TypeGuard[OperationalError]:
    """Optuna itself mends what another worker made first, and tries again after a deadlock."""
    return isinstance(fault, OperationalError) and "deadlock" not in str(fault.orig).lower()


def _sync_normal(connection: Any, record: object) -> None:
    """As in our own connections: WAL needs no sync per commit to survive a killed process."""
    connection.execute("PRAGMA synchronous=NORMAL")
