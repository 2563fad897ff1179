"""Gathers rows one by one into columns; the slow road, for files that hold text or JSON.

Every fault of a row is one sentence that begins with file:line.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from tuner.errors import UserError
from tuner.workload.columns import (
    LATEST_TIME,
    Named,
    Path,
    Roles,
    form_of,
    roles_of,
    seconds_per_unit,
    value_at,
)
from tuner.workload.dialog import NotADialogError, dialog_of, text_of, tokens_of
from tuner.workload.rows import Blocks, Rows

MAX_TOKENS = 1_000_000


class Collector:
    """Rows of one file in their order; finish() gives the columns."""

    def __init__(self, path: str, named: Named, form: str) -> None:
        self.path, self.named, self.form = path, named, form
        self.roles: Roles | None = None
        self._count = 0
        self._times = array("d")
        self._prompts, self._outputs, self._turns = array("q"), array("q"), array("q")
        self._offsets, self._sizes = array("q"), array("q")
        self._blocks, self._starts = array("q"), array("q", [0])
        self._dated = self._has_text = False
        self._line = 0

    def add(self, row: Any, line: int, offset: int, size: int) -> None:
        """One row; offset and size are where it lies in the file, in bytes."""
        self._line = line
        if not isinstance(row, dict):
            raise self._fault("is no JSON object")
        if self.roles is None:
            self.roles = self._found(row)
        roles = self.roles
        self._count += 1
        if roles.time:
            self._times.append(self._time(value_at(row, roles.time)))
        if roles.output_tokens:
            self._outputs.append(self._tokens(row, roles.output_tokens))
        if self._has_text:
            self._add_text(row, roles)
            self._offsets.append(offset)
            self._sizes.append(size)
        elif roles.prompt_tokens:
            self._prompts.append(self._tokens(row, roles.prompt_tokens))
        if roles.blocks:
            self._add_blocks(value_at(row, roles.blocks))

    def finish(self) -> Rows:
        if self.roles is None:
            raise UserError(f"{self.path}: holds no rows")
        roles = self.roles
        times = np.array(self._times)
        if len(times) and not self._dated:
            times = times * seconds_per_unit(roles.unit, float(times.max()))
        outputs = np.array(self._outputs, dtype=np.int64)
        return Rows(
            count=self._count,
            form=form_of(self.form, roles),
            roles=roles,
            times_s=times if roles.time else None,
            prompt_tokens=np.array(self._prompts, dtype=np.int64) if self._prompts else None,
            output_tokens=outputs if roles.output_tokens or outputs.any() else None,
            blocks=Blocks(np.array(self._blocks), np.array(self._starts)) if roles.blocks else None,
            offsets=np.array(self._offsets) if roles.has_text else None,
            sizes=np.array(self._sizes) if roles.has_text else None,
            turns=np.array(self._turns) if roles.has_text else None,
            estimated=roles.has_text and roles.prompt_tokens is None,
        )

    def _fault(self, why: str) -> UserError:
        return UserError(f"{self.path}:{self._line}: {why}")

    def _found(self, row: Mapping[str, Any]) -> Roles:
        roles = roles_of(row, self.named, f"{self.path}:{self._line}")
        self._has_text = roles.has_text
        if not (roles.has_text or roles.prompt_tokens or roles.output_tokens or roles.time):
            columns = ", ".join(str(key) for key in row)
            raise self._fault(
                "no column is a prompt, messages, a number of tokens or a time; name it with "
                f"prompt_column=, output_column= or time_column=; it has: {columns}"
            )
        return roles

    def _add_text(self, row: Mapping[str, Any], roles: Roles) -> None:
        try:
            dialog = dialog_of(row, roles)
        except NotADialogError as fault:
            raise self._fault(str(fault)) from None
        self._turns.append(dialog.turns)
        if roles.prompt_tokens:
            self._prompts.append(self._tokens(row, roles.prompt_tokens))
        else:
            sent = "".join(text_of(message["content"]) for message in dialog.request())
            self._prompts.append(max(1, tokens_of(sent)))
        if not roles.output_tokens:
            self._outputs.append(tokens_of(dialog.answer_after(None)))

    def _add_blocks(self, ids: Any) -> None:
        if not isinstance(ids, list):
            raise self._fault("hash_ids is no list of whole numbers")
        try:
            self._blocks.extend(ids)
        except (TypeError, OverflowError):
            raise self._fault("hash_ids is no list of whole numbers") from None
        self._starts.append(len(self._blocks))

    def _time(self, value: Any) -> float:
        if isinstance(value, str):
            try:
                at = datetime.fromisoformat(value.strip())
            except ValueError:
                pass
            else:
                self._dated = True
                return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
            try:
                value = float(value)
            except ValueError:
                raise self._fault(f"{value!r:.60} is no time") from None
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not abs(value) <= LATEST_TIME:
            raise self._fault(f"{value!r:.60} is no time")
        return float(value)

    def _tokens(self, row: Mapping[str, Any], path: Path) -> int:
        value = value_at(row, path)
        if type(value) is int and 0 <= value <= MAX_TOKENS:
            return value
        name = ".".join(path)
        if value is None or value == "":
            raise self._fault(f"has no {name}")
        try:
            number = float("nan" if isinstance(value, bool) else value)
            tokens = int(number)
        except (TypeError, ValueError, OverflowError):
            raise self._fault(f"{name} {value!r:.60} is no whole number of tokens") from None
        if tokens != number or not 0 <= tokens <= MAX_TOKENS:
            raise self._fault(f"{name} {value!r:.60} is no number of tokens from 0 to {MAX_TOKENS}")
        return tokens
