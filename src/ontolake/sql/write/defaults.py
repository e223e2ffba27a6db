"""Expressions that the catalog keeps: the defaults of columns and the conditions of CHECKs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa
from sqlglot import exp

from ontolake.sql.catalog.records import Check, ColumnMeta
from ontolake.sql.errors import CheckError
from ontolake.sql.keyspace.vectors import stored_array, stored_list
from ontolake.sql.plan import execution
from ontolake.sql.syntax.statements import DIALECT, NotConstant, constant, name_of, parse_expression
from ontolake.sql.types import Stored


@lru_cache(maxsize=1024)
def _constant(sql: str) -> tuple[bool, object]:
    try:
        return True, constant(parse_expression(sql))
    except NotConstant:
        return False, None


def value(column: ColumnMeta) -> Stored:
    """What a column gets where no value is given. Raises `SqlError` if the default does not fit the column."""
    if column.default_expr is None:
        return None
    known, found = _constant(column.default_expr)
    if known:
        return column.type.store(found)
    return stored_list(column.type, _computed(column, 1))[0]


def is_fixed(column: ColumnMeta) -> bool:
    """Whether the default of a column is the same for all rows, and is none such as random()."""
    return column.default_expr is None or _constant(column.default_expr)[0]


def values(column: ColumnMeta, count: int) -> pa.Array:
    """What a column gets in so many rows where no value is given. Raises what `value` raises."""
    if not is_fixed(column):
        return _computed(column, count)
    one = stored_array(column.type, [value(column)])
    return pa.repeat(one[0], count) if one.null_count == 0 else pa.nulls(count, column.type.arrow)


def _computed(column: ColumnMeta, count: int) -> pa.Array:
    from ontolake.sql.catalog.coercion import coerced

    assert column.default_expr is not None
    wanted = exp.select(parse_expression(column.default_expr)).from_("t0")
    return coerced(column, execution.run(wanted, {"t0": pa.table({"n": range(count)})}).column(0))


@lru_cache(maxsize=1024)
def columns_of(sql: str) -> frozenset[str]:
    """The columns that an expression names."""
    return frozenset(name_of(column.this) for column in parse_expression(sql).find_all(exp.Column))


def renamed(sql: str, old: str, new: str) -> str:
    """An expression in which a column has another name."""
    tree = parse_expression(sql)
    for column in tree.find_all(exp.Column):
        if name_of(column.this) == old:
            column.set("this", exp.to_identifier(new, quoted=True))
    return tree.sql(DIALECT)


def check(name: str, checks: Sequence[Check], rows: pa.Table) -> None:
    """Raise `CheckError` if a row makes one of the conditions false."""
    if not checks or not rows.num_rows:
        return
    wanted = [exp.alias_(exp.paren(parse_expression(each.sql)), f"k{n}") for n, each in enumerate(checks)]
    found = execution.run(exp.select(*wanted).from_("t0"), {"t0": rows})
    for n, each in enumerate(checks):
        broken = found.column(n).index(False).as_py()
        if broken >= 0:
            row = rows.slice(broken, 1).to_pylist()[0]
            shown = ", ".join(f"{key} = {value}" for key, value in row.items() if key in columns_of(each.sql))
            raise CheckError(f"a row of {name} breaks the CHECK {each.name}, {each.sql}: {shown}", table=name,
                             constraint=each.name)  # fmt: skip
