"""The metrics of one target over days, in the database: a point a minute for a day, one every ten
minutes for thirty days.

Invariants: size is bounded (1440 + 4320 points a target, MAX_SERIES figures a point); a point says
what happened since the newest one stored, whoever stored that, so that several processes may keep
one target's history; a point and the ten-minute point it completes are stored together.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from storage.database import Database
from storage.errors import StorageError
from storage.history_points import COARSE_S, CODEC, FINE_S, KEPT_S, Layout, Point, fold
from storage.schema import MetricLayoutRow, MetricPointRow, MetricTargetRow

Take = Callable[[float | None], Point | None]
"""Gives the point that follows Unix time at_s (None: the first); None when nothing is new."""


class History:
    """Of the target at `address`. Raises StorageError when the database cannot be used."""

    def __init__(self, database: Database, address: str) -> None:
        self._database = database
        self._address = address
        self._decoded: dict[str, Layout] = {}

    @property
    def location(self) -> str:
        return self._database.location

    def close(self) -> None:
        self._database.close()

    def add(self, take: Take) -> Point | None:
        """Store what `take` gives; it is asked with the time of the newest point stored."""
        with self._database._write() as session:
            target_id = self._target(session)
            newest_s = _newest_s(session, target_id, FINE_S)
            point = take(newest_s)
            if point is None:
                return None
            self._put(session, target_id, FINE_S, point)
            if newest_s is None or newest_s // COARSE_S < point.at_s // COARSE_S:
                self._complete(session, target_id, point.slot(COARSE_S))
                _prune(session, target_id, point.at_s)
            return point

    def read(self, resolution_s: int, after_s: float, until_s: float | None = None) -> list[Point]:
        """The points of one resolution in (after_s, until_s], oldest first."""
        with self._database._read() as session:
            target_id = self._known_target(session)
            if target_id is None:
                return []
            return self._points(session, target_id, resolution_s, after_s, until_s)

    # Below, within one transaction.

    def _known_target(self, session: Session) -> int | None:
        found = select(MetricTargetRow.id).where(MetricTargetRow.address == self._address)
        return session.scalar(found)

    def _target(self, session: Session) -> int:
        found = self._known_target(session)
        if found is not None:
            return found
        row = MetricTargetRow(address=self._address)
        session.add(row)
        session.flush()
        return row.id

    def _put(self, session: Session, target_id: int, resolution_s: int, point: Point) -> None:
        """Into its slot, joined with what stands there already."""
        slot = point.slot(resolution_s)
        there = self._points(session, target_id, resolution_s, slot * resolution_s - 1e-3, None)
        there = [found for found in there if found.slot(resolution_s) == slot]
        point = fold([*there, point])
        session.merge(
            MetricPointRow(
                target_id=target_id,
                resolution_s=resolution_s,
                slot=slot,
                at_s=point.at_s,
                layout_id=_layout_id(session, target_id, point.layout),
                codec=CODEC,
                blob=point.encoded(),
            )
        )
        session.flush()

    def _complete(self, session: Session, target_id: int, current_slot: int) -> None:
        """Ten-minute points of the fine points that none holds yet, up to the slot under way."""
        since_s = _newest_s(session, target_id, COARSE_S) or 0.0
        groups: dict[int, list[Point]] = {}
        for point in self._points(session, target_id, FINE_S, since_s, None):
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
        query = select(MetricPointRow).where(
            MetricPointRow.target_id == target_id,
            MetricPointRow.resolution_s == resolution_s,
            MetricPointRow.slot >= int(after_s // resolution_s),
            MetricPointRow.at_s > after_s,
        )
        if until_s is not None:
            query = query.where(MetricPointRow.at_s <= until_s)
        rows = session.scalars(query.order_by(MetricPointRow.slot)).all()
        try:
            layouts = self._layouts(session, target_id) if rows else {}
            return [
                Point.decoded(row.at_s, layouts[row.layout_id], row.codec, row.blob) for row in rows
            ]
        except (ValueError, KeyError) as fault:
            where = self._database.location
            raise StorageError(f"the history in {where} cannot be read: {fault}") from fault

    def _layouts(self, session: Session, target_id: int) -> dict[int, Layout]:
        """By id; each list is decoded once. A database may give a dropped list's id anew, hence
        the digest."""
        mine = MetricLayoutRow.target_id == target_id
        listed = session.execute(select(MetricLayoutRow.id, MetricLayoutRow.digest).where(mine))
        digests = {row.id: row.digest for row in listed}
        decoded = dict(self._decoded)  # replaced whole: several threads read
        fresh = [id_ for id_, digest in digests.items() if digest not in decoded]
        blobs = select(MetricLayoutRow.digest, MetricLayoutRow.blob)
        for row in session.execute(blobs.where(MetricLayoutRow.id.in_(fresh))):
            decoded[row.digest] = Layout.decoded(row.blob)
        self._decoded = {digest: decoded[digest] for digest in digests.values()}
        return {id_: decoded[digest] for id_, digest in digests.items()}


def _newest_s(session: Session, target_id: int, resolution_s: int) -> float | None:
    newest = select(MetricPointRow.at_s).where(
        MetricPointRow.target_id == target_id, MetricPointRow.resolution_s == resolution_s
    )
    return session.scalar(newest.order_by(MetricPointRow.slot.desc()).limit(1))


def _layout_id(session: Session, target_id: int, layout: Layout) -> int:
    found = session.scalar(
        select(MetricLayoutRow.id).where(
            MetricLayoutRow.target_id == target_id, MetricLayoutRow.digest == layout.digest
        )
    )
    if found is not None:
        return found
    row = MetricLayoutRow(target_id=target_id, digest=layout.digest, blob=layout.encoded())
    session.add(row)
    session.flush()
    return row.id


def _prune(session: Session, target_id: int, now_s: float) -> None:
    """Drops what is older than KEPT_S, and lists of series that no point uses any more."""
    for resolution_s, kept_s in KEPT_S.items():
        session.execute(
            delete(MetricPointRow).where(
                MetricPointRow.target_id == target_id,
                MetricPointRow.resolution_s == resolution_s,
                MetricPointRow.slot < int((now_s - kept_s) // resolution_s),
            )
        )
    used = select(MetricPointRow.layout_id).where(MetricPointRow.target_id == target_id)
    session.execute(
        delete(MetricLayoutRow).where(
            MetricLayoutRow.target_id == target_id, MetricLayoutRow.id.not_in(used)
        )
    )
