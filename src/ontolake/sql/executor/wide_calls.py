"""Calls of functions and aggregates with numerics of any size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ontolake.sql.errors import UnsupportedError
from ontolake.sql.executor import casts, operators, python_functions, wide_numbers
from ontolake.sql.executor.pg_types import INT4, INTEGERS, WideNumber, is_wide, numeric
from ontolake.sql.executor.typed import TypedSql, merged

if TYPE_CHECKING:
    from ontolake.sql.executor.calls import Modifiers


def called(name: str, arguments: list[TypedSql]) -> TypedSql | None:
    """A call with numerics of any size; None if it is another one. Raises `WideNumber` if it needs them."""
    types = {each.type.name for each in arguments}
    known = wide_numbers.FUNCTIONS if "numeric" in types else ("scale", "trim_scale", "min_scale", "factorial")
    if name not in known or not types <= {*INTEGERS, "numeric", "unknown"}:
        return None
    if name in ("scale", "trim_scale", "min_scale") and not is_wide():
        raise WideNumber
    if not is_wide():
        return None
    if name in ("greatest", "least"):
        values = [casts.converted(each, numeric(0)) for each in arguments]
        texts = f"CAST([{', '.join(each.sql for each in values)}] AS VARCHAR[])"
        return merged(python_functions.call("wide_several", texts, f"'{name}'"), numeric(0), values)
    if name in ("scale", "min_scale"):
        value = casts.converted(arguments[0], numeric(0))
        return merged(python_functions.call("wide_scale", value.sql, f"'{name}'"), INT4, [value])
    return operators.wide(name, arguments) if len(arguments) <= 2 else None


def aggregated(name: str, given: TypedSql, modifiers: Modifiers) -> TypedSql:
    """sum(), avg(), min(), max(), variances and deviations of numerics of any size."""
    value = casts.converted(given, numeric(0))
    around = f"{modifiers.filter}{modifiers.over}"
    if name in ("min", "max"):
        sql = f"arg_{name}({value.sql}, {operators.keyed(value).sql}){around}"
        return merged(sql, numeric(0), [given])
    if modifiers.distinct:
        raise UnsupportedError(f"{name}(DISTINCT …) is not supported for numbers of more than 38 digits",
                               hint="select DISTINCT values in a query of FROM")
    texts = f"array_agg({value.sql}){around}"
    return merged(python_functions.call("wide_several", texts, f"'{name}'"), numeric(0), [given])
