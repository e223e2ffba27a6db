"""CREATE, ALTER and DROP SEQUENCE, and the sequences of columns that count: SERIAL and IDENTITY."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from sqlglot import exp

from ontolake.sql.catalog.objects import SequenceMeta
from ontolake.sql.catalog.records import ColumnMeta, SchemaMeta, Table, entries_of, now
from ontolake.sql.errors import DefinitionError, SqlError, UnknownNameError, UnsupportedError
from ontolake.sql.syntax.definitions import Defining
from ontolake.sql.types import Kind, Type
from ontolake.sql.write import defaults, sequences

if TYPE_CHECKING:
    from ontolake.sql.write.ddl import Definer

SERIAL = {"SMALLSERIAL": 16, "SERIAL2": 16, "SERIAL": 32, "SERIAL4": 32, "BIGSERIAL": 64, "SERIAL8": 64}
_BITS = {"smallint": 16, "int2": 16, "integer": 32, "int": 32, "int4": 32, "bigint": 64, "int8": 64}
_MAX_NAME = 63


def default_name(table: str, column: str, label: str) -> str:
    """The name that PostgreSQL gives what belongs to a column: `table_column_label`, cut to fit."""
    first, second = table, column
    while len(f"{first}_{second}_{label}".encode()) > _MAX_NAME:
        if len(first.encode()) > len(second.encode()):
            first = first[:-1]
        else:
            second = second[:-1]
    return f"{first}_{second}_{label}"


def new(id: int, schema: SchemaMeta, name: str, options: Mapping[str, Any], *, bits: int = 64) -> SequenceMeta:
    """A sequence as options describe it. Raises `DefinitionError`."""
    blank = SequenceMeta(object_id=id, db_id=schema.db_id, schema_id=schema.schema_id, name=name, created_at=now(),
                         bits=bits)
    return _with_options(blank, options, fresh=True)


def _with_options(meta: SequenceMeta, options: Mapping[str, Any], *, fresh: bool) -> SequenceMeta:
    bits = meta.bits
    if "as" in options:
        if options["as"] not in _BITS:
            raise _wrong("a sequence is smallint, integer or bigint")
        bits = _BITS[options["as"]]
    increment = options.get("increment", meta.increment)
    if increment == 0:
        raise _wrong("INCREMENT cannot be zero")
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    was_low, was_high = -(2 ** (meta.bits - 1)), 2 ** (meta.bits - 1) - 1
    least, greatest = options.get("minvalue"), options.get("maxvalue")
    keeps = not fresh and "minvalue" not in options and not (bits != meta.bits and meta.least == was_low)
    if least is None:
        least = meta.least if keeps else 1 if increment > 0 else low
    keeps = not fresh and "maxvalue" not in options and not (bits != meta.bits and meta.greatest == was_high)
    if greatest is None:
        greatest = meta.greatest if keeps else high if increment > 0 else -1
    for what, value in (("MINVALUE", least), ("MAXVALUE", greatest)):
        if not low <= value <= high:
            raise _wrong(f"{what} ({value}) is out of range for the type of the sequence")
    if least >= greatest:
        raise _wrong(f"MINVALUE ({least}) must be less than MAXVALUE ({greatest})")
    start = options.get("start", (least if increment > 0 else greatest) if fresh else meta.start)
    if not least <= start <= greatest:
        raise _wrong(f"START ({start}) is beyond MINVALUE ({least}) or MAXVALUE ({greatest})")
    cache = options.get("cache", meta.cache)
    if cache < 1:
        raise _wrong(f"CACHE ({cache}) must be greater than zero")
    return msgspec.structs.replace(meta, bits=bits, increment=increment, least=least, greatest=greatest, start=start,
                                   cache=cache, cycle=options.get("cycle", meta.cycle))  # fmt: skip


def _wrong(message: str) -> DefinitionError:
    return DefinitionError(message, sqlstate="22023")


# statements


def create(definer: Definer, defining: Defining) -> bool:
    """Run CREATE SEQUENCE. Returns whether one was made."""
    if defining.details["temporary"]:
        raise UnsupportedError("temporary sequences are not supported", hint="create it without TEMPORARY")
    schema, name = definer.new_place(defining.name)
    if defining.exists and definer.catalog.relation(schema.schema_id, name) is not None:
        return False
    definer.check_relation(schema.schema_id, name, exp.Null())
    options = defining.details["options"]
    if "restart" in options or "name" in options:
        raise SqlError("CREATE SEQUENCE has no RESTART and no SEQUENCE NAME", sqlstate="42601")
    meta = new(definer.session.next_id("table"), schema, name, options)
    definer.put(_owned(definer, meta, options))
    return True


def _owned(definer: Definer, meta: SequenceMeta, options: Mapping[str, Any]) -> SequenceMeta:
    """A sequence with the column that OWNED BY names."""
    if "owned" not in options:
        return meta
    if meta.internal:
        raise UnsupportedError("the sequence of an identity column stays with it", hint="use DROP IDENTITY first")
    owner = options["owned"]
    if owner is None:
        return msgspec.structs.replace(meta, table_id=0, column_id=0)
    if len(owner) < 2:
        raise SqlError("OWNED BY needs a table and a column", sqlstate="42601", hint="write OWNED BY table.column")
    table = definer.catalog.table(*definer.place(owner[:-1]))
    if table.meta.schema_id != meta.schema_id:
        raise SqlError("a sequence must be in the schema of the table that owns it", sqlstate="55000")
    return msgspec.structs.replace(meta, table_id=table.id, column_id=table.column(owner[-1]).column_id)


def alter(definer: Definer, defining: Defining) -> bool:
    """Run ALTER SEQUENCE. Returns whether it was there."""
    try:
        meta = definer.catalog.object(SequenceMeta, *definer.place(defining.name))
    except UnknownNameError:
        if defining.exists:
            return False
        raise
    details = defining.details
    if "owner" in details:
        raise UnsupportedError("sequences have no owners here", hint="users of the server have rights")
    if "rename" in details:
        name = definer.new_name(details["rename"], exp.Null())
        definer.check_relation(meta.schema_id, name, exp.Null())
        replace(definer, meta, msgspec.structs.replace(meta, name=name))
    elif "schema" in details:
        if meta.table_id:
            raise UnsupportedError("a sequence stays in the schema of its table", hint="move the table")
        schema = definer.catalog.schema(definer.place(defining.name)[0], details["schema"])
        definer.check_relation(schema.schema_id, meta.name, exp.Null())
        replace(definer, meta, msgspec.structs.replace(meta, schema_id=schema.schema_id))
    else:
        change(definer, meta, details["options"])
    return True


def change(definer: Definer, meta: SequenceMeta, options: Mapping[str, Any]) -> None:
    """Give a sequence other options, and let it RESTART."""
    changed = _owned(definer, _with_options(meta, options, fresh=False), options)
    numbers = sequences.Numbers(definer.session, definer.transaction)
    if "restart" not in options:
        last = sequences.stored(definer.session, meta).last
        if not changed.least <= last <= changed.greatest:
            raise _wrong(f"the sequence stands at {last}, beyond MINVALUE or MAXVALUE")
    if changed != meta:
        definer.put(changed)
    if "restart" in options:
        value = changed.start if options["restart"] is None else options["restart"]
        if not changed.least <= value <= changed.greatest:
            raise _wrong(f"RESTART ({value}) is beyond the bounds of the sequence")
        numbers.set(meta.object_id, value, called=False)


def replace(definer: Definer, old: SequenceMeta, new: SequenceMeta) -> None:
    """Write a sequence under another name or in another schema."""
    kept = {key for key, _ in entries_of(new)}
    definer.writer.define([new], [key for key, _ in entries_of(old) if key not in kept])


def drop(definer: Definer, node: exp.Table, cascade: bool) -> None:
    """Run DROP SEQUENCE for one. Raises `SqlError` if a default needs it and there is no CASCADE."""
    meta = definer.catalog.object(SequenceMeta, *definer.names(node))
    if meta.internal:
        raise SqlError(f"the sequence {meta.name} belongs to an identity column", sqlstate="2BP01",
                       hint="use ALTER TABLE … ALTER … DROP IDENTITY")
    remove(definer, meta, cascade)


def remove(definer: Definer, meta: SequenceMeta, cascade: bool, table_id: int = 0) -> None:
    """Remove a sequence, and with CASCADE the defaults that need it, but for those of a table that goes as well."""
    for table in definer.catalog.by_id.values():
        for column in table.columns if table.id != table_id else ():
            if meta.object_id in defaults.sequences_of(column.default_expr):
                if not cascade:
                    raise SqlError(f"the default of {table.full_name}.{column.name} needs the sequence {meta.name}",
                                   sqlstate="2BP01", hint="add CASCADE to drop the default too")
                definer.put(msgspec.structs.replace(column, default_expr=None))
    definer.remove(meta)
    definer.remove_parts(meta.object_id)


# columns that count


def serial_bits(kind: exp.DataType) -> int | None:
    """The width of a SERIAL type; None for other types."""
    inner = kind.args.get("kind")
    name = kind.this.name if hasattr(kind.this, "name") else str(kind.this)
    if name == "USERDEFINED" and inner is not None:
        name = inner.name if hasattr(inner, "name") else str(inner)
    return SERIAL.get(name.upper())


def counting_column(
    definer: Definer, schema: SchemaMeta, table_id: int, table: str, column: ColumnMeta, options: Mapping[str, Any],
    taken: Collection[str] = (), *, internal: bool = True,
) -> ColumnMeta:  # fmt: skip
    """A column with a sequence of its own, which is written. Raises `DefinitionError` for types that do not count."""
    if column.type.kind != Kind.INT64:
        raise DefinitionError(f"{column.name} is {column.type}; columns that count are SMALLINT, INTEGER or BIGINT",
                              sqlstate="22023")
    given = options.get("name")
    name = given[-1] if given else definer.free_name(schema.schema_id, default_name(table, column.name, "seq"), taken)
    if given:
        definer.check_relation(schema.schema_id, name, exp.Null(), taken)
    if "restart" in options or "owned" in options or "as" in options:
        raise SqlError("an identity column has no RESTART, OWNED BY and AS", sqlstate="42601")
    meta = new(definer.session.next_id("table"), schema, name, options, bits=column.type.bits)
    definer.put(msgspec.structs.replace(meta, table_id=table_id, column_id=column.column_id, internal=internal))
    return msgspec.structs.replace(column, default_expr=f"NEXTVAL({meta.object_id})", nullable=False)


def sequence_of(definer: Definer, table: Table, column: ColumnMeta) -> SequenceMeta | None:
    """The sequence of an identity column."""
    return next((part for part in table.parts if isinstance(part, SequenceMeta) and part.internal
                 and part.column_id == column.column_id), None)  # fmt: skip


def alter_identity(definer: Definer, table: Table, action: Mapping[str, Any]) -> None:
    """Run ALTER COLUMN … ADD GENERATED, SET GENERATED, RESTART and DROP IDENTITY."""
    column = table.column(action["column"])
    sequence = sequence_of(definer, table, column)
    if action["do"] == "add identity":
        if column.counting or column.default_expr is not None:
            what = "is an identity column already" if column.counting else "has a default"
            raise SqlError(f"{table.full_name}.{column.name} {what}", sqlstate="55000")
        if column.nullable:
            raise SqlError(f"{table.full_name}.{column.name} must be NOT NULL to become an identity column",
                           sqlstate="55000")
        schema = next(each for each in definer.catalog.schemas.values() if each.schema_id == table.meta.schema_id)
        made = counting_column(definer, schema, table.id, table.name, column, action["options"])
        definer.put(msgspec.structs.replace(made, counting="always" if action["always"] else "default"))
        return
    if sequence is None or not column.counting:
        if action.get("exists"):
            return
        raise SqlError(f"{table.full_name}.{column.name} is not an identity column", sqlstate="55000")
    if action["do"] == "drop identity":
        definer.put(msgspec.structs.replace(column, counting="", default_expr=None))
        definer.remove(sequence)
        return
    if "always" in action:
        definer.put(msgspec.structs.replace(column, counting="always" if action["always"] else "default"))
    if action["options"]:
        change(definer, sequence, action["options"])


def serial_type(bits: int) -> Type:
    return Type(Kind.INT64, bits=bits)
