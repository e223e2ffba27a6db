"""Deletions in sqlite/v3: a row that ends its key is a copy of the last state, so that the history shows the end."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import apsw

from ontolake import faults
from ontolake.model.stored import StoredType
from ontolake.model.types import TypeInfo
from ontolake.ontology.query.compiler.functions import key_list
from ontolake.ontology.query.compiler.latest import DELETED, quoted
from ontolake.ontology.query.compiler.statements import key_columns
from ontolake.ontology.repository.protocol import LiveRelation, Row
from ontolake.ontology.repository.sqlite import zeros

if TYPE_CHECKING:
    from ontolake.ontology.repository.sqlite.v3 import SqliteRepositoryV3


_NONE = "no_deletions:"
"""What the key in `storage_meta` begins with that says that a table, whose name follows, has never had a deletion.

A table of which nothing is said may have some.
"""


def tables_without(db: apsw.Connection) -> frozenset[str]:
    """The tables that have no deletions for certain."""
    rows: Any = db.execute("SELECT key FROM storage_meta")
    return frozenset(key.removeprefix(_NONE) for (key,) in rows if key.startswith(_NONE))


def note_none(db: apsw.Connection, table: str) -> None:
    """Note that a new table has no deletions, inside the transaction that makes it."""
    db.execute("INSERT OR REPLACE INTO storage_meta VALUES (?, '1')", (_NONE + table,))


def note_some(repository: SqliteRepositoryV3, table: str) -> None:
    """Note that a table gets its first deletion, inside the transaction that writes it."""
    repository.db.execute("DELETE FROM storage_meta WHERE key = ?", (_NONE + table,))
    if repository.db.changes():
        repository.forget()


def delete_keys(
    repository: SqliteRepositoryV3, info: TypeInfo | StoredType, version: int, commit_id: int, keys: Collection[Row]
) -> int:  # fmt: skip
    """End keys as far as they are there, and return how many were."""
    layout = repository.enforce(info.kind, info.name, version)
    table = f"main.{quoted(layout.table_name)}"
    execute = repository.db.execute
    places = _places(repository, info, table, keys)
    if not places:
        return 0
    columns = [*key_columns(info), "schema_version_id", *(quoted(column.column) for column in info.columns)]
    columns += [zeros.MARK] if zeros.is_marked(repository.db, layout.table_name) else []
    stamps, (over, more) = repository.stamps(), repository.over(layout.table_name)
    note_some(repository, layout.table_name)
    targets = ", ".join([*columns, "commit_id", DELETED, *stamps])
    values = ", ".join([*columns, "?1", "1", *stamps.values()])
    listed, some = key_list(places)
    execute(f"INSERT INTO {over} SELECT value, ?1{more} FROM {listed}(?2)", (commit_id, some))
    execute(f"INSERT INTO {table} ({targets}) SELECT {values} FROM {table} WHERE row_id IN "
            f"(SELECT value FROM {listed}(?2)) ORDER BY row_id", (commit_id, some))
    faults.reach("ontology: rows deleted")
    return len(places)


def _places(
    repository: SqliteRepositoryV3, info: TypeInfo | StoredType, table: str, keys: Collection[Row]
) -> list[int]:  # fmt: skip
    """The latest rows of these keys, as far as they are there."""
    found: Any
    if info.kind == "entity":
        newest = repository.newest(info, ["wanted.value"])
        wanted, given = key_list(key[0] for key in keys)
        found = repository.db.execute(
            f"SELECT DISTINCT t.row_id FROM {wanted}(?1) AS wanted JOIN {table} AS t ON t.row_id = {newest} "
            f"WHERE NOT t.{DELETED}", (given,))  # fmt: skip
        return [place for (place,) in found]
    newest = repository.newest(info, [f"?{n}" for n in range(1, len(key_columns(info)) + 1)])
    find = f"SELECT t.row_id FROM {table} AS t WHERE t.row_id = {newest} AND NOT t.{DELETED}"
    padding = ("",) * (len(key_columns(info)) - len(info.keys))
    found = (repository.db.execute(find, (*key, *padding)).get for key in dict.fromkeys(keys))
    return [place for place in found if place is not None]


def keys_besides(repository: SqliteRepositoryV3, info: TypeInfo, keys: Collection[Row]) -> list[Row]:
    """The keys of a type that are there and are not among these."""
    width = len(info.keys)
    names = ", ".join(f"t.{key}" for key in key_columns(info)[:width])
    source, latest = repository.scan(info, "t", None)
    rows: Any = repository.db.execute(f"SELECT {names} FROM {source} WHERE {latest} ORDER BY t.rowid")
    kept = set(keys)
    return [row for row in rows if row not in kept]


def relations_of(repository: SqliteRepositoryV3, info: TypeInfo, keys: Collection[Row]) -> list[LiveRelation]:
    """The relations, of whichever types, that lead to one of these entities."""
    wanted, given = key_list(key[0] for key in keys)
    found: dict[tuple[str, Row], LiveRelation] = {}
    for stored in _relations(repository, info.name):
        sides = [side for side in ("left", "right") if stored.schema.get(side) == info.name]
        names = ", ".join(f"r.{key}" for key in key_columns(stored)[: len(stored.keys)])
        for side in sides:
            rows: Any = repository.db.execute(
                f"SELECT {names}, r.commit_id FROM {repository.source(stored)} AS r WHERE r.{side}_key IN "
                f"(SELECT value FROM {wanted}(?1)) AND {repository.latest(stored, 'r', None)}", (given,))
            found |= {(stored.name, row[:-1]): LiveRelation(stored, row[:-1], row[-1]) for row in rows}
    return list(found.values())


def _relations(repository: SqliteRepositoryV3, entity: str) -> Sequence[StoredType]:
    return [StoredType(version.schema) for (kind, _), version in sorted(repository.schemas().items())
            if kind == "relation" and entity in (version.schema.get("left"), version.schema.get("right"))]
