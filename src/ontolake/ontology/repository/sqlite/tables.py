"""The tables of sqlite/v2: one per type and version, with a typed column for each field."""

from __future__ import annotations

import apsw

from ontolake.model.columns import ENTITY_COLUMNS, ROWID_NAMES, Column
from ontolake.model.stored import StoredType
from ontolake.model.types import Kind, TypeInfo
from ontolake.ontology.query.compiler.latest import BRANCH, DELETED, SuccessorTables, quoted, raw
from ontolake.ontology.query.compiler.statements import key_columns


def table_name(db: apsw.Connection, kind: Kind, name: str, version: int) -> str:
    """`entity_<Type>_v<N>`; with a number behind it if a type that differs by case only has that table."""
    wanted = f"{kind}_{name}_v{version}"
    found, count = wanted, 1
    while db.execute("SELECT 1 FROM sqlite_schema WHERE lower(name) = lower(?)", (found,)).get is not None:
        count += 1
        found = f"{wanted}_{count}"
    return found


def create_table(db: apsw.Connection, name: str, info: TypeInfo, *, branched: bool = False) -> None:
    """Make the table of a type and its indexes. Inside a transaction.

    With `branched` rows say on which branch they were written and whether they are deletions, as v3 has them.
    """
    keys = key_columns(info)
    columns = ["row_id INTEGER PRIMARY KEY", *(_key_column(key, info) for key in keys)]
    columns += ["commit_id INTEGER NOT NULL", "schema_version_id INTEGER NOT NULL"]
    columns += [f"{BRANCH} INTEGER NOT NULL DEFAULT 0", f"{DELETED} INTEGER NOT NULL DEFAULT 0"] if branched else []
    columns += [_field_column(column) for column in info.columns]
    columns += _mirrors(info)
    unique = [*keys, "commit_id", *([BRANCH] if branched else [])]
    db.execute(f"CREATE TABLE {quoted(name)} ({', '.join(columns)}, UNIQUE ({', '.join(unique)}))")
    if branched:
        db.execute(f"CREATE TABLE {elsewhere(name)} (row_id INTEGER NOT NULL, superseded_by INTEGER NOT NULL, "
                   "branch_id INTEGER NOT NULL, PRIMARY KEY (row_id, branch_id)) WITHOUT ROWID")
    db.execute(f"CREATE TABLE {superseded(name)} (row_id INTEGER PRIMARY KEY, superseded_by INTEGER NOT NULL)")
    by_commit = f"commit_id, {BRANCH}, {DELETED}" if branched else "commit_id"
    db.execute(f"CREATE INDEX {quoted(name + '_commit')} ON {quoted(name)} ({by_commit})")
    if info.kind == "relation":
        db.execute(f"CREATE INDEX {quoted(name + '_reverse')} ON {quoted(name)} "
                   "(right_key, left_key, instance_key, commit_id)")
    create_indexes(db, name, info)
    create_unique_indexes(db, name, info)


def superseded(name: str) -> str:
    """The table of those rows of a table that have a successor, and the commit of that. Rows stay as they are."""
    return f"main.{quoted(name + '_superseded')}"


def elsewhere(name: str) -> str:
    """The table of rows that have a successor on another branch than the first: one a branch, as v3 has it."""
    return f"main.{quoted(name + '_superseded_elsewhere')}"


def successors(name: str) -> SuccessorTables:
    """Both."""
    return SuccessorTables(superseded(name), elsewhere(name))


def create_indexes(db: apsw.Connection, name: str, info: TypeInfo) -> None:
    """Indexes on fields declared `index=True`, where there are none yet."""
    for column in info.columns:
        if column.indexed:
            db.execute(f"CREATE INDEX IF NOT EXISTS {quoted(f'{name}_by_{column.column}')} ON {quoted(name)} "
                       f"({quoted(column.column)})")


def create_unique_indexes(db: apsw.Connection, name: str, info: TypeInfo) -> None:
    """Indexes by which rows of one value are found. Keys stand behind it, so that a row's own past is passed over."""
    for column in info.unique:
        db.execute(f"CREATE INDEX IF NOT EXISTS {quoted(f'{name}_unique_{column.column}')} ON {quoted(name)} "
                   f"({quoted(column.column)}, {', '.join(key_columns(info))})")


def _key_column(key: str, info: TypeInfo) -> str:
    if key == "instance_key" and len(info.keys) < 3:
        return "instance_key TEXT NOT NULL DEFAULT ''"
    declared = next(column for column in info.keys if column.column == key)
    return f"{key} {declared.sqlite_type} NOT NULL"


def _field_column(column: Column) -> str:
    return f"{quoted(column.column)} {column.sqlite_type}{'' if column.nullable else ' NOT NULL'}"


def _mirrors(info: TypeInfo) -> list[str]:
    """Keys under the names of their fields too, for whoever looks into the table; they take no space."""
    taken = {column.column.lower() for column in info.columns} | {*ENTITY_COLUMNS, *key_columns(info), *ROWID_NAMES}
    return [f"{quoted(column.stored)} {column.sqlite_type} GENERATED ALWAYS AS ({column.column}) VIRTUAL"
            for column in info.keys if column.stored.lower() not in taken]  # fmt: skip


def empty_source(info: TypeInfo | StoredType) -> str:
    """What stands for a type that has no rows to read. It names a table, so that asking shows what others committed."""
    keys = key_columns(info)
    names = [*keys, *(raw(key) for key in keys), "commit_id", "schema_version_id", "rowid",
             BRANCH.strip('"'), DELETED.strip('"'),
             *(column.column for column in info.columns)]
    return f"(SELECT {', '.join(f'NULL AS {quoted(name)}' for name in names)} FROM sqlite_schema WHERE 0)"
