"""Reading everything once, to find what does not fit together."""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from ontolake.documents import blobs
from ontolake.documents.database import SpaceDatabase, rows
from ontolake.documents.names import name_of
from ontolake.documents.read import replay
from ontolake.documents.values import codec
from ontolake.documents.values.codec import Document, Unstorable
from ontolake.errors import Corruption, NotFound
from ontolake.history import Damage

_HEADS = "SELECT branch, id, seq, op_index FROM head WHERE (branch, id) > (?, ?) ORDER BY branch, id LIMIT 200"
_REVISIONS = """\
SELECT seq, op_index, op, data, commit_seq FROM revision WHERE branch = ? AND id = ? ORDER BY seq, op_index"""
_SNAPSHOTS = "SELECT seq, value FROM snapshot WHERE branch = ? AND id = ? ORDER BY seq"
_WITHOUT_HEAD = """\
SELECT DISTINCT branch, id FROM {table} r
WHERE NOT EXISTS (SELECT 1 FROM head WHERE branch = r.branch AND id = r.id)"""
# Deleting a branch is a commit on it, and does not move its head.
_BRANCHES = """\
SELECT name, head_seq, max(created_seq, coalesce((
  SELECT seq FROM "commit" WHERE branch = name AND original ->> '$.command' IS NOT 'branch/delete'
  ORDER BY seq DESC LIMIT 1), 0))
FROM branch"""
_TAGS = """\
SELECT name, seq FROM tag t WHERE NOT EXISTS (SELECT 1 FROM "commit" WHERE seq = t.seq AND branch = t.branch)"""
_SAME_NAME = """\
SELECT n.name FROM branch_name n JOIN branch b ON b.name = n.line
WHERE b.status <> 'deleted' GROUP BY n.name HAVING count(*) > 1"""


def verify(database: SpaceDatabase) -> Iterator[Damage]:
    """Yield all damage: in SQLite's own structures, in the log, in what is derived from it, and in blobs."""
    with database.read as connection:
        found = [*_structures(connection), *_names(database, connection)]
    yield from found
    after = ("", "")
    while True:
        with database.read as connection:
            heads = rows(connection, _HEADS, after)
            found = [damage for head in heads for damage in _entity(database, connection, *head)]
            hashes = [] if heads else blobs.hashes(connection)
        yield from found
        if not heads:
            break
        after = (heads[-1][0], heads[-1][1])
    for hash in hashes:
        try:
            blobs.get(database, hash)
        except (Corruption, NotFound) as error:
            yield Damage(f"blob {hash}", error.message)


def _structures(connection: apsw.Connection) -> Iterator[Damage]:
    for (said,) in rows(connection, "PRAGMA integrity_check"):
        if said != "ok":
            yield Damage("database", said)
    for table, row, parent, _ in rows(connection, "PRAGMA foreign_key_check"):
        yield Damage(f"table {table}", f"row {row} points to a {parent} that is not there")
    for table in ("revision", "snapshot"):
        for branch, id in rows(connection, _WITHOUT_HEAD.format(table=table)):
            yield Damage(_where(branch, id), f"has a {table} but no head")
    for name, head, newest in rows(connection, _BRANCHES):
        if head != newest:
            yield Damage(f"branch {name_of(name)!r}",
                         f"says that its head is seq {head}, but its newest commit is {newest}")


def _names(database: SpaceDatabase, connection: apsw.Connection) -> Iterator[Damage]:
    if database.has_table("tag"):
        for name, seq in rows(connection, _TAGS):
            yield Damage(f"tag {name!r}", f"names commit {seq}, which is not there")
    if database.has_table("branch_name"):
        for (name,) in rows(connection, _SAME_NAME):
            yield Damage(f"branch {name!r}", "is the name of several branches")


def _entity(
    database: SpaceDatabase, connection: apsw.Connection, branch: str, id: str, head_seq: int, head_index: int
) -> Iterator[Damage]:
    """Fold the log of one entity on one branch, and compare what is derived from it."""
    where = _where(branch, id)
    try:
        parent, fork = database.lineage(branch)
        document = None if parent is None else replay.find(connection, database.view(parent, fork), id).document
    except Corruption as error:
        yield Damage(where, f"its state on the parent branch cannot be read: {error.message}")
        return
    snapshots = dict(rows(connection, _SNAPSHOTS, (branch, id)))
    states: dict[int, Document | None] = {}
    last = (0, 0)
    for seq, op_index, op, data, commit_seq in rows(connection, _REVISIONS, (branch, id)):
        if commit_seq != seq:
            yield Damage(where, f"the revision at seq {seq} says that it belongs to commit {commit_seq}")
        try:
            document = replay.applied(document, op, data)
        except Corruption as error:
            yield Damage(where, f"the revision at seq {seq}, operation {op_index}, cannot be applied: {error.message}")
            return
        last = (seq, op_index)
        if seq in snapshots:
            states[seq] = document
    if last != (head_seq, head_index):
        yield Damage(where, f"its head points to {(head_seq, head_index)}, but its last revision is {last}")
    for seq, value in snapshots.items():
        if seq not in states:
            yield Damage(where, f"has a snapshot at seq {seq}, where nothing changed")
        elif not _matches(value, states[seq]):
            yield Damage(where, f"its snapshot at seq {seq} is not what the log says")


def _matches(value: str, document: Document | None) -> bool:
    try:
        return codec.same(codec.decode(value), document)
    except Unstorable:
        return False


def _where(branch: str, id: str) -> str:
    return f"entity {id!r} on branch {name_of(branch)!r}"
