"""Whether what a transaction read has changed since: which of the later revisions meet its reads.

A conflict may be reported where none is, but none is ever missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import apsw

from ontolake.documents.database import View, rows
from ontolake.documents.read import replay
from ontolake.documents.values import edits, patches
from ontolake.documents.values.codec import Document, Json
from ontolake.history import pointers
from ontolake.history.pointers import Tokens


class Later(NamedTuple):
    """A revision that came after a read: its seq, and the operation as it is stored."""

    seq: int
    op: str
    data: str | None


# The oldest conflict is the one to report, so these are read in order.
_LATER = """\
SELECT seq, op, data FROM revision
WHERE branch = ? AND id = ? AND seq > ? AND seq <= ?
ORDER BY seq, op_index"""


def first_conflict(
    revisions: Iterable[Later], path: Tokens, *, shallow: bool, before: Callable[[], Document | None]
) -> int | None:
    """The seq of the first revision that a read of `path` conflicts with, or None.

    A set or a delete always conflicts. A patch conflicts with a recursive read when one path leads to the other, and
    with a shallow one when it wrote the container as a whole or changed which keys it has; only that takes
    `before()`, the document that was read.
    """
    document: Document | None = None
    loaded = False
    for revision in revisions:
        if revision.op != "patch" or revision.data is None:
            return revision.seq
        paths = [tokens for patch in patches.load(revision.data) for tokens in patch.written()]
        if not shallow:
            if any(pointers.overlap(tokens, path) for tokens in paths):
                return revision.seq
            continue
        if any(tokens == path[: len(tokens)] for tokens in paths):
            return revision.seq
        if not loaded:
            document, loaded = before(), True
        after = replay.applied(document, revision.op, revision.data)
        if _keys(document, path) != _keys(after, path):
            return revision.seq
        document = after
    return None


_MISSING = object()


def _keys(document: Document | None, path: Tokens) -> object:
    """What a shallow read of a path sees."""
    try:
        found: Json = edits.look_up({} if document is None else document, path)
    except KeyError:
        return _MISSING
    if isinstance(found, dict):
        return found.keys()
    return len(found) if isinstance(found, list) else found


def later(connection: apsw.Connection, view: View, id: str, since: int) -> Iterator[Later]:
    """The revisions of an entity that `view` shows after `since`, oldest first."""
    for branch, limit in reversed(view):  # an ancestor's part of a view ends before a descendant's begins
        if limit > since:
            yield from map(Later._make, rows(connection, _LATER, (branch, id, since, limit)))
