"""What lies in a typed store, looked at without it: by SQLite itself, or object by object."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pyarrow as pa
import pyarrow.parquet as pq

from ontolake.objects import ObjectStore, open_store

PLURAL = {"entity": "entities", "relation": "relations"}


class Layout(NamedTuple):
    """A line of the layout catalog."""

    kind: str
    name: str
    version: int
    activation: int
    current: bool


class InSqlite:
    """A store in a file of SQLite."""

    backend = "sqlite"

    def __init__(self, url: str) -> None:
        self.url = url

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """By the same copy of SQLite as the store: with two in one process, one undoes the other's locks."""
        db = apsw.Connection(self.url)
        try:
            return db.execute(sql).fetchall()
        finally:
            db.close()

    def stamp(self) -> dict[str, str]:
        return dict(self.rows("SELECT key, value FROM storage_meta"))

    def set_engine(self, version: str | None) -> None:
        """Another engine in the stamp, or no stamp."""
        self.rows("DROP TABLE storage_meta" if version is None else
                  f"UPDATE storage_meta SET value = '{version}' WHERE key = 'engine_version'")

    def catalog(self) -> list[Layout]:
        return [Layout(*line[:4], bool(line[4])) for line in self.rows(
            """SELECT type_kind, type_name, schema_version_id, activation_commit_id, is_current
            FROM type_layout_catalog ORDER BY type_kind, type_name, schema_version_id""")]

    def partition(self, kind: str, name: str, version: int) -> list[tuple[str, int, int]] | None:
        """Key, commit and version of the rows that were written under a version; None if there is no place for them."""
        table = f"{kind}_{name}_v{version}"
        if not self.rows(f"SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '{table}'"):
            return None
        key = "entity_key" if kind == "entity" else "left_key"
        return self.rows(f"SELECT {key}, commit_id, schema_version_id FROM {table}")  # type: ignore[return-value]

    def add_stale_person(self) -> None:
        """A row of the first version of `Person` that nobody has committed."""
        self.rows("INSERT INTO entity_Person_v1 (entity_key, commit_id, schema_version_id, name, age) "
                  "VALUES ('stale', 2, 1, 'S', 1)")

    def columns(self, kind: str, name: str, version: int) -> dict[str, str]:
        """The columns of a version with their types."""
        return {column: typed for _, column, typed, *_ in self.rows(f"PRAGMA table_info({kind}_{name}_v{version})")}

    def values(self, kind: str, name: str, version: int) -> list[dict[str, Any]]:
        """The rows of a version as they are stored."""
        columns = self.columns(kind, name, version)
        names = ", ".join(f"[{column}]" for column in columns)
        return [dict(zip(columns, row, strict=True))
                for row in self.rows(f"SELECT {names} FROM {kind}_{name}_v{version}")]


class InObjects:
    """A store of objects."""

    backend = "s3"

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def store(self) -> ObjectStore:
        return open_store(self.url)

    def json(self, key: str) -> Any:
        return json.loads(self.store.get(key).data)

    def stamp(self) -> dict[str, str]:
        found = self.json("meta/engine.json")
        return {"backend": found["backend"], "engine_version": found["engine_version"]}

    def set_engine(self, version: str | None) -> None:
        if version is None:
            self.store.delete(["meta/engine.json"])
        else:
            changed = {**self.json("meta/engine.json"), "engine_version": version}
            self.store.put("meta/engine.json", json.dumps(changed).encode())

    def catalog(self) -> list[Layout]:
        return [Layout(one["type_kind"], one["type_name"], one["schema_version_id"], one["activation_commit_id"],
                       one["is_current"]) for one in self.json("meta/type_layout_catalog.json")["layouts"]]

    def _paths(self, kind: str, name: str, version: int) -> list[str]:
        """The files that commits have written, oldest first: what attempts have left that came to nothing is none."""
        ending = f"/{PLURAL[kind]}/{name}/v{version}.parquet"
        found: list[str] = []
        path = self.json("meta/head.json")["manifest_path"]
        while path is not None:
            manifest = self.json(path)
            found += [file["path"] for file in manifest["files"] if file["path"].endswith(ending)]
            path = manifest["parent_manifest_path"]
        return found[::-1]

    def tables(self, kind: str, name: str, version: int) -> list[pa.Table]:
        return [pq.read_table(io.BytesIO(self.store.get(path).data)) for path in self._paths(kind, name, version)]

    def partition(self, kind: str, name: str, version: int) -> list[tuple[str, int, int]] | None:
        """Where nothing was written there is no object; what is known of the version says that there could be one."""
        known = [one.version for one in self.catalog() if (one.kind, one.name) == (kind, name)]
        key = "entity_key" if kind == "entity" else "left_key"
        found = [(row[key], row["commit_id"], row["schema_version_id"])
                 for table in self.tables(kind, name, version) for row in table.to_pylist()]
        return found if version in known else None

    def add_stale_person(self) -> None:
        path = self._paths("entity", "Person", 1)[0]
        table = pq.read_table(io.BytesIO(self.store.get(path).data))
        stale = table.slice(0, 1).set_column(0, "entity_key", [["stale"]])
        sink = io.BytesIO()
        pq.write_table(pa.concat_tables([table, stale]), sink)
        self.store.put(path, sink.getvalue())

    def columns(self, kind: str, name: str, version: int) -> dict[str, str]:
        return {field.name: str(field.type) for field in self.tables(kind, name, version)[0].schema}

    def values(self, kind: str, name: str, version: int) -> list[dict[str, Any]]:
        return [row for table in self.tables(kind, name, version) for row in table.to_pylist()]


Stored = InSqlite | InObjects


def stored_at(place: str, folder: Path, number: int = 0) -> Stored:
    """A place where nothing is yet: `sqlite`, `memory` or `directory`."""
    if place == "sqlite":
        return InSqlite(str(folder / f"store{number}.db"))
    if place == "memory":
        return InObjects(f"memory://contract-{folder.name}-{id(folder)}-{number}")
    return InObjects((folder / f"objects{number}").as_uri())
