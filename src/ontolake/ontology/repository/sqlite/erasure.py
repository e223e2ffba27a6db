"""Erasure in sqlite/v3: every stored version of a row goes, from every commit and branch, and from the bytes.

Commits keep their ids and times. What is left says when, by whom, why and of which type a row was erased, and a salted
hash by which somebody who knows the key can tell that it was this one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import apsw

from ontolake import faults, urls
from ontolake.engine.checkpoints import truncate_log
from ontolake.engine.past import drop_past, holders
from ontolake.errors import Contended, Invalid
from ontolake.history import Garbage
from ontolake.history.erasures import KeyHash
from ontolake.model.stored import StoredType
from ontolake.model.types import Kind
from ontolake.ontology.errors import LiveRelationsError, UnknownKeyError
from ontolake.ontology.query.compiler.functions import VALUES, given_list
from ontolake.ontology.query.compiler.latest import quoted
from ontolake.ontology.query.compiler.statements import key_columns
from ontolake.ontology.repository.branched import ErasureRecord
from ontolake.ontology.repository.protocol import Row
from ontolake.ontology.repository.sqlite.beside import write_transaction
from ontolake.ontology.repository.sqlite.columns import renew
from ontolake.ontology.repository.sqlite.tables import successors
from ontolake.ontology.repository.times import now_text

if TYPE_CHECKING:
    from ontolake.ontology.repository.sqlite.v3 import SqliteRepositoryV3

Places = list[tuple[str, list[int]]]
"""Tables, and the rows of them that go."""


def note(db: apsw.Connection, records: Sequence[ErasureRecord]) -> None:
    """Write audit entries, within a transaction."""
    db.executemany("INSERT INTO erasures (erased_at, author, reason, type_kind, type_name, rows, salt, key_hash) "
                   "VALUES (?, ?, ?, ?, ?, ?, ?, ?)", records)


class SqliteErasure:
    """The erasure of one row: a `KeyErasure`."""

    def __init__(self, repository: SqliteRepositoryV3, kind: Kind, name: str, key: Row, *, cascade: bool) -> None:
        self._repository, self._db = repository, repository.db
        self._kind, self._name, self._key, self._cascade = kind, name, key, cascade

    def count(self) -> Garbage:
        """How many rows would go. Raises what `erase` raises."""
        with self._repository.reading():
            return Garbage(sum(len(rows) for _, rows in self._places()), 0)

    def erase(self, reason: str, author: str | None) -> Garbage:
        """Remove the rows, note it, and write the store anew so that no page and no log has bytes of them.

        Raises `UnknownKeyError` if no commit has the row, `LiveRelationsError` if relations lead or led to it and do
        not go with it, `Invalid` if an event that waits to be handled names it, and `Contended` if others read, or if a
        branch of its pages keeps their past: nothing was changed, unless that began meanwhile, which the message says;
        then the bytes go when the last of them closes and a row is erased again.
        """
        repository = self._repository
        repository.check_writable()
        self._check_alone()
        self._db.pragma("secure_delete", True)
        with write_transaction(self._db, repository.uri):
            places = self._places()
            for table, rows in places:
                given = (given_list(rows),)
                for over in successors(table):
                    self._db.execute(f"DELETE FROM {over} WHERE row_id IN (SELECT value FROM {VALUES}(?))", given)
                self._db.execute(f"DELETE FROM main.{quoted(table)} WHERE row_id IN (SELECT value FROM {VALUES}(?))",
                                 given)
                faults.reach("ontology: rows erased")
            for id in self._events():
                self._db.execute("DELETE FROM dead_letters WHERE event_id = ?", (id,))
                self._db.execute("DELETE FROM events WHERE id = ?", (id,))
            told = KeyHash.of(f"{self._kind}/{self._name}", self._key)
            note(self._db, [ErasureRecord(now_text(), author, reason, self._kind, self._name,
                                          sum(len(rows) for _, rows in places), *told)])
            renew(self._db)
            faults.reach("ontology: erasure written, not yet durable")
        faults.reach("ontology: erasure durable")
        try:
            repository.drop_columns()
        finally:
            self._sweep()
        return Garbage(sum(len(rows) for _, rows in places), 0)

    def _check_alone(self) -> None:
        """Raise `Contended` if a query is being read, of this session or, in a native file, of anybody else."""
        if self._db.txn_state() != apsw.SQLITE_TXN_NONE:
            raise Contended(f"{self._repository.uri!r}: a query of this session is being read; nothing was erased",
                            hint="read it to its end, or close it")
        if urls.parse(self._repository.uri).place is not urls.Place.SQLITE:
            self._check_unheld("nothing was erased")
            return
        with write_transaction(self._db, self._repository.uri):
            self._db.pragma("user_version", self._db.pragma("user_version"))
        # Nobody who began to read before this page was written lets the log be emptied.
        checkpointed: Any = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if checkpointed[0]:
            raise Contended(f"{self._repository.uri!r}: others read an earlier state; nothing was erased",
                            hint="close all readers, and erase the row then")

    def _check_unheld(self, so_far: str) -> None:
        """Raise `Contended` if the pages of the store have branches of their own, which keep the past of the pages."""
        held = holders(self._repository.uri)
        if held:
            raise Contended(f"{self._repository.uri!r}: the branch {held[0]!r} of its pages keeps their past; {so_far}",
                            hint="delete that branch of the page store; then an erasure drops the past")

    def _places(self) -> Places:
        found = list(self._own())
        if not found:
            raise UnknownKeyError(self._name, self._key if len(self._key) > 1 else self._key[0],
                                  hint="it may have been erased before")
        related = list(self._related()) if self._kind == "entity" else []
        if related and not self._cascade:
            raise LiveRelationsError(self._name, self._key[0], sorted(set(self._named(related))), "erase")
        self._events()
        return found + related

    def _own(self) -> Iterator[tuple[str, list[int]]]:
        newest = StoredType(self._repository.every_version(self._kind, self._name)[-1].schema)
        typed = [column.sqlite_type for column in newest.keys]
        for table, stored in self._tables(self._kind, self._name):
            keys = key_columns(stored)
            # Keys keep their text where a migration gave them another type.
            is_same = [one.sqlite_type for one in stored.keys] == typed
            form = "{} = ?" if is_same else "CAST({} AS TEXT) = CAST(? AS TEXT)"
            same = " AND ".join(map(form.format, keys))
            given = (*self._key, *("",) * (len(keys) - len(self._key)))
            rows = [id for (id,) in self._db.execute(f"SELECT row_id FROM main.{quoted(table)} WHERE {same}", given)]
            if rows:
                yield table, rows

    def _related(self) -> Iterator[tuple[str, list[int]]]:
        """Relations of all types that lead, or ever led, to the entity."""
        names: Any = self._db.execute("SELECT DISTINCT type_name FROM schema_versions WHERE type_kind = 'relation'")
        for (name,) in names.fetchall():
            for table, stored in self._tables("relation", name):
                sides = [side for side in ("left", "right") if stored.schema.get(side) == self._name]
                where = " OR ".join(f"{side}_key = ?1" for side in sides)
                rows = [id for (id,) in self._db.execute(
                    f"SELECT row_id FROM main.{quoted(table)} WHERE {where}", (self._key[0],))] if sides else []
                if rows:
                    yield table, rows

    def _named(self, places: Places) -> Iterator[tuple[str, Row]]:
        """The types and keys of relations, for people."""
        names: Any = self._db.execute("SELECT DISTINCT table_name, type_name FROM type_layout_catalog")
        types = dict(names.fetchall())
        for table, rows in places:
            keys: Any = self._db.execute(f"SELECT left_key, right_key, instance_key FROM main.{quoted(table)} "
                                         f"WHERE row_id IN (SELECT value FROM {VALUES}(?))", (given_list(rows),))
            for key in keys:
                yield types[table], key if key[2] else key[:2]

    def _tables(self, kind: Kind, name: str) -> Iterator[tuple[str, StoredType]]:
        rows: Any = self._db.execute(
            "SELECT DISTINCT c.table_name, v.schema_json FROM type_layout_catalog AS c JOIN schema_versions AS v "
            "USING (type_kind, type_name, schema_version_id) WHERE c.type_kind = ? AND c.type_name = ?", (kind, name))
        for table, schema in rows.fetchall():
            yield table, StoredType(json.loads(schema))

    def _events(self) -> list[str]:
        """The events that name a key that is text. Raises `Invalid` if one of them waits to be handled."""
        texts = [json.dumps(part, ensure_ascii=False) for part in self._key if isinstance(part, str) and part]
        found: list[str] = []
        for text in texts if self._db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'events'").get else ():
            rows: Any = self._db.execute("SELECT id, state FROM events WHERE instr(payload_json, ?)", (text,))
            for id, state in rows.fetchall():
                if state == "open":
                    raise Invalid(f"the event {id} names the row, and waits to be handled",
                                  hint="let it be handled, or drop it with onto events, and erase the row then")
                found.append(id)
        return found

    def _sweep(self) -> None:
        native = urls.parse(self._repository.uri).place is urls.Place.SQLITE
        try:
            self._db.execute("VACUUM")
            faults.reach("ontology: store written anew")
            is_busy = native and not truncate_log(self._db)
        except apsw.BusyError:
            is_busy = True
        if is_busy:
            raise Contended(f"{self._repository.uri!r}: the row is erased, but others still read, so the write-ahead "
                            "log keeps old bytes", hint="close all readers: the log goes with the last of them")
        if not native:
            self._check_unheld("the row is erased, but bytes of it are left")
            drop_past(self._repository.uri)
            faults.reach("ontology: past of pages dropped")
