"""Imports: rows compared with what is there, and written as one commit or not at all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from ontolake.errors import Conflict
from ontolake.history.contention import commit_optimistically
from ontolake.model.filters import FieldRef, ValueRef
from ontolake.model.types import TypeInfo
from ontolake.ontology.errors import DanglingRelationError, HeadMismatchError, OntologyError
from ontolake.ontology.moving.import_lines import Row
from ontolake.ontology.query.plan import Plan, Values, with_where
from ontolake.ontology.repository.protocol import Repository, RepositoryTransaction

Policy = Literal["fail", "skip", "replace"]
_CHUNK = 1_000
_SCAN = 20
"""A type is read as a whole if it has less than so many rows for each that comes in."""
_NAMED = 10


class ImportConflictError(Conflict, OntologyError):
    """Rows are there already and say something else. `keys` has the type and the key of each."""

    def __init__(self, keys: Sequence[tuple[str, Any]]) -> None:
        self.keys = tuple(keys)
        shown = ", ".join(f"{name} {key!r}" for name, key in keys[:_NAMED])
        more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
        super().__init__(f"{len(keys)} rows are there already and differ: {shown}{more}; nothing was imported",
                         hint="choose --on-conflict skip or replace")


class TypeImport(NamedTuple):
    """What an import does to one type: how many rows are new, differ from what is there, or say the same."""

    type_kind: str
    type_name: str
    inserted: int
    differing: int
    unchanged: int


class ImportPlan(NamedTuple):
    """What an import would do to the store as it is at `head`."""

    head: int
    types: tuple[TypeImport, ...]
    conflicts: tuple[tuple[str, Any], ...]


def plan_import(repository: Repository, rows: Mapping[TypeInfo, Mapping[Any, Row]]) -> ImportPlan:
    """Compare rows with the latest state. Changes nothing."""
    with repository.reading():
        return _compared(repository, rows)[0]


def apply_import(
    repository: Repository, owner: str, rows: Mapping[TypeInfo, Mapping[Any, Row]], policy: Policy,
    metadata: Mapping[str, Any], *, check: Callable[[ImportPlan], None] = lambda plan: None,
    check_endpoints: bool = False,
) -> tuple[int | None, ImportPlan]:  # fmt: skip
    """Write the rows as one commit, and return it (None if nothing differs) with what was done.

    `check` is called with the plan while nobody else can write; what it raises ends the import with nothing changed.
    Raises `ImportConflictError` under the policy `fail`, `DanglingRelationError` if ends are to be checked and one is
    not there, and what a commit raises.
    """
    return commit_optimistically(
        lambda: _apply_once(repository, owner, rows, policy, metadata, check, check_endpoints), HeadMismatchError)


def _apply_once(
    repository: Repository, owner: str, rows: Mapping[TypeInfo, Mapping[Any, Row]], policy: Policy,
    metadata: Mapping[str, Any], check: Callable[[ImportPlan], None], check_endpoints: bool,
) -> tuple[int | None, ImportPlan]:  # fmt: skip
    with repository.transaction(owner) as transaction:
        plan, differing = _compared(repository, rows)
        if plan.conflicts and policy == "fail":
            raise ImportConflictError(plan.conflicts)
        check(plan)
        written, known = 0, repository.schemas()
        new = any((info.kind, info.name) not in known for info in rows)
        for info in sorted(rows, key=lambda one: one.kind):
            leave = differing[info] if policy == "skip" else set()
            chosen: Collection[Row] = [row for key, row in rows[info].items() if key not in leave]
            written += transaction.reconcile(info, chosen)
        for info in rows if check_endpoints else ():
            _check_endpoints(transaction, info)
        return (transaction.finish(metadata) if written or new else None), plan


def _check_endpoints(transaction: RepositoryTransaction, info: TypeInfo) -> None:
    for side, key, relation in transaction.missing_endpoints(info, limit=1) if info.kind == "relation" else ():
        end = info.left if side == "left" else info.right
        raise DanglingRelationError(f"there is no {end.__name__} {key!r}; nothing was imported", type_name=info.name,
                                    key=relation, field=f"{side}_key")


def _compared(
    repository: Repository, rows: Mapping[TypeInfo, Mapping[Any, Row]]
) -> tuple[ImportPlan, dict[TypeInfo, set[Any]]]:  # fmt: skip
    """What is new and what differs, and the keys of what differs."""
    types, conflicts, differing = [], [], {}
    for info in sorted(rows, key=lambda one: (one.kind, one.name)):
        given = rows[info]
        there = latest_rows(repository, info, given)
        differs = differing[info] = {key for key, row in there.items() if not _same(info, row, given[key])}
        types.append(TypeImport(info.kind, info.name, len(given) - len(there), len(differs),
                                len(there) - len(differs)))  # fmt: skip
        conflicts += [(info.name, key) for key in given if key in differs]
    return ImportPlan(repository.head(), tuple(types), tuple(conflicts)), differing


def latest_rows(repository: Repository, info: TypeInfo, keys: Mapping[Any, Any]) -> dict[Any, Row]:
    """The latest rows, as they are encoded, of those of the keys that are there."""
    if (info.kind, info.name) not in repository.schemas():
        return {}
    places = [info.all_columns.index(column) for column in (*info.keys, *info.columns)]
    pick: Callable[[Any], Any] = itemgetter(*places) if len(places) > 1 else lambda row: (row[places[0]],)
    plan = Plan(info.cls)
    found: dict[Any, Row] = {}

    def keep(chosen: Plan, values: Values) -> None:
        for full in repository.run(chosen, values):
            row = pick(full)
            key = info.key_of(row)
            if key in keys:
                found[key] = row

    if _few(repository, info, len(keys)):
        keep(plan, Values())
        return found
    column = info.keys[0]
    field: FieldRef[Any] = FieldRef(ValueRef(info.cls, column.name))
    first = iter({key if info.kind == "entity" else key[0]: None for key in keys})
    while chunk := list(islice(first, _CHUNK)):
        chunk += chunk[-1:] * (_CHUNK - len(chunk))  # always as many, so that it is always the same statement
        condition = field.in_([column.decode(one) for one in chunk])
        keep(with_where(plan, condition.shape), Values(condition.values))
    return found


def _few(repository: Repository, info: TypeInfo, given: int) -> bool:
    """Whether the type has so few rows that reading all of them is the quicker way."""
    limit = given * _SCAN
    rows = repository.run(Plan(info.cls, limit=True, offset=True), Values(limit=1, offset=limit))
    return next(iter(rows), None) is None


def _same(info: TypeInfo, old: Row, new: Row) -> bool:
    if old == new:
        return True
    return all(
        column.type.same(one, two)
        for column, one, two in zip((*info.keys, *info.columns), old, new, strict=True)
    )
