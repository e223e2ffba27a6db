"""`onto_conflicts`: the conflicts of the last `CALL onto_merge` or `onto_revert`, as a table to `UPDATE`.

It belongs to the open database and is kept in memory. `take` says whose value stays; or `value` is given. The same call
then goes by what was decided, for as long as the conflict is the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ontolake.errors import Invalid
from ontolake.history import Conflict, MergeConflictError, MergeResult, Resolution, Value
from ontolake.history.conflicts import checked
from ontolake.sql.errors import DataError, UnknownNameError, UnsupportedError, nearest
from ontolake.sql.plan.queries import run_over
from ontolake.sql.results import Result
from ontolake.sql.syntax.statements import Parameters, bound, name_of

NAME = "onto_conflicts"
_SCHEMA = pa.schema([(name, pa.string()) for name in (
    "source", "table_name", "key", "column_name", "kind", "base", "ours", "theirs", "take", "value", "detail")])
_SETTABLE = ("take", "value")
_PLACE = "place"
_VALUE = "value"

Attempt = Callable[[Sequence[Resolution], bool], MergeResult[int]]
"""Merges or reverts with resolutions; or only looks for conflicts."""


@dataclass
class OpenConflict:
    """A conflict, and what was decided about it."""

    conflict: Conflict
    resolution: Resolution | None = None


class ConflictTable:
    """What is to be decided before a merge goes on."""

    def __init__(self) -> None:
        self._call: tuple[str, str] = ("", "")
        self._open: list[OpenConflict] = []

    def run(self, source: str, into: str, attempt: Attempt) -> MergeResult[int]:
        """Merge, by what was decided if it is the call that left conflicts. Raises `MergeConflictError`, whose
        conflicts then are in the table."""
        decided: list[Resolution] = []
        if self._call == (source, into) and any(each.resolution for each in self._open):
            self._renew(attempt((), True).conflicts)
            decided = [each.resolution for each in self._open if each.resolution is not None]
        try:
            result = attempt(decided, False)
        except MergeConflictError as error:
            if self._call != (source, into):
                self._call, self._open = (source, into), []
            left = {_place(each) for each in error.conflicts}
            settled = [each.conflict for each in self._open if each.resolution and _place(each.conflict) not in left]
            self._renew([*settled, *error.conflicts])
            raise
        self._call, self._open = ("", ""), []
        return result

    def _renew(self, conflicts: Sequence[Conflict]) -> None:
        """Have these conflicts, with what was decided about those that are as they were."""
        known = {_place(each.conflict): each for each in self._open}
        self._open = [found if (found := known.get(_place(each))) is not None and found.conflict[:7] == each[:7]
                      else OpenConflict(each) for each in conflicts]  # fmt: skip

    def read(self) -> pa.Table:
        """The table."""
        rows = []
        for conflict, resolution in ((each.conflict, each.resolution) for each in self._open):
            take = None if resolution is None else resolution.take
            rows.append({
                "source": self._call[0], "table_name": conflict.table, "key": _text(conflict.key),
                "column_name": conflict.field, "kind": conflict.kind.value, "base": _text(conflict.base),
                "ours": _text(conflict.ours), "theirs": _text(conflict.theirs), "detail": conflict.detail or None,
                "take": _VALUE if isinstance(take, Value) else take,
                "value": _text(take.value) if isinstance(take, Value) else None})  # fmt: skip
        return pa.Table.from_pylist(rows, _SCHEMA)

    def update(self, tree: exp.Update, parameters: Parameters) -> Result:
        """`UPDATE onto_conflicts SET take = 'ours' | 'theirs' | 'base' | NULL`, or `SET value = …`. Raises `SqlError`,
        `Invalid` for what settles nothing; then nothing was decided."""
        copy = bound(tree, parameters)
        if any(copy.args.get(name) for name in ("from_", "from", "returning", "with_", "with")):
            raise UnsupportedError(f"UPDATE {NAME} takes SET and WHERE alone")
        given: dict[str, exp.Expr] = {}
        for each in copy.expressions:
            name = name_of(each.this.this) if isinstance(each, exp.EQ) and isinstance(each.this, exp.Column) else ""
            if name not in _SETTABLE:
                raise UnknownNameError(f"{name or each.sql()} of {NAME} cannot be set", sqlstate="42703",
                                       hint=nearest(name, _SETTABLE))
            given[name] = each.expression
        alias = copy.this.args.get("alias")
        shown = name_of(alias.this) if alias is not None else NAME
        query = exp.select(exp.column(_PLACE), *(exp.alias_(each, f"new_{name}") for name, each in given.items()))
        query = query.from_(exp.alias_(exp.to_table("conflicts"), shown, table=True, quoted=True))
        where = copy.args.get("where")
        if where is not None:
            query = query.where(where.this)
        places = pa.array(range(len(self._open)), pa.int64())
        found = run_over(query, {"conflicts": self.read().append_column(_PLACE, places)}).arrow()
        decided = [(row[_PLACE], self._resolution(self._open[row[_PLACE]], row)) for row in found.to_pylist()]
        for place, resolution in decided:
            self._open[place].resolution = resolution
        return Result("UPDATE", len(decided))

    def _resolution(self, each: OpenConflict, row: dict[str, Any]) -> Resolution | None:
        conflict, take = each.conflict, row.get("new_take")
        if "new_value" in row and take in (None, _VALUE):
            value = row["new_value"]
            if conflict.field is None and value is not None:
                value = _row(value)
            return Resolution(conflict.table, conflict.key, conflict.field, Value(value))
        if take == _VALUE:
            raise Invalid(f"take = 'value' of {NAME} needs a value", hint="SET value = … alone is enough")
        return None if take is None else checked(Resolution(conflict.table, conflict.key, conflict.field, take))


def is_target(tree: exp.Expr) -> bool:
    """Whether a table or an UPDATE names the table of conflicts."""
    node = tree.this if isinstance(tree, exp.Update) else tree
    return isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) and not node.args.get("db") and \
        name_of(node.this) == NAME  # fmt: skip


def _place(conflict: Conflict) -> tuple[Any, ...]:
    return conflict.table, conflict.key, conflict.field, conflict.kind


def _text(value: Any) -> str | None:
    """A value for people: text as it is, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, default=str, ensure_ascii=False)


def _row(value: Any) -> Any:
    try:
        return json.loads(value)
    except (TypeError, ValueError):
        raise DataError(f"{value!r} is no row", sqlstate="22P02", hint="give it as a JSON object, or NULL") from None
