"""SQL over a snapshot, and search by words and by vectors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ontolake.errors import Invalid
from ontolake.extras import needs
from ontolake.graph.arguments import check_number, check_optional_text, check_text, check_vector
from ontolake.graph.errors import in_short
from ontolake.graph.tables.filters import filtering, to_sql
from ontolake.graph.tables.rows import as_decimals

if TYPE_CHECKING:
    import pyarrow as pa

    from ontolake.graph.read.views import SnapshotTables, TableView

_RANK = 60
"""How much the first places count when two rankings are joined: the usual constant of reciprocal rank fusion."""


def sql(snapshot: SnapshotTables, query: str) -> pa.Table:
    """See `Snapshot.sql`."""
    with needs("graph", "SQL over a graph"):
        import datafusion
    import pyarrow as pa

    check_text(query=query)
    context = datafusion.SessionContext()
    words = {word.lower() for word in re.findall(r"\w+", query)}
    for kind in snapshot.types.values():
        if kind.name.lower() in words:  # names without quotes are lower case in SQL
            table = _with_decimals(snapshot.table(kind))
            empty = [pa.RecordBatch.from_pylist([], table.schema)]
            context.register_record_batches(kind.name, [table.to_batches() or empty])
    try:
        options = datafusion.SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
        frame = context.sql_with_options(query, options)  # which reads and writes no files
        return frame.to_arrow_table()
    except Exception as error:  # whatever the planner and the functions it calls may raise
        names = ", ".join(sorted(kind.name for kind in snapshot.types.values()))
        raise Invalid(f"the query cannot be run: {in_short(error)}",
                      hint=f"the tables are {names}") from error


def _with_decimals(view: TableView) -> pa.Table:
    """All rows, with decimals that are stored as text as numbers."""
    table = view.to_arrow()
    for field in view.kind.fields:
        if field.scalar is not None and field.scalar.fixed_point and field.digits is None:
            place = table.schema.get_field_index(field.name)
            table = table.set_column(place, field.name, as_decimals(table.column(place)))
    return table


def search(
    view: TableView, *, text: str | None, vector: Sequence[float] | None, column: str | None, limit: int, filter: Any
) -> pa.Table:  # fmt: skip
    """See `Snapshot.search`."""
    if text is None and vector is None:
        raise Invalid("a search needs text=, vector= or both")
    check_optional_text(text=text, column=column)
    check_number(1, limit=limit)
    if vector is None:
        return _by_text(view, str(text), column, limit, filter)
    if text is None:
        return _by_vector(view, vector, column, limit, filter)
    return _joined(view, _by_text(view, text, None, limit * 4, filter),
                   _by_vector(view, vector, column, limit * 4, filter), limit)


def _names(view: TableView) -> list[str]:
    return [field.name for field in view.kind.fields if field.type != "blob"]


def _by_text(view: TableView, text: str, column: str | None, limit: int, filter: Any) -> pa.Table:
    indexed = [name for index in view.dataset.describe_indices() if "Inverted" in index.type_url
               for name in index.field_names]  # fmt: skip
    columns = [column] if column is not None else indexed
    if not columns or any(name not in indexed for name in columns):
        raise Invalid(f"{view.name} has no text index" + (f" on {column!r}" if column else ""),
                      hint="make one with graph.index(table, column, kind='text'), or onto graph index --kind text")
    return _best(view, limit, filter, "_score", full_text_query={"query": text, "columns": columns})


def _by_vector(view: TableView, vector: Sequence[float], column: str | None, limit: int, filter: Any) -> pa.Table:
    known = [field for field in view.kind.fields if field.type == "vector" and column in (None, field.name)]
    if len(known) != 1:
        raise Invalid(f"{view.name} has {'no' if not known else 'more than one'} vector column"
                      + (f" {column!r}" if column else ""), hint="name one with column=")
    check_vector(known[0].length or 0, vector=vector)
    import numpy as np

    nearest = {"column": known[0].name, "q": np.asarray(vector, dtype=np.float32), "k": limit}
    return _best(view, limit, filter, "_distance", nearest=nearest)


def _best(view: TableView, limit: int, filter: Any, score: str, **query: Any) -> pa.Table:
    """The first rows of a ranking.

    An index may hold rows that are gone: they take places and are left out of what it returns. Where that comes back
    short, it is asked again for those that are there, which takes a look at all row ids.
    """
    columns, where = [*_names(view), score], to_sql(filter)
    with filtering(view.kind, filter):
        if where is None:
            found = view.dataset.to_table(columns=columns, limit=limit, **query)
            if found.num_rows == min(limit, view.pin.rows):
                return found
        return view.dataset.to_table(columns=columns, limit=limit, filter=where or "true", prefilter=True, **query)


def _joined(view: TableView, by_text: pa.Table, by_vector: pa.Table, limit: int) -> pa.Table:
    """Two rankings as one: places count, not scores, which cannot be compared."""
    import pyarrow as pa

    scores: dict[Any, float] = {}
    rows: dict[Any, dict[str, Any]] = {}
    for ranking in (by_text, by_vector):
        for place, row in enumerate(ranking.select(_names(view)).to_pylist()):
            key = view.key_of(row)
            scores[key] = scores.get(key, 0.0) + 1 / (_RANK + place + 1)
            rows[key] = row
    best = sorted(scores, key=lambda key: (-scores[key], str(key)))[:limit]
    schema = pa.schema([*(view.kind.schema.field(name) for name in _names(view)),
                        pa.field("_relevance_score", pa.float64())])
    return pa.Table.from_pylist([{**rows[key], "_relevance_score": scores[key]} for key in best], schema)
