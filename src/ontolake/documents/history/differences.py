"""What differs between two states of a space. Costs what was written between them, not what is stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import apsw

from ontolake.documents.database import SpaceDatabase, View
from ontolake.documents.history import ancestors
from ontolake.documents.read import replay
from ontolake.documents.read.feed import TABLE
from ontolake.documents.read.states import SeenDocuments
from ontolake.documents.values import codec
from ontolake.documents.values.codec import Document
from ontolake.history import Change


class Modified(NamedTuple):
    """A document that is there on both sides, but not the same."""

    before: Document
    after: Document


class Diff(NamedTuple):
    """What makes one side out of the other, by id."""

    added: dict[str, Document]
    removed: dict[str, Document]
    modified: dict[str, Modified]


Difference = tuple[str, Document | None, Document | None]
"""An entity that differs: its id, and its document before and after, None where it is not there."""


def differences(database: SpaceDatabase, new: View, old: View) -> Iterator[Difference]:
    """The entities that differ between two views, by id, read a page at a time in short transactions."""
    with database.read as connection:
        ids = sorted(ancestors.touched(connection, new, old) | ancestors.touched(connection, old, new))
    for start in range(0, len(ids), replay.CHUNK):
        with database.read as connection:
            found = list(_differing(connection, ids[start : start + replay.CHUNK], new, old))
        yield from found


def _differing(connection: apsw.Connection, ids: Sequence[str], new: View, old: View) -> Iterator[Difference]:
    before, after = SeenDocuments(connection, old, ids), SeenDocuments(connection, new, ids)
    for id in ids:
        if not before.stored_alike(after, id):
            then, now = before.document(id), after.document(id)
            if not codec.same(then, now):
                yield id, then, now


def compare(database: SpaceDatabase, new: View, old: View) -> Diff:
    """What makes what one view shows out of what another shows."""
    diff = Diff({}, {}, {})
    for id, before, after in differences(database, new, old):
        if before is not None and after is not None:
            diff.modified[id] = Modified(before, after)
        elif after is not None:
            diff.added[id] = after
        elif before is not None:
            diff.removed[id] = before
    return diff


def changes(database: SpaceDatabase, new: View, old: View, commit: int) -> Iterator[Change[int]]:
    """`differences` as changes of a commit."""
    for id, before, after in differences(database, new, old):
        yield Change.of(commit, TABLE, id, before, after)
