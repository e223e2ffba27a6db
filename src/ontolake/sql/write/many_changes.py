"""One statement for many sets of parameters: the rows of all sets are worked out, then written together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from ontolake.sql.plan.queries import QueryPlan
from ontolake.sql.syntax.statements import Parameters, ParsedStatement, constant, given_value, name_of
from ontolake.sql.types import Stored
from ontolake.sql.write import bulk
from ontolake.sql.write.assignments import is_default, is_given
from ontolake.sql.write.row_inserts import RowInsert
from ontolake.sql.write.row_writer import RowWriter
from ontolake.sql.write.rows import Rows, decoded
from ontolake.sql.write.sequences import Numbers

if TYPE_CHECKING:
    from ontolake.sql.transactions import SqlSession, SqlTransaction

_ROWS = 20_000
"""Rows that are worked out at once."""


def change(
    session: SqlSession, transaction: SqlTransaction, statement: ParsedStatement, prepared: Any,
    sets: Sequence[Parameters],
) -> int | None:  # fmt: skip
    """Run a statement with what was prepared for it. Returns how many rows it has changed; None if it is not for here:
    then nothing was done. Raises what the statement raises."""
    tree = statement.tree
    assert tree is not None
    if tree.args.get("returning"):
        return None
    if isinstance(prepared, RowInsert):
        return _insert(session, transaction, prepared, sets)
    if isinstance(prepared, QueryPlan) and isinstance(tree, exp.Update | exp.Delete) and not tree.args.get("from_") \
            and not tree.args.get("using"):  # fmt: skip
        return _change_points(session, transaction, tree, prepared, sets)
    return None


def _insert(session: SqlSession, transaction: SqlTransaction, insert: RowInsert, sets: Sequence[Parameters]) -> int:
    numbers = Numbers(session, transaction)
    for begin in range(0, len(sets), _ROWS):
        rows = [insert.row(each, numbers) for each in sets[begin : begin + _ROWS]]
        bulk.load_rows(session, transaction, Rows(insert.table, tuples=rows))
    return len(sets)


def _change_points(
    session: SqlSession, transaction: SqlTransaction, tree: exp.Update | exp.Delete, plan: QueryPlan,
    sets: Sequence[Parameters],
) -> int | None:  # fmt: skip
    """Change or delete the rows that the sets name by their primary keys, each another one."""
    table = plan.sources[0].table if plan.sources else None
    if table is None:
        return None
    places: list[tuple[int, exp.Expr]] = []
    for node in tree.expressions if isinstance(tree, exp.Update) else ():
        if not isinstance(node, exp.EQ) or not isinstance(node.this, exp.Column):
            return None
        column = table.by_name.get(name_of(node.this.this))
        if column is None or column in table.primary_key or is_default(node.expression) \
                or not is_given(node.expression):  # fmt: skip
            return None  # a row that gets another key may be meant by a later set
        places.append((table.place[column.column_id], node.expression))
    wanted = [plan.point(each) for each in sets]
    found = [key for key in wanted if key is not None]
    if len(found) < len(wanted) or len(set(found)) < len(found):
        return None
    there = session.keyspace.get_many(found)
    known = [(key, each) for key, each in zip(found, sets, strict=True) if key in there]
    old = decoded(table, [there[key] for key, _ in known])
    writer = RowWriter(session.keyspace, transaction)
    if isinstance(tree, exp.Delete):
        writer.delete(old)
        return len(known)
    new: list[list[Stored]] = []
    for row, (_, each) in zip(old.tuples, known, strict=True):
        changed = list(row)
        for place, node in places:
            given = given_value(node, each) if isinstance(node, exp.Placeholder) else constant(node)
            changed[place] = table.columns[place].type.store(given)
        new.append(changed)
    writer.update(old, Rows(table, tuples=new))
    return len(known)
