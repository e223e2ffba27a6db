"""`onto_conflicts`: the conflicts of the merge or revert under way on a branch, as a table to `UPDATE`.

`CALL onto_merge` and `CALL onto_revert` leave it behind if there are conflicts, for every handle on the branch, in any
process. `take` says whose value stays; or `value` is given. The same call then goes by what was decided, for as long
as the conflict is the same. Another call on the branch takes its place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from sqlglot import exp

from ontolake.errors import Invalid, NotFound
from ontolake.history import Conflict, MergeConflictError, MergeResult, Resolution, Value
from ontolake.history.conflicts import checked
from ontolake.sql.errors import DataError, TransactionError, UnknownNameError, UnsupportedError, nearest
from ontolake.sql.history import merge_state
from ontolake.sql.history.merge_state import MergeState
from ontolake.sql.plan.queries import run_over
from ontolake.sql.results import Result
from ontolake.sql.syntax.statements import Parameters, bound, name_of

if TYPE_CHECKING:
    from ontolake.sql.database import Database

NAME = "onto_conflicts"
_SCHEMA = pa.schema([(name, pa.string()) for name in (
    "source", "table_name", "key", "column_name", "kind", "base", "ours", "theirs", "take", "value", "detail")])
_SETTABLE = ("take", "value")
_PLACE = "place"
_VALUE = "value"

class ConflictTable:
    """What is to be decided before a merge goes on. Nothing of it is kept in memory: `merge_state` has it."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def run(self, verb: str, source: str | int, strategy: Any) -> MergeResult[int]:
        """Merge or revert, by what was decided if it is the call that left conflicts. Raises `MergeConflictError`,
        whose conflicts then are in the table."""
        session = self._db.session
        state = merge_state.stored(session)
        decided: list[Resolution] = []
        if state is not None and state.is_of(verb, source) and state.decisions:
            settled = (state.resolution(each) for each in self._attempt(verb, source, dry_run=True).conflicts)
            decided = [each for each in settled if each is not None]
        try:
            result = self._attempt(verb, source, strategy=strategy, resolutions=decided)
        except MergeConflictError:
            if not session.readonly and (state is None or not state.is_of(verb, source)):
                merge_state.store(session, MergeState.of(verb, source))
            raise
        if state is not None:
            merge_state.store(session, None)
        return result

    def _attempt(self, verb: str, source: str | int, **options: Any) -> MergeResult[int]:
        if verb == merge_state.REVERT:
            return self._db.revert(source, **options)
        return self._db.merge(cast("str", source), **options)

    def _open(self) -> tuple[MergeState | None, Sequence[Conflict]]:
        """The merge under way, and its conflicts as they are now: none if what it merges is there no longer."""
        state = merge_state.stored(self._db.session)
        if state is None:
            return None, []
        try:
            return state, self._attempt(state.verb, state.source, dry_run=True).conflicts
        except NotFound:
            return None, []

    def read(self) -> pa.Table:
        """The table."""
        return self._shown(*self._open())

    def _shown(self, state: MergeState | None, conflicts: Sequence[Conflict]) -> pa.Table:
        rows = []
        for conflict in conflicts:
            assert state is not None
            resolution = state.resolution(conflict)
            take = None if resolution is None else resolution.take
            rows.append({
                "source": state.title, "table_name": conflict.table, "key": _text(conflict.key),
                "column_name": conflict.field, "kind": conflict.kind.value, "base": _text(conflict.base),
                "ours": _text(conflict.ours), "theirs": _text(conflict.theirs), "detail": conflict.detail or None,
                "take": _VALUE if isinstance(take, Value) else take,
                "value": _text(take.value) if isinstance(take, Value) else None})  # fmt: skip
        return pa.Table.from_pylist(rows, _SCHEMA)

    def update(self, tree: exp.Update, parameters: Parameters) -> Result:
        """`UPDATE onto_conflicts SET take = 'ours' | 'theirs' | 'base' | NULL`, or `SET value = …`. Raises `SqlError`,
        `Invalid` for what settles nothing; then nothing was decided."""
        if self._db.in_transaction:
            raise TransactionError(f"{NAME} cannot be updated within a transaction", sqlstate="25001",
                                   hint="COMMIT it first")
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
        state, conflicts = self._open()
        places = pa.array(range(len(conflicts)), pa.int64())
        found = run_over(query, {"conflicts": self._shown(state, conflicts).append_column(_PLACE, places)}).arrow()
        decided = [(conflicts[row[_PLACE]], self._resolution(conflicts[row[_PLACE]], row)) for row in found.to_pylist()]
        if state is not None and decided:
            for conflict, resolution in decided:
                state = state.decided(conflict, resolution)
            merge_state.store(self._db.session, state)
        return Result("UPDATE", len(decided))

    def _resolution(self, conflict: Conflict, row: dict[str, Any]) -> Resolution | None:
        take = row.get("new_take")
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
