"""What commits did, in order: the log of a branch as changes with the state before and after, or of one entity.

Feeds are read a page at a time, each page in a short transaction of its own: whoever reads slowly holds up nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import apsw

from ontolake.documents.database import SpaceDatabase, View, row, rows
from ontolake.documents.names import name_of
from ontolake.documents.operations import Revision
from ontolake.documents.read import replay
from ontolake.documents.values import codec
from ontolake.documents.values.codec import Document
from ontolake.history import Change

TABLE = "documents"
"""What documents are called where stores of all kinds are spoken of."""

_PAGE = 'SELECT max(seq) FROM (SELECT seq FROM "commit" WHERE branch = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?)'
_REVISIONS = """\
SELECT seq, id, op, data FROM revision
WHERE branch = ? AND seq > ? AND seq <= ?
ORDER BY seq, op_index"""
_OF_ENTITY = """\
SELECT seq, op_index, op, data FROM revision
WHERE branch = ?1 AND id = ?2 AND seq > ?3 AND seq <= coalesce((
  SELECT seq FROM revision
  WHERE branch = ?1 AND id = ?2 AND seq > ?3 AND seq <= ?4 ORDER BY seq LIMIT 1 OFFSET ?5), ?4)
ORDER BY seq, op_index"""
_COMMITS_A_PAGE = 200

Wanted = Callable[[str], bool]


def changes(
    database: SpaceDatabase, branch: str, since: int, until: int, wanted: Wanted | None = None
) -> Iterator[Change[int]]:
    """What the commits in `(since, until]` that a branch sees did to the entities that are wanted, oldest first."""
    with database.read:
        view = database.view(branch, until)
    # An ancestor's part of the view ends before a descendant's begins, so going through them one by one is in order.
    for name, limit in reversed(view):
        while since < limit:
            with database.read as connection:
                end = _end_of_page(connection, name, since, limit)
                page = list(_changes_of_page(connection, database.view(branch, since), name, since, end, wanted))
            yield from page
            since = end


def _end_of_page(connection: apsw.Connection, branch: str, since: int, until: int) -> int:
    """The last seq of a page of whole commits; `until` when this page is the last."""
    (end,) = row(connection, _PAGE, (branch, since, until, _COMMITS_A_PAGE))
    return until if end is None else int(end)


def _changes_of_page(
    connection: apsw.Connection, before: View, branch: str, since: int, end: int, wanted: Wanted | None
) -> Iterator[Change[int]]:
    revisions = [
        each for each in rows(connection, _REVISIONS, (branch, since, end)) if wanted is None or wanted(each[1])
    ]
    ids = dict.fromkeys(id for _, id, _, _ in revisions)
    states = {id: found.document for id, (found,) in replay.find_in_chunks(connection, [before], ids)}
    pending: dict[str, Document | None] = {}  # what the commit at hand has touched, and how that was before
    current = 0
    for seq, id, op, data in revisions:
        if seq != current:
            yield from _commit_changes(current, pending, states)
            current, pending = seq, {}
        pending.setdefault(id, states[id])
        states[id] = replay.applied(states[id], op, data)
    yield from _commit_changes(current, pending, states)


def _commit_changes(
    seq: int, before: dict[str, Document | None], after: dict[str, Document | None]
) -> Iterator[Change[int]]:
    """The changes of one commit, with documents that the caller may change."""
    for id, old in before.items():
        new = after[id]
        if old is not None or new is not None:
            yield Change.of(seq, TABLE, id, codec.duplicate(old), codec.duplicate(new))


def of_entity(database: SpaceDatabase, id: str, branch: str, since: int, until: int) -> Iterator[Revision]:
    """The log of an entity in `(since, until]` as a branch sees it, oldest first."""
    with database.read as connection:
        view = database.view(branch, until)
        document = replay.find(connection, database.view(branch, since), id).document
    for name, limit in reversed(view):
        while since < limit:
            with database.read as connection:
                page = rows(connection, _OF_ENTITY, (name, id, since, limit, _COMMITS_A_PAGE))
            for seq, op_index, op, data in page:
                document = replay.applied(document, op, data)
                shown = None if data is None else codec.decode(data)
                yield Revision(id, seq, op_index, op, shown, codec.duplicate(document), name_of(name))
            since = page[-1][0] if page else limit
