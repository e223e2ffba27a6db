"""Running what keys cannot answer: DataFusion, over Arrow tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from ontolake.extras import needs
from ontolake.sql.errors import (
    DataError,
    SqlError,
    SqlSyntaxError,
    TypeMismatchError,
    UnknownNameError,
    UnsupportedError,
)
from ontolake.sql.syntax import functions
from ontolake.sql.syntax.arithmetic import guarded
from ontolake.sql.syntax.dialect import adapted
from ontolake.sql.syntax.statements import DIALECT, name_of

if TYPE_CHECKING:
    from datafusion import DataFrame, SessionConfig

_BIG = 100_000


@cache
def _config(parallel: bool, hashed: bool) -> SessionConfig:
    from datafusion import SessionConfig

    config = (SessionConfig().set("datafusion.sql_parser.dialect", "PostgreSQL")
              .set("datafusion.sql_parser.parse_float_as_decimal", "true").set("datafusion.execution.time_zone", "UTC")
              .set("datafusion.execution.batch_size", "32768"))  # fmt: skip
    if not hashed:  # merge joins need two partitions at least
        config = config.set("datafusion.optimizer.prefer_hash_join", "false")
    return config if parallel else config.set("datafusion.execution.target_partitions", "1" if hashed else "2")


def _is_ambiguous(tree: exp.Expr, tables: Mapping[str, pa.Table]) -> bool:
    """Whether a condition above an outer join names a column that several tables have.

    DataFusion 55 moves such a condition below a hash join by the name of the column alone, to whichever side has one,
    where it filters the wrong column. It leaves it above a merge join.
    """
    if not any(join.side for join in tree.find_all(exp.Join)):
        return False
    seen: set[str] = set()
    shared: set[str] = set()
    for node in tree.find_all(exp.Table):
        names = set(tables[node.name].column_names) if node.name in tables else set()
        shared |= seen & names
        seen |= names
    return any(name_of(column.this) in shared for where in tree.find_all(exp.Where, exp.Having, exp.Qualify)
               for column in where.find_all(exp.Column))  # fmt: skip


def plan(tree: exp.Expr, tables: Mapping[str, pa.Table]) -> DataFrame:
    """A statement over tables, ready to run. Raises `SqlError`."""
    with needs("sql", "a query of SQL tables"):
        from datafusion import SessionContext

    tree = guarded(adapted(tree, tables), tables)
    big = any(table.num_rows > _BIG for table in tables.values())
    context = SessionContext(_config(big, not _is_ambiguous(tree, tables)))
    for name, table in tables.items():
        context.register_record_batches(name, [_batches(table)])
    functions.register(context, tree)
    try:
        return context.sql(tree.sql(DIALECT, normalize_functions="lower"))
    except Exception as error:
        raise translated(error) from error


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = table.to_batches()
    return found or [pa.RecordBatch.from_pylist([], table.schema)]


def run(tree: exp.Expr, tables: Mapping[str, pa.Table]) -> pa.Table:
    """The rows of a statement over tables. Raises `SqlError`."""
    frame = plan(tree, tables)
    try:
        return settled(frame.to_arrow_table())
    except Exception as error:
        if isinstance(error, SqlError):
            raise
        raise translated(error) from error


def settled(table: pa.Table) -> pa.Table:
    """A table whose columns have the Arrow types that tables of ours have, where there is one."""
    fields = []
    for field in table.schema:
        type = field.type
        if pa.types.is_large_string(type) or pa.types.is_string_view(type):
            type = pa.string()
        elif pa.types.is_large_binary(type) or pa.types.is_binary_view(type):
            type = pa.binary()
        elif pa.types.is_integer(type):
            type = pa.int64()
        elif pa.types.is_timestamp(type) and type.tz:
            type = pa.timestamp(type.unit, "UTC")
        elif pa.types.is_dictionary(type):
            type = type.value_type
        fields.append(pa.field(field.name, type))
    schema = pa.schema(fields)
    return table if schema.equals(table.schema) else table.cast(schema, safe=False)


_TRANSLATIONS: tuple[tuple[str, type[SqlError], str], ...] = (
    (r"Physical plan does not support logical expression WindowFunction", SqlError, "42P20"),
    (r"Physical plan does not support logical expression|does not support escape_char", UnsupportedError, "0A000"),
    (r"Order by column out of bounds", SqlError, "42P10"),
    (r"Aggregate function calls cannot be nested|Aggregate functions are not allowed", SqlError, "42803"),
    (r"different number of columns", SqlSyntaxError, "42601"),
    (r"No field named|field not found", UnknownNameError, "42703"),
    (r"[Aa]mbiguous", SqlError, "42702"),
    (r"Invalid function|There is no function|not found.*function", UnknownNameError, "42883"),
    (r"table .* not found", UnknownNameError, "42P01"),
    (r"[Dd]ivide by zero|[Dd]ivision by zero", DataError, "22012"),
    (r"square root of a negative|negative power|raised to a fraction", DataError, "2201F"),
    (r"the logarithm of", DataError, "2201E"),
    (r"Invalid timezone", DataError, "22023"),
    (r"[Oo]verflow|out of range|too large|Can't cast value|is too large to store", DataError, "22003"),
    (r"Cannot cast string|Cast error|Parser error|Error parsing|Casting from", DataError, "22P02"),
    (r"must appear in the GROUP BY|in the GROUP BY|non-aggregate values|could not be resolved from available columns",
     SqlError, "42803"),
    (r"[Cc]oerc|Cannot infer|[Tt]ype mismatch|argument type|incompatible|candidate functions|Unsupported data type"
     r"|Cannot create filter with non-boolean|[Cc]annot automatically convert|does not support|must be of|signature",
     TypeMismatchError, "42804"),
    (r"more than one row", SqlError, "21000"),
    (r"LIMIT must be", SqlError, "2201W"),
    (r"OFFSET must be", SqlError, "2201X"),
    (r"[Nn]ot implemented|[Uu]nsupported|not supported|not yet supported", UnsupportedError, "0A000"),
    (r"SQL error: (?:ParserError|TokenizerError)", SqlSyntaxError, "42601"),
    (r"unique expression names|duplicate", SqlError, "42701"),
)


def translated(error: BaseException) -> SqlError:
    """DataFusion's error as one of ours."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip() and line.strip() != "caused by"]
    last = next((line for line in reversed(lines) if not line.startswith(("Valid fields", "Did you mean"))), text)
    message = re.sub(r"^(?:(?:DataFusion error:|Arrow error:|Schema error:|Error during planning:|Execution error:"
                     r"|Cast error:|Compute error:|This feature is not implemented:|Optimizer rule '\w+' failed)\s*)+",
                     "", last)  # fmt: skip
    message = re.sub(r"^PyErr .*? value: \w+\((['\"])(.*?)\1\).*", r"\2", message)
    message = re.sub(r"^Physical plan does not support logical expression (?:\w*Subquery|Exists).*",
                     "a query of this form within another is not supported", message)
    message = re.sub(r"^Physical plan does not support logical expression WindowFunction.*",
                     "a window function is not allowed here", message)
    message = re.sub(r"^Physical plan does not support logical expression OuterReference.*",
                     "LATERAL with columns of a table before it is not supported", message)
    if unread := re.match(r"Unsupported ast node in sqltorel: (\w+)", message):
        message = f"{unread[1].upper()} is not supported"
    message = re.sub(r'^SQL error: \w+\("(.*)"\)$', r"\1", message)
    message = re.sub(r".*Invalid timezone (\S+):.*", r"there is no time zone \1", message)
    message = re.sub(r"^value of (\S+) is out of range Int64$", r"\1 is out of range for BIGINT", message)
    message = re.sub(r"^Invalid function '(\S+)'", r"there is no function \1", message)
    hint = None
    if (meant := re.search(r"Did you mean '?([^'?\n]+)'?\??", text)) is not None:
        hint, message = f"did you mean {meant.group(1)}?", message.partition("Did you mean")[0].strip()
    for pattern, kind, state in _TRANSLATIONS:
        if re.search(pattern, text):
            return kind(message.rstrip("."), sqlstate=state, hint=hint)
    return SqlError(message or text, sqlstate="42000", hint=hint)


def explained(tree: exp.Expr, tables: Mapping[str, pa.Table]) -> list[str]:
    """The lines of DataFusion's plan."""
    frame: Any = plan(tree, tables)
    try:
        return str(frame.logical_plan().display_indent()).splitlines()
    except Exception as error:
        raise translated(error) from error
