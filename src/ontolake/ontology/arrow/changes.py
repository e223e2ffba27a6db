"""Changes as Arrow: what commits did to the rows of a type, each with its state before and after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ontolake.history import Change, ChangeKind
from ontolake.model.filters import Member, ValueRef
from ontolake.model.types import TypeInfo
from ontolake.ontology.query.plan import Plan, Values

if TYPE_CHECKING:
    import pyarrow as pa

    from ontolake.ontology.repository.protocol import Repository


class Changes(Iterator[Change[int]]):
    """Changes one by one, or as Arrow batches."""

    def __init__(
        self, one_by_one: Iterator[Change[int]], repository: Repository, types: Iterable[TypeInfo], since: int,
        until: int | None,
    ) -> None:  # fmt: skip
        self._one_by_one = one_by_one
        self._given = (repository, types, since, until)

    def __next__(self) -> Change[int]:
        return next(self._one_by_one)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """All of them as Arrow batches, however many were taken one by one: `type`, `key`, `kind`, `before`, `after`
        and `commit_id`, type by type."""
        return arrow_changes(*self._given)


def arrow_changes(
    repository: Repository, types: Iterable[TypeInfo], since: int, until: int | None
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """Batches of changes in `(since, until]`, type by type, in the order in which rows were written.

    A batch has `type`, `key` (a struct for relations), `kind`, `before` and `after` (structs of the fields, `before`
    is missing for an insert, `after` for a deletion) and `commit_id`.
    """
    with repository.reading():
        last = repository.head() if until is None else until
        for info in types:
            yield from _of_type(repository, info, since, last)


def _of_type(repository: Repository, info: TypeInfo, since: int, until: int) -> Iterator[pa.RecordBatch]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from ontolake.arrow_values import text_scalar

    after = repository.run_arrow(
        Plan(info.cls, history=True, as_of=True, since=True, deletions=repository.keeps_deletions),
        Values(as_of=until, since=since))
    if not after.num_rows:
        return
    deleted = np.zeros(after.num_rows, dtype=bool)
    if repository.keeps_deletions:
        deleted = after.column(after.num_columns - 1).to_numpy()
        after = after.drop_columns([after.column_names[-1]])
    states = pa.concat_tables([_before(repository, info, after, since), after])
    gone = np.concatenate([np.zeros(states.num_rows - after.num_rows, dtype=bool), deleted])
    names = [column.stored for column in info.keys]
    order = np.lexsort([np.arange(states.num_rows), _codes(states, names)])
    codes = _codes(states, names)[order]
    previous = np.full(states.num_rows, -1)
    previous[order[1:]] = np.where(codes[1:] == codes[:-1], order[:-1], -1)
    previous = previous[states.num_rows - after.num_rows :]
    previous = np.where((previous >= 0) & ~gone[previous], previous, -1)
    fields = [column.stored for column in info.all_columns]
    known = pa.array(previous >= 0)
    rows = pa.StructArray.from_arrays([states.column(name).combine_chunks() for name in fields], names=fields)
    before = rows.take(pa.array(np.where(previous >= 0, previous, 0), mask=previous < 0))
    keys = [after.column(name).combine_chunks() for name in names]
    found = pa.table({
        "type": pa.array([f"{info.kind}/{info.name}"] * after.num_rows, pa.string()),
        "key": keys[0] if info.kind == "entity" else pa.StructArray.from_arrays(keys, names=names),
        "kind": pc.if_else(pa.array(deleted), text_scalar(ChangeKind.DELETE.value), pc.if_else(
            known, text_scalar(ChangeKind.UPDATE.value), text_scalar(ChangeKind.INSERT.value))),
        "before": before,
        "after": rows.take(pa.array(np.arange(states.num_rows - after.num_rows, states.num_rows), mask=deleted)),
        "commit_id": after.column(after.column_names[-1]),
    })  # fmt: skip
    yield from found.to_batches(max_chunksize=repository.config.sizes.batch_rows)


def _before(repository: Repository, info: TypeInfo, after: pa.Table, since: int) -> pa.Table:
    """The states as of `since` of keys that changed, and maybe of more."""
    import pyarrow.compute as pc

    key = info.keys[0]
    changed = pc.unique(after.column(key.stored))
    plan, values = Plan(info.cls, as_of=True), Values(as_of=since)
    if since and len(changed) <= repository.config.sizes.looked_up_keys:
        given = tuple(map(key.decode, key.type.from_arrow(changed)))
        plan = plan._replace(where=Member("in", ValueRef(info.cls, key.name), len(given)))
        values = values._replace(where=given)
    return repository.run_arrow(plan, values)


def _codes(table: pa.Table, names: list[str]) -> Any:
    """A number for each key: the same for the same."""
    import numpy as np

    from ontolake.arrow_values import numbers

    found: Any = None
    for name in names:
        codes = numbers(table.column(name).combine_chunks().dictionary_encode().indices).astype(np.int64)
        if found is not None:
            codes = np.unique(found * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)[1]
        found = codes
    return found


__all__ = ["Changes", "arrow_changes"]
