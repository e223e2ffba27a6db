"""The read algorithm: the nearest full document at or before a seq, and the patches behind it.

A full document is a snapshot or a `set`, so the cost of a read is bounded by the distance between snapshots, not by
the length of the history. What a branch has not touched is read from its parents, each up to where it was left.
Every function here runs inside a transaction, and on rows that never change once they are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apsw
from msgspec import Struct

from ontolake.documents.database import View, row, rows
from ontolake.documents.errors import PatchError
from ontolake.documents.values import codec, patches
from ontolake.documents.values.codec import Document, Unstorable
from ontolake.errors import Corruption

Row = tuple[int, int, str, str | None]
"""A revision: seq, op_index, op, data."""


class EntityState(Struct, frozen=True, gc=False):
    """An entity at some moment: what it is, and which seq touched it last.

    `replayed` patches lie between it and a full document, and about `size` bytes were read for it.
    """

    document: Document | None
    changed: int = 0
    replayed: int = 0
    size: int = 0


CHUNK = 500
"""Entities that are read at once."""
_TO_DO = "space.verify() lists the damage"

NOW = 2**63 - 1
"""A seq that no commit reaches: a view up to here shows the current state."""

NEVER = EntityState(None)
"""An entity that no commit has touched."""

_HEAD = """\
SELECT h.seq, s.seq, s.value FROM head h
LEFT JOIN snapshot s ON s.branch = h.branch AND s.id = h.id
  AND s.seq = (SELECT max(seq) FROM snapshot WHERE branch = h.branch AND id = h.id)
WHERE h.branch = ? AND h.id = ?"""

_SNAPSHOT = """\
SELECT seq, value FROM snapshot
WHERE branch = ? AND id = ? AND seq <= ?
ORDER BY seq DESC LIMIT 1"""

# Newest first, so that reading can stop at a set or a delete.
_REVISIONS = """\
SELECT seq, op_index, op, data FROM revision
WHERE branch = ? AND id = ? AND seq > ? AND seq <= ?
ORDER BY seq DESC, op_index DESC"""

_NEWEST_OF_MANY = """\
SELECT w.value, r.seq, r.op, r.data FROM json_each(?1) w CROSS JOIN revision r
WHERE r.rowid = (
  SELECT rowid FROM revision WHERE branch = ?2 AND id = w.value AND seq <= ?3
  ORDER BY seq DESC, op_index DESC LIMIT 1)"""

_SNAPSHOTS_OF_MANY = """\
SELECT w.value, s.seq, s.value FROM json_each(?1) w CROSS JOIN snapshot s
WHERE s.branch = ?2 AND s.id = w.value
  AND s.seq = (SELECT max(seq) FROM snapshot WHERE branch = ?2 AND id = w.value AND seq <= ?3)"""

# `start` is the last set or delete behind the snapshot: what came before it need not be read.
_REVISIONS_OF_MANY = """\
WITH wanted AS MATERIALIZED (
  SELECT w.value ->> 0 AS id, coalesce(
    (SELECT seq FROM revision
     WHERE branch = ?2 AND id = w.value ->> 0 AND seq > w.value ->> 1 AND seq <= ?3 AND op <> 'patch'
     ORDER BY seq DESC LIMIT 1),
    (w.value ->> 1) + 1) AS start
  FROM json_each(?1) w)
SELECT r.id, r.seq, r.op_index, r.op, r.data FROM wanted CROSS JOIN revision r
WHERE r.branch = ?2 AND r.id = wanted.id AND r.seq >= wanted.start AND r.seq <= ?3
ORDER BY r.id, r.seq DESC, r.op_index DESC"""


class Replay:
    """One entity while its past is read backwards: patches pile up until a full document turns up."""

    __slots__ = ("changed", "patches")

    def __init__(self) -> None:
        self.changed = 0
        self.patches: list[str] = []

    def back(self, rows: Iterable[Row]) -> EntityState | None:
        """Take in revisions, newest first. The result, once a set or a delete has been reached."""
        for seq, _, op, data in rows:
            if not self.changed:
                self.changed = seq
            if op != "patch":
                return self.from_base(data)
            assert data is not None
            self.patches.append(data)
        return None

    def from_base(self, text: str | None) -> EntityState:
        """The result: this document, or none, and what the patches have made of it since."""
        try:
            document: Document | None = None if text is None else codec.decode(text)
            size = 0 if text is None else len(text)
            if self.patches:
                for listed in patches.load_many(self.patches[::-1]):
                    document = patches.apply(document, listed)
                size += sum(map(len, self.patches))
        except (Unstorable, PatchError) as error:
            raise Corruption(f"the revisions up to seq {self.changed} do not fit together: {error}",
                             hint=_TO_DO) from None
        return EntityState(document, self.changed, len(self.patches), size)


def applied(document: Document | None, op: str, data: str | None) -> Document | None:
    """What a stored operation makes of a document. Raises `Corruption` if it does not fit."""
    try:
        if op == "patch":
            return patches.apply(document, patches.load(data or ""))
        return None if data is None else codec.decode(data)
    except (Unstorable, PatchError) as error:
        raise Corruption(f"a revision does not fit: {error}", hint=_TO_DO) from None


def find(connection: apsw.Connection, view: View, id: str, *, current: bool = False) -> EntityState:
    """An entity as `view` shows it. `current` says that the view's first branch is read at its head."""
    replay = Replay()
    for branch, limit in view:
        if current:
            current = False
            head = row(connection, _HEAD, (branch, id))
            if head is None:
                continue
            limit, base, value = head
        else:
            base, value = row(connection, _SNAPSHOT, (branch, id, limit)) or (None, None)
        if base is None or base < limit:
            revisions: Iterable[Any] = connection.execute(_REVISIONS, (branch, id, -1 if base is None else base, limit))
            found = replay.back(revisions)
            if found is not None:
                return found
        if value is not None:
            replay.changed = replay.changed or base
            return replay.from_base(value)
    return replay.from_base(None) if replay.changed else NEVER


class Newest(NamedTuple):
    """The newest revision of an entity that a view shows, as it is stored, and the line that it is on."""

    line: str
    seq: int
    op: str
    data: str | None

    def document(self) -> Document | None:
        """The document of a set, None of a delete. Raises `Corruption`."""
        if self.data is None:
            return None
        try:
            found: Document = codec.decode(self.data)
        except Unstorable as error:
            raise Corruption(f"the revision at seq {self.seq} is damaged: {error}", hint=_TO_DO) from None
        return found


def newest_of_many(connection: apsw.Connection, view: View, ids: Iterable[str]) -> dict[str, Newest]:
    """The newest revisions of entities, in a statement for each branch of the view; not of those that never were."""
    found: dict[str, Newest] = {}
    wanted = list(ids)
    for line, limit in view:
        if not wanted:
            break
        for id, *revision in rows(connection, _NEWEST_OF_MANY, (codec.encode(wanted), line, limit)):
            found[id] = Newest(line, *revision)
        wanted = [id for id in wanted if id not in found]
    return found


def find_many(connection: apsw.Connection, view: View, ids: Iterable[str]) -> dict[str, EntityState]:
    """Entities as `view` shows them, in a few statements for each branch of the view."""
    wanted = list(ids)
    found = dict.fromkeys(wanted, NEVER)
    patched: list[str] = []
    for id, newest in newest_of_many(connection, view, wanted).items():
        if newest.op == "patch":
            patched.append(id)
        else:
            found[id] = EntityState(newest.document(), newest.seq, 0, len(newest.data or ""))
    if patched:
        found |= find_patched(connection, view, patched)
    return found


def find_patched(connection: apsw.Connection, view: View, ids: Iterable[str]) -> dict[str, EntityState]:
    """`find_many` for entities whose newest revision is a patch."""
    found: dict[str, EntityState] = {}
    open_replays = {id: Replay() for id in ids}
    for branch, limit in view:
        if not open_replays:
            break
        wanted = codec.encode(list(open_replays))
        bases = {id: (seq, value) for id, seq, value in rows(connection, _SNAPSHOTS_OF_MANY, (wanted, branch, limit))}
        starts = [(id, bases[id][0] if id in bases else -1) for id in open_replays]
        revisions: dict[str, list[Row]] = {}
        for id, *revision in rows(connection, _REVISIONS_OF_MANY, (codec.encode(starts), branch, limit)):
            revisions.setdefault(id, []).append(tuple(revision))
        for id in revisions.keys() | bases.keys():
            replay = open_replays[id]
            result = replay.back(revisions.get(id, ()))
            if result is None and id in bases:
                seq, value = bases[id]
                replay.changed = replay.changed or seq
                result = replay.from_base(value)
            if result is not None:
                found[id] = result
                del open_replays[id]
    for id, replay in open_replays.items():
        found[id] = replay.from_base(None) if replay.changed else NEVER
    return found


def find_in_chunks(
    connection: apsw.Connection, views: Sequence[View], ids: Iterable[str]
) -> Iterator[tuple[str, list[EntityState]]]:
    """Any number of entities, each as all of `views` show it."""
    waiting = list(ids)
    for start in range(0, len(waiting), CHUNK):
        chunk = waiting[start : start + CHUNK]
        found = [find_many(connection, view, chunk) for view in views]
        yield from ((id, [states[id] for states in found]) for id in chunk)
