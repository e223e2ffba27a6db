"""Expressions that the catalog keeps: defaults and generated columns, and the conditions of CHECKs."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from ontolake.sql.catalog.records import Check, ColumnMeta, Table
from ontolake.sql.errors import CheckError, DefinitionError, UnsupportedError
from ontolake.sql.keyspace.vectors import stored_array, stored_list
from ontolake.sql.plan import execution
from ontolake.sql.syntax.statements import DIALECT, NotConstant, constant, name_of, parse_expression
from ontolake.sql.types import Kind, Stored, Type

if TYPE_CHECKING:
    from ontolake.sql.write.sequences import Numbers


@lru_cache(maxsize=1024)
def _constant(sql: str) -> tuple[bool, object]:
    try:
        return True, constant(parse_expression(sql))
    except NotConstant:
        return False, None


@lru_cache(maxsize=1024)
def _simple(sql: str) -> str | int | None:
    """What a default is, if no executor is needed for it: the time, or the id of the sequence that it counts."""
    tree = parse_expression(sql)
    if is_now(tree):
        return "now"
    if isinstance(tree, exp.Anonymous) and _calls(tree) == [tree] and tree.expressions[0].is_int:
        return int(tree.expressions[0].name)
    return None


def is_now(node: exp.Expr) -> bool:
    """Whether an expression is the time at which the transaction began."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower() in _NOW and not node.expressions
    return isinstance(node, exp.CurrentTimestamp) and not any(node.args.values())


def moment_of(type: Type) -> Callable[[int], Stored] | None:
    """Turns microseconds since 1970 into the stored form of a type; None if it is not one of moments."""
    if type.kind == Kind.TIMESTAMP_US and not type.scale and type.item is None:
        return lambda moment: moment
    return None


def value(column: ColumnMeta, numbers: Numbers | None = None) -> Stored:
    """What a column gets where no value is given. Raises `SqlError` if the default does not fit the column."""
    if column.hidden:
        return next_row_id()
    if column.default_expr is None:
        return None
    known, found = _constant(column.default_expr)
    if known:
        return column.type.store(found)
    simple = None if numbers is None else _simple(column.default_expr)
    if numbers is not None and simple is not None:
        if simple == "now" and (of := moment_of(column.type)) is not None:
            return of(numbers.moment)
        if column.type.kind == Kind.INT64 and simple != "now":
            return column.type.store(int(numbers.take(int(simple), 1)[0]))
    return stored_list(column.type, _computed(column, 1, numbers))[0]


def is_fixed(column: ColumnMeta) -> bool:
    """Whether the default of a column is the same for all rows, not such as random() or the next number."""
    return not column.hidden and (column.default_expr is None or _constant(column.default_expr)[0])


def values(column: ColumnMeta, count: int, numbers: Numbers | None = None) -> pa.Array:
    """What a column gets in so many rows where no value is given. Raises what `value` raises."""
    if column.hidden:
        return row_ids(count)
    if not is_fixed(column):
        return _computed(column, count, numbers)
    return repeated(column, value(column), count)


def repeated(column: ColumnMeta, stored: Stored, count: int) -> pa.Array:
    """A column of so many times one value."""
    return stored_array(column.type, [stored]).take(pa.array(np.zeros(count, np.int64)))


def _computed(column: ColumnMeta, count: int, numbers: Numbers | None) -> pa.Array:
    from ontolake.sql.catalog.coercion import coerced

    assert column.default_expr is not None
    tree = parse_expression(column.default_expr)
    parts: dict[str, Any] = {"n": pa.array(range(count), pa.int64())}
    if counts(column.default_expr) and numbers is not None:
        for n, call in enumerate(_calls(tree)):
            parts[f"n{n}"] = pa.array(numbers.take(int(call.expressions[0].name), count), pa.int64())
            if call is tree:
                return coerced(column, parts["n0"])
            call.replace(exp.column(f"n{n}"))
    return coerced(column, execution.run(exp.select(tree).from_("t0"), {"t0": pa.table(parts)}).column(0))


_VOLATILE = {"random", "nextval", "currval", "setval", "lastval", "now", "clock_timestamp", "statement_timestamp",
             "transaction_timestamp", "timeofday", "gen_random_uuid", "txid_current"}  # fmt: skip


_NOW = {"now", "transaction_timestamp"}


def is_volatile(tree: exp.Expr) -> bool:
    """Whether an expression may give something else the next time."""
    if any(tree.find_all(exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.Rand, exp.Uuid)):
        return True
    return any(str(node.this).lower() in _VOLATILE for node in tree.find_all(exp.Anonymous))


def counts(sql: str | None) -> bool:
    """Whether a default takes the next number of a sequence."""
    return sql is not None and "nextval(" in sql.lower()


def _calls(tree: exp.Expr) -> list[exp.Anonymous]:
    return [node for node in tree.find_all(exp.Anonymous) if str(node.this).lower() == "nextval"]


def bound_to_ids(tree: exp.Expr, find: Callable[[str], int]) -> exp.Expr:
    """A default in which sequences are named by their ids, so that it stays the same when one is renamed."""
    tree = tree.copy()
    for call in _calls(tree):
        argument = call.expressions[0] if len(call.expressions) == 1 else None
        argument = argument.this if isinstance(argument, exp.Cast) else argument
        if not isinstance(argument, exp.Literal) or not argument.is_string:
            raise UnsupportedError("nextval in a DEFAULT needs the name of a sequence as text")
        call.set("expressions", [exp.Literal.number(find(argument.name))])
    return tree


def sequences_of(sql: str | None) -> list[int]:
    """The ids of the sequences that a default takes numbers of."""
    if sql is None or not counts(sql):
        return []
    return [int(call.expressions[0].name) for call in _calls(parse_expression(sql))]


_last = [0]
_last_lock = threading.Lock()


def _take_row_ids(count: int) -> int:
    with _last_lock:
        first = max(_last[0] + 1, time.time_ns())
        _last[0] = first + count
    return first


def row_ids(count: int) -> pa.Array:
    """Keys for rows of a table that has no primary key: in the order of time, and never the same on two branches."""
    first, mark = _take_row_ids(count), secrets.token_hex(4)
    return pa.array([f"{first + n:016x}{mark}" for n in range(count)], pa.string())


def next_row_id() -> str:
    """One of `row_ids`."""
    return f"{_take_row_ids(1):016x}{secrets.token_hex(4)}"


# generated columns


def check_given(column: ColumnMeta) -> None:
    """Raise `DefinitionError` if nobody may give a column values."""
    if column.generated or column.counting == "always":
        what = "a generated column" if column.generated else "an identity column defined as GENERATED ALWAYS"
        raise DefinitionError(f"a value cannot be given for {column.name}, which is {what}", sqlstate="428C9",
                              hint="leave it out or write DEFAULT" + ("" if column.generated else
                              ", or use OVERRIDING SYSTEM VALUE"))  # fmt: skip


def generated(table: Table, rows: pa.Table) -> list[tuple[ColumnMeta, pa.Array]]:
    """The values of the generated columns of rows."""
    from ontolake.sql.catalog.coercion import coerced

    wanted = [exp.alias_(exp.paren(parse_expression(column.generated)), f"g{n}")
              for n, column in enumerate(table.generated)]  # fmt: skip
    found = execution.run(exp.select(*wanted).from_("t0"), {"t0": rows})
    return [(column, coerced(column, found.column(n))) for n, column in enumerate(table.generated)]


def evaluated(
    parts: Mapping[str, ColumnMeta], conditions: Iterable[str], rows: pa.Table
) -> dict[str, pa.Array]:  # fmt: skip
    """The values of expressions of indexes, and which rows conditions are true of, by their text."""
    from ontolake.sql.catalog.coercion import coerced

    texts = [*parts, *(each for each in conditions if each not in parts)]
    if not rows.num_rows:
        return {text: pa.nulls(0, parts[text].type.arrow if text in parts else pa.bool_()) for text in texts}
    wanted = [exp.alias_(exp.paren(parse_expression(text)), f"e{n}") for n, text in enumerate(texts)]
    found = execution.run(exp.select(*wanted).from_("t0"), {"t0": rows})
    return {text: coerced(parts[text], found.column(n)) if text in parts
            else found.column(n).combine_chunks().cast(pa.bool_()).fill_null(False)
            for n, text in enumerate(texts)}  # fmt: skip


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
