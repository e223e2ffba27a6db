"""Erasing a document for good: from every commit, branch and snapshot, and from the file.

What stays is a commit with the reason and without the id. Rows are deleted and payloads rewritten in one transaction;
then the database is written anew (VACUUM), and its write-ahead log, or over the seam the past of its pages, is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import apsw

from ontolake.documents import blobs, commits
from ontolake.documents.database import SpaceDatabase, row, rows
from ontolake.documents.history.references import FIRST
from ontolake.documents.read.feed import TABLE
from ontolake.documents.values import codec
from ontolake.documents.write.recent import ERASE
from ontolake.engine.checkpoints import truncate_log
from ontolake.engine.past import drop_past
from ontolake.errors import Contended, NotFound
from ontolake.faults import reach
from ontolake.history import Garbage
from ontolake.history.erasures import KeyHash, check_reason
from ontolake.history.metadata import ERASED

_LINES = "SELECT name FROM branch"
_COUNTS = """\
SELECT (SELECT count(*) FROM revision WHERE branch = ?1 AND id = ?2),
  (SELECT coalesce(sum(length(data)), 0) FROM revision WHERE branch = ?1 AND id = ?2),
  (SELECT count(*) FROM snapshot WHERE branch = ?1 AND id = ?2),
  (SELECT coalesce(sum(length(value)), 0) FROM snapshot WHERE branch = ?1 AND id = ?2)"""
_HASH = re.compile(r"[0-9a-f]{64}")
_TEXTS = """\
SELECT data FROM revision WHERE branch = ?1 AND id = ?2 AND data IS NOT NULL
UNION ALL SELECT value FROM snapshot WHERE branch = ?1 AND id = ?2"""
_BLOB = "SELECT size FROM blob_store WHERE hash = ?"
_NAMED_ELSEWHERE = """\
SELECT EXISTS (SELECT 1 FROM revision WHERE id <> ?1 AND (id = ?3 OR instr(data, ?2)))"""
# Whoever read a document or asked for a state of it has its id in the payload too.
_PAYLOADS = """SELECT seq, original FROM "commit" WHERE instr(original, ?)"""
_REWRITE = """UPDATE "commit" SET original = ? WHERE seq = ?"""


class Erasure:
    """What is kept of one document."""

    def __init__(self, database: SpaceDatabase, connection: apsw.Connection, id: str) -> None:
        self._database = database
        self._connection = connection
        self._id = id
        self._lines = [name for (name,) in rows(connection, _LINES)]

    def count(self) -> Garbage:
        """Revisions, snapshots and blobs that would go, and their bytes. Raises `NotFound` if there are none."""
        items = size = 0
        for line in self._lines:
            revisions, data, snapshots, values = row(self._connection, _COUNTS, (line, self._id))
            items, size = items + revisions + snapshots, size + data + values
        if not items:
            raise NotFound(f"there is no document {self._id!r} in any commit", hint="it may have been erased before")
        own = self.blobs()
        return Garbage(items + len(own), size + sum(own.values()))

    def blobs(self) -> dict[str, int]:
        """The blobs that this document alone names, with their sizes."""
        found: set[str] = set()
        for line in self._lines:
            for (text,) in rows(self._connection, _TEXTS, (line, self._id)):
                found.update(_HASH.findall(text))
        if self._id.startswith(blobs.META_PREFIX):
            found.add(self._id.removeprefix(blobs.META_PREFIX))
        sizes: dict[str, int] = {}
        for hash in sorted(found):
            stored = row(self._connection, _BLOB, (hash,))
            if stored is None:
                continue
            if not row(self._connection, _NAMED_ELSEWHERE, (self._id, hash, blobs.meta_id(hash)))[0]:
                sizes[hash] = stored[0]
        return sizes

    def remove(self) -> None:
        """Delete all rows of the document, and take it out of the payloads of commits."""
        hashes = self.blobs()
        for line in self._lines:
            for table in ("revision", "snapshot", "head"):
                self._connection.execute(f"DELETE FROM {table} WHERE branch = ? AND id = ?", (line, self._id))
        reach("documents: document deleted")
        for hash in hashes:
            self._connection.execute("DELETE FROM blob_store WHERE hash = ?", (hash,))
        for seq, original in rows(self._connection, _PAYLOADS, (codec.encode(self._id),)):
            self._connection.execute(_REWRITE, (codec.encode(without(codec.decode(original), self._id)), seq))
        reach("documents: payloads rewritten")


def without(payload: dict[str, Any], id: str) -> dict[str, Any]:
    """The payload of a commit without what it says about a document. `erased` counts what was taken out."""
    kept: dict[str, Any] = dict(payload)
    gone = 0

    def others(entries: Iterable[Any]) -> list[Any]:
        nonlocal gone
        all = list(entries)
        left = [one for one in all if one.get("id") != id]
        gone += len(all) - len(left)
        return left

    for name in ("operations", "preconditions"):
        if name in kept:
            kept[name] = others(kept[name])
    if "reads" in kept:
        kept["reads"] = {kind: others(entries) for kind, entries in kept["reads"].items()}
    return {**kept, "erased": kept.get("erased", 0) + gone} if gone else kept


def erase(
    database: SpaceDatabase, id: str, request: tuple[str, int], *, reason: str, dry_run: bool, author: str | None
) -> Garbage:
    """Erase a document, or count what would go. See `Space.erase`."""
    check_reason(reason, id)
    said = commits.remarks(reason, author)
    if dry_run:
        with database.read as connection:
            return Erasure(database, connection, id).count()
    with database.lock:
        database.check_open()
        database.connection.pragma("secure_delete", True)
    with database.write as connection:
        erasure = Erasure(database, connection, id)
        counted = erasure.count()
        erasure.remove()
        seq = database.last_seq() + 1
        noted = KeyHash.of(TABLE, id).metadata(TABLE, counted)[ERASED]
        payload = {"localSeq": request[1], "command": ERASE, **noted}
        connection.execute(commits.INSERT, (seq, FIRST, *request, codec.encode(payload),
                                            commits.resolution(seq, (), None, said), None))  # fmt: skip
        connection.execute("UPDATE branch SET head_seq = ? WHERE name = ?", (seq, FIRST))
        reach("documents: erasure written")
    reach("documents: erasure committed")
    sweep(database)
    database.announce()
    return counted


def sweep(database: SpaceDatabase) -> None:
    """Write the database anew, so that no page and no log has bytes of rows that were deleted.

    Raises `Contended` if somebody reads on: the rows are gone then, and the bytes go when the last reader closes.
    """
    with database.lock:
        database.check_open()
        try:
            database.connection.execute("VACUUM")
            reach("documents: database written anew")
            busy = database.native and not truncate_log(database.connection)
        except apsw.BusyError:
            busy = True
        if busy:
            raise Contended(f"{database.url}: the document is erased, but others still read, so the write-ahead log "
                            "keeps old bytes", hint="close all readers: the log goes with the last of them")
        if not database.native:
            drop_past(database.url)
            reach("documents: past of pages dropped")
