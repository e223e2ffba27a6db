"""Running what keys cannot answer: DuckDB, over Arrow tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from sqlglot import exp

from ontolake.sql.errors import SqlError
from ontolake.sql.executor import connections
from ontolake.sql.executor.arrow_tables import ReadableTable, answer_table, readable_table
from ontolake.sql.executor.failures import translated
from ontolake.sql.executor.pg_types import (
    QUOTIENT_SCALES,
    PgType,
    WideNumber,
    with_quotient_scale,
    with_wide_numbers,
)
from ontolake.sql.executor.python_functions import TOO_LARGE
from ontolake.sql.executor.queries import Queries
from ontolake.sql.executor.scopes import CompiledQuery
from ontolake.sql.executor.sources import KnownTable
from ontolake.sql.plan.compiled_statements import CompiledStatements
from ontolake.sql.syntax.statements import Parameters, bound
from ontolake.sql.types import Type

_DECIMALS = re.compile("DECIMAL|numeric|38 digits|INT128|HUGEINT|^Value out of range$", re.IGNORECASE)
"""What DuckDB says of numbers that are too large for it."""
Keys = Mapping[str, Sequence[str]]
"""The columns of tables that make a row unique, by the names of the tables."""
Enums = Mapping[str, Type]
"""Enums by their names."""
_ROWS = 65_536
"""Rows of a batch of an answer, at most."""


def compiled(
    tree: exp.Expr, tables: Mapping[str, ReadableTable], keys: Keys | None = None, enums: Enums | None = None
) -> CompiledQuery:
    """A statement in DuckDB's SQL. Raises `SqlError`."""
    known = {name: KnownTable(table.columns, tuple((keys or {}).get(name, ()))) for name, table in tables.items()}
    try:
        named = {name: PgType(name, labels=type.labels) for name, type in (enums or {}).items()}
        return Queries(known, named).statement(tree)
    except RecursionError as error:
        raise SqlError("the statement is nested too deeply", sqlstate="54001") from error


def described(
    tree: exp.Expr, tables: Mapping[str, ReadableTable], keys: Keys | None = None, enums: Enums | None = None
) -> CompiledQuery:
    """A statement that is compiled to learn what it gives, with numerics of any size if it needs them."""
    try:
        return compiled(tree, tables, keys, enums)
    except WideNumber:
        with with_wide_numbers():
            return compiled(tree, tables, keys, enums)


def run(
    tree: exp.Expr, tables: Mapping[str, pa.Table], keys: Keys | None = None, enums: Enums | None = None,
    parameters: Parameters | None = None, kept: CompiledStatements | None = None,
) -> pa.Table:  # fmt: skip
    """The rows of a query over tables. `enums` are types that casts may name. Raises `SqlError`.

    A tree with parameters comes with their values; `kept` has what it was compiled to before, with the same keys.
    """
    try:
        return _run_plain(tree, tables, keys, enums, parameters, kept)
    except WideNumber:
        return _run_wide(tree, tables, keys, enums, parameters)
    except SqlError as error:
        if error.sqlstate != "22003" or _DECIMALS.search(error.message) is None:
            raise
        try:
            return _run_wide(tree, tables, keys, enums, parameters)
        except SqlError as other:
            raise (other if other.sqlstate[:2] == "22" else error) from None


def _run_wide(
    tree: exp.Expr, tables: Mapping[str, pa.Table], keys: Keys | None, enums: Enums | None,
    parameters: Parameters | None,
) -> pa.Table:  # fmt: skip
    """Run a query with numerics of any size."""
    with with_wide_numbers():
        readable = {name: readable_table(table) for name, table in tables.items()}
        query = compiled(tree if parameters is None else bound(tree, parameters), readable, keys, enums)
    return answer_table(_executed(query.sql, readable), query.outputs)


def _run_plain(
    tree: exp.Expr, tables: Mapping[str, pa.Table], keys: Keys | None, enums: Enums | None,
    parameters: Parameters | None, kept: CompiledStatements | None,
) -> pa.Table:  # fmt: skip
    """Run a query with the numerics of DuckDB. Raises `WideNumber` if it needs others."""
    readable = {name: readable_table(table) for name, table in tables.items()}
    for scale in QUOTIENT_SCALES:
        about = (scale, connections.generation(), keys is None)
        place = None if kept is None or enums else kept.key(parameters or (), readable, about)
        query = None if kept is None or place is None else kept.get(place)
        if query is None:
            with with_quotient_scale(scale):
                query = compiled(tree if parameters is None else bound(tree, parameters), readable, keys, enums)
            if kept is not None and place is not None:
                kept.put(place, query)
        try:
            return answer_table(_executed(query.sql, readable), query.outputs)
        except SqlError as error:
            if TOO_LARGE not in error.message or scale == QUOTIENT_SCALES[-1]:
                raise
    raise AssertionError("a statement was compiled with the last scale")


def streamed(
    tree: exp.Expr, tables: Mapping[str, pa.Table], keys: Keys | None = None, enums: Enums | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a query without parameters over tables, in batches, at least one. Raises `SqlError`."""
    queries = []
    try:
        readable = {name: readable_table(table) for name, table in tables.items()}
        for scale in (QUOTIENT_SCALES[0], QUOTIENT_SCALES[-1]):
            with with_quotient_scale(scale):
                queries.append(compiled(tree, readable, keys, enums))
    except WideNumber:
        queries = []
    if not queries or queries[0].sql != queries[1].sql:  # how many digits there are is known when all rows are
        yield from _batches(run(tree, tables, keys, enums))
        return
    with connections.connection() as connection:
        count = 0
        try:
            for name, table in readable.items():
                connection.register(name, table.arrow)
            reader = connection.sql(queries[0].sql).to_arrow_reader(_ROWS)
            while (batch := next(reader, None)) is not None:
                for each in answer_table(pa.Table.from_batches([batch]), queries[0].outputs).to_batches():
                    count += 1
                    yield each
            if not count:
                yield empty_batch(answer_table(pa.Table.from_batches([], reader.schema), queries[0].outputs).schema)
        except (GeneratorExit, SqlError):
            raise
        except Exception as error:
            found = translated(error)
            if count or found.sqlstate != "22003" or _DECIMALS.search(found.message) is None:
                raise found from error
            yield from _batches(run(tree, tables, keys, enums))
        finally:
            for name in tables:
                connection.unregister(name)


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    """The batches of a table, at least one."""
    return table.to_batches() or [empty_batch(table.schema)]


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """No rows of a schema. Arrow does not make empty arrays of every type by itself."""
    arrays = [pa.ExtensionArray.from_storage(type, pa.array([], type.storage_type))
              if isinstance(type, pa.BaseExtensionType) else pa.array([], type) for type in schema.types]  # fmt: skip
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _executed(sql: str, tables: Mapping[str, ReadableTable]) -> pa.Table:
    with connections.connection() as connection:
        try:
            for name, table in tables.items():
                connection.register(name, table.arrow)
            return connection.sql(sql).to_arrow_table()
        except Exception as error:
            raise translated(error) from error
        finally:
            for name in tables:
                connection.unregister(name)


def explained(tree: exp.Expr, tables: Mapping[str, pa.Table], keys: Keys | None = None) -> list[str]:
    """The lines of DuckDB's plan."""
    readable = {name: readable_table(table) for name, table in tables.items()}
    plan = _executed(f"EXPLAIN {described(tree, readable, keys).sql}", readable)
    return [line for text in plan.column(plan.num_columns - 1).to_pylist() for line in text.splitlines() if line.strip()]  # noqa: E501
