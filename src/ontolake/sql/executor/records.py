"""Rows as values: `ROW(…)`, and a table's name in place of a column's. DuckDB has them as structs of c0, c1, …"""

from __future__ import annotations

from collections.abc import Sequence

from ontolake.sql.errors import SqlError
from ontolake.sql.executor import casts
from ontolake.sql.executor.pg_types import TEXT, PgType
from ontolake.sql.executor.typed import TypedSql, merged


def record(values: Sequence[TypedSql], names: Sequence[str] | None = None) -> TypedSql:
    """A row of values; its fields are named f1, f2, … unless names are given."""
    known = [casts.converted(each, TEXT) if each.type.name == "unknown" else each for each in values]
    shown = names if names is not None else [f"f{n}" for n in range(1, len(known) + 1)]
    parts = ", ".join(f"'c{n}': {each.sql}" for n, each in enumerate(known))
    fields = tuple(zip(shown, (each.type for each in known), strict=True))
    return merged(f"{{{parts}}}" if known else "{'c0': NULL}", PgType("record", fields=fields), known)


def field(value: TypedSql, name: str) -> TypedSql:
    """A field of a row. Raises 42703 if there is no field of that name."""
    for n, (each, type) in enumerate(value.type.fields):
        if each == name:
            return merged(f"struct_extract({value.sql}, 'c{n}')", type, [value])
    raise SqlError(f'could not identify column "{name}" in record data type', sqlstate="42703")


def fields(value: TypedSql) -> list[tuple[str, TypedSql]]:
    """All fields of a row with their names."""
    return [(name, merged(f"struct_extract({value.sql}, 'c{n}')", type, [value]))
            for n, (name, type) in enumerate(value.type.fields)]  # fmt: skip
