"""sqlite/v1: all types in two history tables with their fields as JSON; reads see rows of every schema version."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apsw

from ontolake.history.metadata import KIND, MIGRATED_TYPES
from ontolake.model.codecs import json_text
from ontolake.model.columns import Column
from ontolake.model.field import UNSET
from ontolake.model.stored import StoredType
from ontolake.model.types import Kind, TypeInfo, type_info
from ontolake.ontology.config import Config
from ontolake.ontology.errors import SchemaValidationError
from ontolake.ontology.query.compiler.latest import literal, newest_row, no_newer, quoted, raw
from ontolake.ontology.query.compiler.statements import key_columns
from ontolake.ontology.query.plan import Plan, Values
from ontolake.ontology.repository.fields_json import encoded_default, fields_text
from ontolake.ontology.repository.protocol import Row
from ontolake.ontology.repository.sqlite.base import SqliteRepository
from ontolake.ontology.repository.sqlite.stage import refuse_twice, staged_key
from ontolake.ontology.repository.sqlite.tables import empty_source
from ontolake.ontology.repository.sqlite.transaction import InsertOne
from ontolake.ontology.repository.sqlite.v1_columns import field_value, key_column

HISTORY = (
    """CREATE TABLE entity_history (
    id INTEGER PRIMARY KEY AUTOINCREMENT, entity_type TEXT NOT NULL, entity_key TEXT NOT NULL,
    fields_json TEXT NOT NULL, commit_id INTEGER NOT NULL REFERENCES commits (id), schema_version_id INTEGER)""",
    "CREATE INDEX entity_history_latest ON entity_history (entity_type, entity_key, commit_id DESC)",
    "CREATE INDEX entity_history_commit ON entity_history (commit_id)",
    """CREATE TABLE relation_history (
    id INTEGER PRIMARY KEY AUTOINCREMENT, relation_type TEXT NOT NULL, left_key TEXT NOT NULL, right_key TEXT NOT NULL,
    instance_key TEXT NOT NULL DEFAULT '', fields_json TEXT NOT NULL,
    commit_id INTEGER NOT NULL REFERENCES commits (id), schema_version_id INTEGER)""",
    """CREATE INDEX relation_history_latest
    ON relation_history (relation_type, left_key, right_key, instance_key, commit_id DESC)""",
    "CREATE INDEX relation_history_reverse ON relation_history (relation_type, right_key)",
    "CREATE INDEX relation_history_commit ON relation_history (commit_id)",
)


class SqliteRepositoryV1(SqliteRepository):
    """A typed store with one history for all types."""

    engine_version = "v1"

    def __init__(self, db: apsw.Connection, uri: str, config: Config) -> None:
        self._activations: dict[tuple[Kind, str], Mapping[int, int]] = {}
        super().__init__(db, uri, config)
        db.create_scalar_function("ontolake_fields", fields_text, -1, deterministic=True)
        db.create_scalar_function("ontolake_member", member_text, 2, deterministic=True)

    @classmethod
    def create_layout(cls, db: apsw.Connection) -> None:
        for statement in HISTORY:
            db.execute(statement)

    def activation(self, info: TypeInfo) -> int:
        return 0

    def activations(self, kind: Kind, name: str) -> Mapping[int, int]:
        self.refresh()
        found = self._activations.get((kind, name))
        if found is None:
            found = self._activations[kind, name] = activations(self, kind, name)
        return found

    def forget_layout(self) -> None:
        """The layout never changes, but there may be more versions."""
        self._activations.clear()

    def drop_layout(self, kind: Kind, name: str) -> None:
        """Nothing: what is not registered is not read."""

    def source(self, info: TypeInfo | StoredType) -> str:
        if self.current_version(info) is None:
            return empty_source(info)
        names = key_columns(info)
        keys = [*(key_column(info, key) for key in names), *(f"{key} AS {quoted(raw(key))}" for key in names),
                "commit_id", "schema_version_id", "id AS rowid"]
        fill = self._has_versions(info)
        fields = [f"{_filled(column, field_value(column)) if fill else field_value(column)} AS {quoted(column.column)}"
                  for column in info.columns]  # fmt: skip
        since = self._since(info)
        return (f"(SELECT {', '.join([*keys, *fields])} FROM {info.kind}_history "
                f"WHERE {info.kind}_type = {literal(info.name)}{f' AND commit_id >= {since}' if since else ''})")

    def _since(self, info: TypeInfo | StoredType) -> int:
        """The commit from which on rows of a version of the past begin; 0 for the first one, and where all are read."""
        if info.version is None:
            return 0
        known = self.activations(info.kind, info.name)
        return known.get(info.version, 0) if info.version > min(known, default=info.version) else 0

    def run(self, plan: Plan, values: Values) -> Iterator[Row]:
        rows = super().run(plan, values)
        if plan.output == "rows" and (plan.history or plan.as_of):
            shown = [type_info(cls) for n, cls in enumerate(plan.types) if plan.relations or n % 2 == 0]
            if any(self._has_versions(info) for info in shown):
                return _of_their_types(shown, rows)
        return rows

    def _has_versions(self, info: TypeInfo | StoredType) -> bool:
        known = self.schemas().get((info.kind, info.name))
        return info.version is None and known is not None and known.schema_version_id > 1

    def key(self, alias: str, column: str) -> str:
        return f"{alias}.{quoted(raw(column))}"

    def key_column(self, column: str) -> str:
        return raw(column)

    def latest(self, info: TypeInfo | StoredType, alias: str, as_of: str | None) -> str:
        keys = [(raw(key), self.key(alias, key)) for key in key_columns(info)]
        return no_newer(alias, self.source(info), keys, as_of)

    def newest(self, info: TypeInfo | StoredType, keys: Sequence[str]) -> str:
        given = [(raw(key), f"CAST({sql} AS TEXT)") for key, sql in zip(key_columns(info), keys, strict=True)]
        return newest_row(self.source(info), given)

    def prepare(self, info: TypeInfo, version: int, commit_id: int) -> None:
        """Nothing: rows of every type and version go to one table."""

    def switch(self, info: TypeInfo, version: int, commit_id: int) -> None:
        """Nothing: which version is current is in the registry."""

    def write_staged(self, info: TypeInfo, version: int, commit_id: int, stage: str) -> int:
        keys = key_columns(info)
        parts: list[str] = []
        for column in (*info.keys, *info.columns):
            parts += [literal(column.stored), literal(column.type.name), f"new.{quoted(column.column)}"]
        self.db.execute(
            f"INSERT INTO {info.kind}_history ({info.kind}_type, {', '.join(keys)}, fields_json, commit_id, "
            f"schema_version_id) SELECT {literal(info.name)}, {', '.join(staged_key(info, key) for key in keys)}, "
            f"ontolake_fields({', '.join(parts)}), ?1, {version} FROM {stage} AS new "
            "ORDER BY new.rowid", (commit_id,))  # fmt: skip
        return self.db.changes()

    def insert_one(self, info: TypeInfo, version: int) -> InsertOne:
        columns = [(column.stored, column.type.name) for column in (*info.keys, *info.columns)]
        keys, width = key_columns(info), len(info.keys)
        padding = ("",) * (len(keys) - width)
        sql = (f"INSERT INTO {info.kind}_history ({info.kind}_type, {', '.join(keys)}, fields_json, commit_id, "
               f"schema_version_id) VALUES ({'?, ' * len(keys)}?, ?, ?, {version})")
        execute = self.db.execute

        def insert(commit_id: int, row: Row, old: int | None) -> None:
            parts: list[Any] = []
            for (stored, scalar), value in zip(columns, row, strict=True):
                parts += [stored, scalar, value]
            execute(sql, (info.name, *row[:width], *padding, fields_text(*parts), commit_id))

        return insert

    # one row at a time
    def insert_entity(
        self, type_name: str, key: Any, fields: Mapping[str, Any], commit_id: int,
        schema_version_id: int | None = None,
    ) -> None:  # fmt: skip
        """Write one row. A version may be left out in v1."""
        place = {"entity_type": type_name, "entity_key": str(key)}
        refuse_twice(self.db, "entity_history", type_name, place, commit_id)
        self.db.execute("INSERT INTO entity_history (entity_type, entity_key, fields_json, commit_id, "
                        "schema_version_id) VALUES (?, ?, ?, ?, ?)",
                        (type_name, str(key), json_text(dict(fields)), commit_id, schema_version_id))

    def insert_relation(
        self, type_name: str, left_key: Any, right_key: Any, fields: Mapping[str, Any], commit_id: int,
        schema_version_id: int | None = None, *, instance_key: str = "",
    ) -> None:  # fmt: skip
        keys = {"left_key": str(left_key), "right_key": str(right_key), "instance_key": instance_key}
        refuse_twice(self.db, "relation_history", type_name, {"relation_type": type_name, **keys}, commit_id)
        self.db.execute("INSERT INTO relation_history (relation_type, left_key, right_key, instance_key, fields_json, "
                        "commit_id, schema_version_id) VALUES (?, ?, ?, ?, ?, ?, ?)",
                        (type_name, str(left_key), str(right_key), instance_key, json_text(dict(fields)), commit_id,
                         schema_version_id))


def activations(repository: SqliteRepository, kind: Kind, name: str) -> Mapping[int, int]:
    """Since when each version is current: from the commits that migrated, else from the first row of a version."""
    found: dict[int, int] = {}
    told: Any = repository.db.execute(
        f"""SELECT c.id, t.value ->> 'to_schema_version_id' FROM (SELECT id, CASE WHEN json_valid(metadata_json)
        THEN metadata_json END AS metadata FROM commits) AS c, json_each(c.metadata, '$.{MIGRATED_TYPES}') AS t
        WHERE c.metadata ->> '{KIND}' = 'migration' AND t.type = 'object' AND t.value ->> 'type_kind' = ?
        AND t.value ->> 'type_name' = ? ORDER BY c.id""", (kind, name))  # fmt: skip
    for commit, version in told:
        found.setdefault(version, commit)
    for number, version in enumerate(repository.schema_versions(kind, name)):
        if version.schema_version_id not in found:
            first: Any = 0 if not number else repository.db.execute(
                f"SELECT min(commit_id) FROM {kind}_history WHERE {kind}_type = ? AND schema_version_id = ?",
                (name, version.schema_version_id)).get
            if first is not None:
                found[version.schema_version_id] = first
    return found


def _of_their_types(shown: Sequence[TypeInfo], rows: Iterator[Row]) -> Iterator[Row]:
    """Rows of the past, some of which may be of older schemas: what would be misread is an error instead."""
    checks: list[tuple[int, Any, TypeInfo, Column, int]] = []
    start = 0
    for info in shown:
        commit = start + len(info.all_columns)
        checks += [(start + n, column.type.stored, info, column, commit)
                   for n, column in enumerate(info.all_columns) if _takes_anything(column)]
        start = commit + 1
    for row in rows:
        for place, kind, info, column, commit in checks:
            value = row[place]
            if value is not None and not isinstance(value, kind):
                raise SchemaValidationError(
                    f"the value {value!r} of commit {row[commit]} was written under another schema",
                    type_name=info.name, field=column.name, hint="ask about a commit after the migration")
        yield row


def _takes_anything(column: Column) -> bool:
    """Whether nothing is done to encoded values of a column, or the decoder takes whatever is there."""
    return column.type.codec.decode is None or column.sqlite_type in ("INTEGER", "BLOB")


def _filled(column: Column, value: str) -> str:
    """The same with the default where a row of an older schema has no such field, as objects have it then."""
    default = encoded_default(column)
    return value if default is UNSET else f"coalesce({value}, {_constant(default)})"


def _constant(value: Any) -> str:
    """An encoded value as SQL has it."""
    if isinstance(value, str):
        return literal(value)
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    return str(int(value)) if isinstance(value, int) else repr(value).replace("inf", "9e999")


def member_text(*given: Any) -> str | None:
    """One member, by its name, of the JSON of a row. SQLite reads NaN as null, and writes infinities as numbers."""
    fields, name = given
    value = json.loads(fields).get(name)
    return None if value is None else json_text(value)
