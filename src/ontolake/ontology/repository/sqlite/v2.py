"""sqlite/v2: every version of a type is a table of its own with typed columns; typed reads see the current one only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import apsw

from ontolake.model.stored import StoredType
from ontolake.model.types import Kind, TypeInfo
from ontolake.ontology.errors import SchemaValidationError
from ontolake.ontology.query.compiler.latest import (
    ALONE,
    OLD,
    BranchLineage,
    newest_row,
    not_superseded,
    quoted,
    scan_on,
)
from ontolake.ontology.query.compiler.statements import key_columns
from ontolake.ontology.repository.protocol import Row
from ontolake.ontology.repository.raw import raw_columns, raw_keys
from ontolake.ontology.repository.sqlite import zeros
from ontolake.ontology.repository.sqlite.base import SqliteRepository
from ontolake.ontology.repository.sqlite.stage import refuse_twice, staged_key
from ontolake.ontology.repository.sqlite.tables import (
    create_indexes,
    create_table,
    empty_source,
    successors,
    superseded,
    table_name,
)
from ontolake.ontology.repository.sqlite.transaction import InsertOne

CATALOG = """CREATE TABLE type_layout_catalog (
    type_kind TEXT NOT NULL, type_name TEXT NOT NULL, schema_version_id INTEGER NOT NULL, table_name TEXT NOT NULL,
    activation_commit_id INTEGER NOT NULL, is_current INTEGER NOT NULL DEFAULT 0,
    created_at TEXT NOT NULL DEFAULT (datetime('now')),
    PRIMARY KEY (type_kind, type_name, schema_version_id))"""


class Layout(NamedTuple):
    """One version of a type as it is stored."""

    type_kind: Kind
    type_name: str
    schema_version_id: int
    table_name: str
    activation_commit_id: int
    is_current: bool


class SqliteRepositoryV2(SqliteRepository):
    """A typed store with a table for each version of each type."""

    engine_version = "v2"
    row_columns: Sequence[str] = ()
    """The columns of rows beside keys, commit, version and fields."""
    lineage: BranchLineage | None = None
    """The commits that are read, where there are branches."""

    def start_afresh(self) -> None:
        super().start_afresh()
        self._layouts: dict[tuple[Kind, str], Layout] | None = None
        self._every: list[Layout] = []
        self._indexed: set[TypeInfo] = set()
        self._marked: dict[str, bool] = {}

    @classmethod
    def create_layout(cls, db: apsw.Connection) -> None:
        db.execute(CATALOG)

    # the catalog
    def catalog(self) -> list[Layout]:
        """Every version of every type, in order."""
        rows: Any = self.db.execute(
            """SELECT type_kind, type_name, schema_version_id, table_name, activation_commit_id, is_current
            FROM type_layout_catalog ORDER BY type_kind, type_name, schema_version_id""")
        return [Layout(kind, name, version, table, activation, bool(current))
                for kind, name, version, table, activation, current in rows]

    def current_layouts(self) -> Mapping[tuple[Kind, str], Layout]:
        self.refresh()
        if self._layouts is None:
            self._every = self.catalog()
            self._layouts = {(one.type_kind, one.type_name): one for one in self._every if one.is_current}
        return self._layouts

    def layout_of(self, info: TypeInfo | StoredType) -> Layout | None:
        """The layout to read a type from: the current one, or that of the version that `info` stands for."""
        current = self.layout(info.kind, info.name)
        if info.version is None or current is None:
            return current
        return next((one for one in self._every if (one.type_kind, one.type_name, one.schema_version_id)
                     == (info.kind, info.name, info.version)), None)

    def layout(self, kind: Kind, name: str) -> Layout | None:
        """The current layout of a type."""
        return self.current_layouts().get((kind, name))

    def forget_layout(self) -> None:
        self._layouts = None
        self._indexed.clear()
        self._marked.clear()

    def activation(self, info: TypeInfo) -> int:
        found = self.layout(info.kind, info.name)
        return found.activation_commit_id if found else 0

    def activations(self, kind: Kind, name: str) -> Mapping[int, int]:
        self.current_layouts()
        return {one.schema_version_id: one.activation_commit_id for one in self._every
                if (one.type_kind, one.type_name) == (kind, name)}

    def activate(self, info: TypeInfo, version: int, commit_id: int) -> Layout:
        """Make the table of a version, and make it the current one from `commit_id` on. Inside a transaction."""
        name = table_name(self.db, info.kind, info.name, version)
        create_table(self.db, name, info)
        self.db.execute("UPDATE type_layout_catalog SET is_current = 0 WHERE type_kind = ? AND type_name = ?",
                        (info.kind, info.name))
        self.db.execute(
            """INSERT INTO type_layout_catalog (type_kind, type_name, schema_version_id, table_name,
            activation_commit_id, is_current) VALUES (?, ?, ?, ?, ?, 1)""",
            (info.kind, info.name, version, name, commit_id))
        self.forget()
        return Layout(info.kind, info.name, version, name, commit_id, True)

    def drop_layout(self, kind: Kind, name: str) -> None:
        self.db.execute("UPDATE type_layout_catalog SET is_current = 0 WHERE type_kind = ? AND type_name = ?",
                        (kind, name))

    def storage_info(self) -> dict[str, Any]:
        layouts: dict[str, Any] = {}
        for one in self.catalog():
            if one.is_current:
                layouts[one.type_name] = {
                    "type_kind": one.type_kind, "current_schema_version_id": one.schema_version_id,
                    "activation_commit_id": one.activation_commit_id, "historical_versions": [],
                }  # fmt: skip
        for one in self.catalog():
            if one.type_name in layouts and not one.is_current:
                layouts[one.type_name]["historical_versions"].append(one.schema_version_id)
        return {**super().storage_info(), "type_layouts": layouts}

    # reading and writing
    def source(self, info: TypeInfo | StoredType) -> str:
        found = self.layout_of(info)
        if found is None:
            return empty_source(info)
        self.current_version(info)
        if self._is_marked(found.table_name):
            return zeros.marked_source(info, found.table_name, self.row_columns)
        return f"main.{quoted(found.table_name)}"

    def _is_marked(self, table: str) -> bool:
        """Whether a table says which zeros are negative."""
        known = self._marked.get(table)
        if known is None:
            known = self._marked[table] = zeros.is_marked(self.db, table)
        return known

    def _mark(self, table: str) -> None:
        if not self._is_marked(table):
            zeros.add_mark(self.db, table)
            self.forget()

    def key(self, alias: str, column: str) -> str:
        return f"{alias}.{column}"

    def key_column(self, column: str) -> str:
        return column

    def latest(self, info: TypeInfo | StoredType, alias: str, as_of: str | None) -> str:
        found = self.layout_of(info)
        if found is None:
            return f"{as_of} IS NULL" if as_of else "0"  # nothing; but a bound must be mentioned
        return not_superseded(alias, superseded(found.table_name), as_of)

    def scan(
        self, info: TypeInfo | StoredType, alias: str, as_of: str | None, *, filtered: bool = False
    ) -> tuple[str, str]:  # fmt: skip
        found = self.layout_of(info)
        if found is None:
            return super().scan(info, alias, as_of, filtered=filtered)
        return scan_on(alias, f"{self.source(info)} AS {alias}", ALONE, successors(found.table_name), as_of,
                       deletions=False, filtered=filtered)

    def newest(self, info: TypeInfo | StoredType, keys: Sequence[str]) -> str:
        return newest_row(self.source(info), list(zip(key_columns(info), keys, strict=True)), self.lineage)

    def over(self, table: str) -> tuple[str, str]:
        """The table that takes the rows of a table that get a successor, and what stands behind its two values."""
        return superseded(table), ""

    def stamps(self) -> Mapping[str, str]:
        """What every row that is written has in columns of the engine's own."""
        return {}

    def prepare(self, info: TypeInfo, version: int, commit_id: int) -> None:
        found = self.layout(info.kind, info.name)
        if found is None:
            self.activate(info, version, commit_id)
        else:
            self.enforce(info.kind, info.name, version)
            if info not in self._indexed:  # an index may have been asked for since the table was made
                create_indexes(self.db, found.table_name, info)
                self._indexed.add(info)

    def switch(self, info: TypeInfo, version: int, commit_id: int) -> None:
        self.activate(info, version, commit_id)

    def enforce(self, kind: Kind, name: str, version: int | None) -> Layout:
        """The layout to write to. Raises `SchemaValidationError` unless `version` is the current one."""
        found = self.layout(kind, name)
        if version is None:
            raise SchemaValidationError("schema_version_id is required", type_name=name)
        if found is None:
            raise SchemaValidationError("the type has no current layout to write to", type_name=name)
        if version != found.schema_version_id:
            raise SchemaValidationError(
                f"schema_version_id {version} is not the current one, {found.schema_version_id}", type_name=name)
        return found

    def write_staged(self, info: TypeInfo, version: int, commit_id: int, stage: str) -> int:
        layout = self.enforce(info.kind, info.name, version)
        keys = key_columns(info)
        fields = [quoted(column.column) for column in info.columns]
        targets = [*keys, "commit_id", "schema_version_id", *fields]
        values = [*(staged_key(info, key) for key in keys), "?1", str(version), *(f"new.{field}" for field in fields)]
        if zeros.any_staged(self.db, info, stage):
            self._mark(layout.table_name)
            targets, values = [*targets, zeros.MARK], [*values, zeros.staged_mark(info)]
        stamps, (over, more) = self.stamps(), self.over(layout.table_name)
        target, given = ", ".join([*targets, *stamps]), ", ".join([*values, *stamps.values()])
        self.db.execute(f"INSERT INTO {over} SELECT {OLD}, ?1{more} FROM {stage} WHERE {OLD} IS NOT NULL", (commit_id,))
        self.db.execute(f"INSERT INTO main.{quoted(layout.table_name)} ({target}) SELECT {given} FROM {stage} AS new "
                        "ORDER BY new.rowid", (commit_id,))
        return self.db.changes()

    def insert_one(self, info: TypeInfo, version: int) -> InsertOne:
        layout = self.enforce(info.kind, info.name, version)
        columns = [quoted(column.column) for column in (*info.keys, *info.columns)]
        given = "?, " * len(columns)
        if info.kind == "relation" and len(info.keys) < 3:
            columns, given = [*columns, "instance_key"], given + "'', "
        for name, value in self.stamps().items():
            columns, given = [*columns, name], f"{given}{value}, "
        into = f"INSERT INTO main.{quoted(layout.table_name)} ({', '.join(columns)}, commit_id, schema_version_id"
        sql = f"{into}) VALUES ({given}?, {version})"
        marking = f"{into}, {zeros.MARK}) VALUES ({given}?, {version}, ?)"
        table, more = self.over(layout.table_name)
        over = f"INSERT INTO {table} VALUES (?, ?{more})"
        execute = self.db.execute
        order = [*info.keys, *info.columns]
        places = [order.index(column) for column in zeros.floats(info)]

        def insert(commit_id: int, row: Row, old: int | None) -> None:
            if old is not None:
                execute(over, (old, commit_id))
            mark = zeros.mark_of(places, row)
            if mark is None:
                execute(sql, (*row, commit_id))
            else:
                self._mark(layout.table_name)
                execute(marking, (*row, commit_id, mark))

        return insert

    # one row at a time
    def insert_entity(
        self, type_name: str, key: Any, fields: Mapping[str, Any], commit_id: int,
        schema_version_id: int | None = None,
    ) -> None:  # fmt: skip
        """Write one row to the current table of a type. Raises `SchemaValidationError` for any other version."""
        layout = self.enforce("entity", type_name, schema_version_id)
        self._insert(layout, {"entity_key": key}, fields, commit_id)

    def insert_relation(
        self, type_name: str, left_key: Any, right_key: Any, fields: Mapping[str, Any], commit_id: int,
        schema_version_id: int | None = None, *, instance_key: str = "",
    ) -> None:  # fmt: skip
        layout = self.enforce("relation", type_name, schema_version_id)
        keys = {"left_key": left_key, "right_key": right_key, "instance_key": instance_key}
        self._insert(layout, keys, fields, commit_id)

    def _insert(self, layout: Layout, keys: dict[str, Any], fields: Mapping[str, Any], commit_id: int) -> None:
        schema = self.schemas()[layout.type_kind, layout.type_name].schema
        keys = raw_keys(schema, keys)
        refuse_twice(self.db, quoted(layout.table_name), layout.type_name, keys, commit_id)
        row = {**keys, **raw_columns(schema, fields), "commit_id": commit_id,
               "schema_version_id": layout.schema_version_id}
        columns = zeros.floats(StoredType(schema))
        mark = zeros.mark_of(range(len(columns)), tuple(row[column.column] for column in columns))
        if mark is not None:
            self._mark(layout.table_name)
            row[zeros.MARK.strip('"')] = mark
        stamps, (over, more) = self.stamps(), self.over(layout.table_name)
        names = ", ".join([*(quoted(name) for name in row), *stamps])
        values = ", ".join(["?"] * len(row) + [*stamps.values()])
        old = newest_row(quoted(layout.table_name), [(key, f"?{n}") for n, key in enumerate(keys, 2)], self.lineage)
        self.db.execute(f"INSERT INTO {over} SELECT old, ?1{more} FROM (SELECT {old} AS old) WHERE old IS NOT NULL",
                        (commit_id, *keys.values()))
        self.db.execute(f"INSERT INTO {quoted(layout.table_name)} ({names}) VALUES ({values})", tuple(row.values()))
