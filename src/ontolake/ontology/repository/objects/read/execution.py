"""Answers to plans: which rows they are about, and who works them out.

A key alone is looked up. Rows without a condition come straight from the files. What typed columns can answer goes
through DataFusion where it is installed, everything else through SQLite in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ontolake.model.columns import Column
from ontolake.model.filters import Compare, Member, ValueRef
from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology.arrow.physical import (
    encoded,
    flags,
    key_text,
    key_texts,
    public_table,
    rows_of,
)
from ontolake.ontology.query.compiler.conditions import comparand
from ontolake.ontology.query.needs import conjuncts, needed
from ontolake.ontology.query.plan import Plan, Values
from ontolake.ontology.repository.arrow import arrow_table, deleted_name
from ontolake.ontology.repository.objects.read import datafusion as s3_datafusion
from ontolake.ontology.repository.objects.read.row_groups import pruner
from ontolake.ontology.repository.objects.read.scan import Span
from ontolake.ontology.repository.objects.read.sqlite import run_in_sqlite
from ontolake.ontology.repository.protocol import Row, RowChange

if TYPE_CHECKING:
    from ontolake.ontology.repository.objects.base import S3Repository


class Executor:
    """Answers plans from the files of a repository, at its moment."""

    def __init__(self, repository: S3Repository) -> None:
        self._repository = repository
        self._sizes = repository.config.sizes

    def run(self, plan: Plan, values: Values) -> Iterator[Row]:
        info = type_info(plan.root)
        table = self._direct(plan, values, info)
        if table is not None:
            rows = rows_of(info.all_columns, table)
            return _told(rows, table) if plan.deletions else rows
        columns = needed(plan)
        tables = {one: self._rows(plan, values, one, wanted) for one, wanted in columns.items()}
        if plan.output != "rows" and len(tables[info]) >= self._sizes.planned_rows and s3_datafusion.fits(plan):
            found = s3_datafusion.measured(plan, values, tables[info])
            if found is not None:
                return iter(found)
        return run_in_sqlite(plan, values, tables, self._sizes.batch_rows)

    def run_arrow(self, plan: Plan, values: Values) -> pa.Table:
        info = type_info(plan.root)
        table = self._direct(plan, values, info)
        if table is not None:
            found = public_table(info.all_columns, table)
            if plan.deletions:
                name = pa.field(deleted_name(info.all_columns), pa.bool_(), False)
                found = found.append_column(name, pa.array(flags(table), pa.bool_()))
            return found
        return arrow_table(info.all_columns, self.run(plan, values), self._sizes.batch_rows, deletions=plan.deletions)

    def _direct(self, plan: Plan, values: Values, info: TypeInfo) -> pa.Table | None:
        """The rows of a plan for rows of one type, if nothing has to be worked out; else None."""
        if plan.output != "rows" or plan.hops:
            return None
        key = None if plan.order else _only_key(plan, info)
        if key is not None and not plan.as_of and not plan.history:
            text = _as_key(key, values.where[0])
            state = self._repository.files_of(info)
            found = None
            if text is not None:
                found = self._repository.scanner.lookup(info, state, key_text(info, [text]), text)
            return _sliced(self._nothing(info) if found is None else found, values)
        if plan.where is None and not plan.order:
            return _sliced(self._rows(plan, values, info, info.all_columns), values)
        if not s3_datafusion.fits(plan):
            return None
        rows = self._rows(plan, values, info, info.all_columns)
        return s3_datafusion.chosen(plan, values, rows) if len(rows) >= self._sizes.planned_rows else None

    def _nothing(self, info: TypeInfo) -> pa.Table:
        return self._repository.scanner.scan(info, None)

    def _rows(self, plan: Plan, values: Values, info: TypeInfo, columns: tuple[Column, ...]) -> pa.Table:
        """The rows of a type that a plan is about: within its bounds, if it is the root; else the last ones."""
        repository = self._repository
        state = repository.files_of(info)
        if state is None:
            return repository.scanner.scan(info, None, columns=columns)
        root = info is type_info(plan.root)
        since = values.since if root and not plan.hops else None
        span = Span(values.as_of, since, plan.history and root, plan.deletions and root)
        if not plan.history and since is not None:
            span = Span(values.as_of)
        if not root or plan.hops:
            return repository.scanner.scan(info, state, span, columns)
        keys = _keys(plan, values)
        return repository.scanner.scan(info, state, span, columns, pruner(plan, values), keys=keys)

    def changes(self, info: TypeInfo, commit_id: int) -> Iterator[RowChange]:
        """What a commit did to rows of a type."""
        repository = self._repository
        state = repository.files_of(info)
        after = repository.scanner.scan(info, state, Span(commit_id, commit_id - 1, history=True, deletions=True))
        if not len(after):
            return
        leading = list(dict.fromkeys(encoded(info.keys[0], after)))
        earlier = repository.scanner.scan(info, state, Span(commit_id - 1), keys=leading)
        places = {key: place for place, key in enumerate(key_texts(info, earlier).to_pylist())}
        at = [places.get(key) for key in key_texts(info, after).to_pylist()]
        known = earlier.take(pa.array([place for place in at if place is not None], pa.int64()))
        before = iter([*rows_of(info.all_columns, known)])
        keys = list(zip(*(encoded(column, after) for column in info.keys), strict=True))
        rows = zip(keys, at, rows_of(info.all_columns, after), flags(after), strict=True)
        for key, place, row, is_deleted in rows:
            yield RowChange(key[0] if info.kind == "entity" else key, None if place is None else next(before),
                            None if is_deleted else row)


def _keys(plan: Plan, values: Values) -> list[Any] | None:
    """The first keys that rows of the root can have, if a plan names them."""
    column = type_info(plan.root).keys[0]
    for shape, given in conjuncts(plan.where, values.where):
        if (
            isinstance(shape, Compare | Member) and shape.op in ("==", "in")
            and shape.ref == ValueRef(plan.root, column.name) and getattr(shape, "other", None) is None
        ):  # fmt: skip
            return [key for value in given if (key := _as_key(column, value)) is not None]
    return None


def _as_key(column: Column, value: Any) -> Any:
    """A value to compare with a key, encoded; None for a number that no key can be."""
    found = comparand(column)(value)
    if column.sqlite_type != "INTEGER":
        return found if isinstance(found, int | str) else None
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    return found if isinstance(found, int) and -(2**63) <= found < 2**63 else None


def _only_key(plan: Plan, info: TypeInfo) -> Column | None:
    """The key of an entity type, if that it has a value is all that a plan asks for."""
    shape: Any = plan.where
    if info.kind != "entity" or not isinstance(shape, Compare) or shape.op != "==" or shape.other is not None:
        return None
    return info.keys[0] if shape.ref == ValueRef(plan.root, info.keys[0].name) else None


def _told(rows: Iterator[Row], table: pa.Table) -> Iterator[Row]:
    """Rows that say behind their commit whether they end their key."""
    return ((*row, mark) for row, mark in zip(rows, flags(table).tolist(), strict=True))


def _sliced(table: pa.Table, values: Values) -> pa.Table:
    return table.slice(values.offset or 0, values.limit)
