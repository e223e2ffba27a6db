"""COMMENT ON: what people say of tables, columns and other things."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ontolake.sql.catalog.objects import CommentMeta
from ontolake.sql.catalog.records import SqlCatalog, Table
from ontolake.sql.errors import SqlError, UnknownNameError, nearest
from ontolake.sql.syntax.definitions import Defining
from ontolake.sql.write import constraints

if TYPE_CHECKING:
    from ontolake.sql.write.ddl import Definer

_OTHERS = ("sequence", "view", "type")


def comment(definer: Definer, defining: Defining) -> bool:
    """Run COMMENT ON. IS NULL removes what was said. Raises `UnknownNameError`."""
    found = _target(definer, defining)
    known = definer.catalog.records.get(found.key)
    if defining.details["text"] in (None, ""):
        if known is not None:
            definer.remove(known)
        return known is not None
    definer.put(found)
    return True


def _target(definer: Definer, defining: Defining) -> CommentMeta:
    kind, parts, catalog = defining.details["kind"], defining.name, definer.catalog
    text = defining.details["text"] or ""
    if kind == "column":
        if len(parts) < 2:
            raise SqlError("a comment on a column needs its table", sqlstate="42601", hint="write table.column")
        table = catalog.table(*definer.place(parts[:-1]))
        return CommentMeta(object_id=table.id, kind=kind, part_id=table.column(parts[-1]).column_id, text=text)
    if kind == "constraint":
        table = catalog.table(*definer.place(defining.details["table"]))
        if parts[-1] not in constraints.names_of(table):
            raise UnknownNameError(f"{table.full_name} has no constraint {parts[-1]}", sqlstate="42704",
                                   hint=nearest(parts[-1], constraints.names_of(table)))
        return CommentMeta(object_id=table.id, kind=kind, part=parts[-1], text=text)
    if kind == "index":
        database, schema, name = definer.place(parts)
        place = catalog.schema(database, schema).schema_id
        for table in catalog.by_id.values():
            if table.meta.schema_id == place and (index := table.index(name)) is not None:
                return CommentMeta(object_id=table.id, kind=kind, part_id=index.index_id, text=text)
        raise UnknownNameError(f"there is no index {name}")
    if kind == "schema":
        database = parts[-2] if len(parts) > 1 else definer.place(parts)[0]
        return CommentMeta(object_id=catalog.schema(database, parts[-1]).schema_id, kind=kind, text=text)
    if kind == "database":
        return CommentMeta(object_id=catalog.database(parts[-1]).db_id, kind=kind, text=text)
    database, schema, name = definer.place(parts)
    if kind in _OTHERS:
        found = catalog.objects.get((catalog.schema(database, schema).schema_id, name))
        if found is None or (found.what not in (kind, "enum") and kind != "type"):
            raise UnknownNameError(f"there is no {kind} {name}")
        return CommentMeta(object_id=found.object_id, kind=kind, text=text)
    return CommentMeta(object_id=catalog.table(database, schema, name).id, kind=kind, text=text)


def of_table(table: Table) -> dict[str, str]:
    """What is said of a table (under an empty name) and of its columns."""
    names = {column.column_id: column.name for column in table.columns}
    names[0] = ""
    return {names[each.part_id]: each.text for each in table.comments
            if each.kind in ("table", "column") and each.part_id in names}  # fmt: skip


def of_object(catalog: SqlCatalog, object_id: int) -> str | None:
    """What is said of a view, sequence or other thing."""
    return next((each.text for each in catalog.records.values() if isinstance(each, CommentMeta)
                 and each.object_id == object_id and each.kind not in ("schema", "database")), None)  # fmt: skip
