"""What differs between two states of a space. Costs what was written between them, not what is stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ontolake.documents.database import SpaceDatabase, View
from ontolake.documents.history import ancestors
from ontolake.documents.read import replay
from ontolake.documents.read.feed import TABLE
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


def compare(database: SpaceDatabase, new: View, old: View) -> Diff:
    """What makes what one view shows out of what another shows."""
    diff = Diff({}, {}, {})
    with database.read as connection:
        ids = ancestors.touched(connection, new, old) | ancestors.touched(connection, old, new)
        for id, (now, then) in replay.find_in_chunks(connection, (new, old), sorted(ids)):
            if then.document is None and now.document is not None:
                diff.added[id] = now.document
            elif now.document is None and then.document is not None:
                diff.removed[id] = then.document
            elif now.document is None or then.document is None:
                continue
            elif not codec.same(now.document, then.document):
                diff.modified[id] = Modified(then.document, now.document)
    return diff


def as_changes(diff: Diff, commit: int) -> Iterator[Change[int]]:
    """A difference as changes, by id."""
    for id in sorted(diff.added.keys() | diff.removed.keys() | diff.modified.keys()):
        if id in diff.modified:
            before: Document | None = diff.modified[id].before
            after: Document | None = diff.modified[id].after
        else:
            before, after = diff.removed.get(id), diff.added.get(id)
        yield Change.of(commit, TABLE, id, before, after)
