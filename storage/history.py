"""The metrics of one target over days, in the database: a point a minute for a day, one every ten
minutes for thirty days.

Invariants: size is bounded (1440 + 4320 points a target, MAX_SERIES figures a point); a point says
what happened since the newest one stored, whoever stored that, so that several processes may keep
one target's history; a point and the ten-minute point it completes are stored together; a row that
cannot be read never keeps the next point from being written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from sqlalchemy import delete, exists, select
from sqlalchemy.orm import Session

from storage.database import Database
from storage.errors import ConflictError, StorageError
from storage.history_points import COARSE_S, CODEC, FINE_S, KEPT_S, Layout, Point, fold
from storage.schema import MetricLayoutRow, MetricPointRow, MetricTargetRow

Take = Callable[[float | None], Point | None]
"""Gives the point that follows Unix time at_s (None: the first); None when nothing is new."""

_TRIES = 5
"""Writers of one target that meet at the same minute: the one who comes second looks again."""


class History:
    """Of the target at `address`. Raises StorageError when the database cannot be used."""

    def __init__(self, database: Database, address: str) -> None:
        self._database = database
        self._address = address
        self._decoded: dict[str, Layout] = {}

    @property
    def location(self) -> str:
        return self._database.location

    @property
    def file_gone(self) -> bool:
        """Whether its file was deleted, moved or replaced since it was opened."""
        return self._database.file_gone

    def close(self) -> None:
        self._database.close()

    def add(self, take: Take) -> Point | None:
        """Store what `take` gives; it is asked with the time of the newest point stored, and once
        more where another process stored one at the same moment."""
        for tries_left in range(_TRIES - 1, -1, -1):
            try:
                with self._database._write() as session:
                    return self._added(session, take)
            except ConflictError:
                if not tries_left:
                    raise
        raise AssertionError("not reached")

    def read(self, resolution_s: int, after_s: float, until_s: float | None = None) -> list[Point]:
        """The points of one resolution in (after_s, until_s], oldest first."""
        with self._database._read() as session:
            target_id = self._known_target(session)
            if target_id is None:
                return []
            return self._points(session, target_id, resolution_s, after_s, until_s)

    # Below, within one transaction.

    def _added(self, session: Session, take: Take) -> Point | None:
        target_id = self._known_target(session, to_write=True)
        newest_s = None if target_id is None else _newest_s(session, target_id, FINE_S)
        point = take(newest_s)
        if point is None:
            return None
        if target_id is None:
            target_id = self._new_target(session)
        self._put(session, target_id, FINE_S, point)
        if newest_s is None or newest_s // COARSE_S < point.at_s // COARSE_S:
            self._complete(session, target_id, point.slot(COARSE_S))
            _prune(session, point.at_s)
        return point

    def _known_target(self, session: Session, *, to_write: bool = False) -> int | None:
        """to_write: no other process writes this target until the transaction ends."""
        found = select(MetricTargetRow.id).where(MetricTargetRow.address == self._address)
        return session.scalar(found.with_for_update() if to_write else found)

    def _new_target(self, session: Session) -> int:
        row = MetricTargetRow(address=self._address)
        session.add(row)
        session.flush()
        return row.id

    def _put(self, session: Session, target_id: int, resolution_s: int, point: Point) -> None:
        """Into its slot, joined with what stands there already; in place of what is unreadable."""
        slot, readable = point.slot(resolution_s), self._readable
        there = readable(session, target_id, resolution_s, slot * resolution_s - 1e-3)
        there = [found for found in there if found.slot(resolution_s) == slot]
        point = fold([*there, point])
        session.merge(
            MetricPointRow(
                target_id=target_id,
                resolution_s=resolution_s,
                slot=slot,
                at_s=point.at_s,
                layout_id=self._layout_id(session, target_id, point.layout),
                codec=CODEC,
                blob=point.encoded(),
            )
        )
        session.flush()

    def _complete(self, session: Session, target_id: int, current_slot: int) -> None:
        """Ten-minute points of the readable fine points that none holds yet, up to the slot under
        way."""
        since_s = _newest_s(session, target_id, COARSE_S) or 0.0
        groups: dict[int, list[Point]] = {}
        for point in self._readable(session, target_id, FINE_S, since_s):
            groups.setdefault(point.slot(COARSE_S), []).append(point)
        for slot, points in groups.items():
            if slot < current_slot:
                self._put(session, target_id, COARSE_S, fold(points))

    def _points(
        self,
        session: Session,
        target_id: int,
        resolution_s: int,
        after_s: float,
        until_s: float | None,
    ) -> list[Point]:
        rows = _rows(session, target_id, resolution_s, after_s, until_s)
        layouts = self._layouts(session, target_id) if rows else {}
        try:
            return [_decoded(row, layouts) for row in rows]
        except ValueError as fault:
            where = self._database.location
            raise StorageError(f"the history in {where} cannot be read: {fault}") from fault

    def _readable(
        self, session: Session, target_id: int, resolution_s: int, after_s: float
    ) -> list[Point]:
        """The points after after_s without those that cannot be read."""
        rows = _rows(session, target_id, resolution_s, after_s, None)
        layouts = self._layouts(session, target_id) if rows else {}
        points = []
        for row in rows:
            with suppress(ValueError):
                points.append(_decoded(row, layouts))
        return points

    def _layouts(self, session: Session, target_id: int) -> dict[int, Layout]:
        """By id, without those that are damaged; each list is decoded once. A database may give a
        dropped list's id anew, hence the digest."""
        mine = MetricLayoutRow.target_id == target_id
        listed = session.execute(select(MetricLayoutRow.id, MetricLayoutRow.digest).where(mine))
        digests = {row.id: row.digest for row in listed}
        decoded = dict(self._decoded)  # replaced whole: several threads read
        fresh = [id_ for id_, digest in digests.items() if digest not in decoded]
        blobs = select(MetricLayoutRow.digest, MetricLayoutRow.blob)
        for row in session.execute(blobs.where(MetricLayoutRow.id.in_(fresh))):
            with suppress(ValueError):
                decoded[row.digest] = Layout.decoded(row.blob)
        self._decoded = {d: decoded[d] for d in digests.values() if d in decoded}
        return {id_: decoded[digest] for id_, digest in digests.items() if digest in decoded}

    def _layout_id(self, session: Session, target_id: int, layout: Layout) -> int:
        """Of the stored list, which is stored anew where it is damaged."""
        mine = MetricLayoutRow.target_id == target_id
        row = session.scalar(
            select(MetricLayoutRow).where(mine, MetricLayoutRow.digest == layout.digest)
        )
        if row is None:
            row = MetricLayoutRow(target_id=target_id, digest=layout.digest, blob=layout.encoded())
            session.add(row)
        elif layout.digest not in self._decoded:
            row.blob = layout.encoded()
        session.flush()
        return row.id


def _rows(
    session: Session, target_id: int, resolution_s: int, after_s: float, until_s: float | None
) -> Sequence[MetricPointRow]:
    query = select(MetricPointRow).where(
        MetricPointRow.target_id == target_id,
        MetricPointRow.resolution_s == resolution_s,
        MetricPointRow.slot >= int(after_s // resolution_s),
        MetricPointRow.at_s > after_s,
    )
    if until_s is not None:
        query = query.where(MetricPointRow.at_s <= until_s)
    return session.scalars(query.order_by(MetricPointRow.slot)).all()


def _decoded(row: MetricPointRow, layouts: Mapping[int, Layout]) -> Point:
    """Raises ValueError for a point that is damaged, or whose list of series is."""
    layout = layouts.get(row.layout_id)
    if layout is None:
        raise ValueError("a list of series is damaged")
    try:
        return Point.decoded(row.at_s, layout, row.codec, row.blob)
    except (KeyError, IndexError, TypeError) as fault:
        raise ValueError("a point of the history is damaged") from fault


_UNSEEN = {"synchronize_session": False}
"""The session holds none of the rows that are dropped."""


def _newest_s(session: Session, target_id: int, resolution_s: int) -> float | None:
    newest = select(MetricPointRow.at_s).where(
        MetricPointRow.target_id == target_id, MetricPointRow.resolution_s == resolution_s
    )
    return session.scalar(newest.order_by(MetricPointRow.slot.desc()).limit(1))


def _prune(session: Session, now_s: float) -> None:
    """Drops what is older than KEPT_S of every target, lists of series that no point uses any more,
    and targets without a point."""
    every_target = select(MetricTargetRow.id)  # lets the key of the points find them
    for resolution_s, kept_s in KEPT_S.items():
        session.execute(
            delete(MetricPointRow).where(
                MetricPointRow.target_id.in_(every_target),
                MetricPointRow.resolution_s == resolution_s,
                MetricPointRow.slot < int((now_s - kept_s) // resolution_s),
            ),
            execution_options=_UNSEEN,
        )
    used = exists().where(MetricPointRow.layout_id == MetricLayoutRow.id)
    session.execute(delete(MetricLayoutRow).where(~used), execution_options=_UNSEEN)
    kept = exists().where(MetricPointRow.target_id == MetricTargetRow.id)
    session.execute(delete(MetricTargetRow).where(~kept), execution_options=_UNSEEN)
