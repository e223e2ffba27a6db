"""Committing: the difference between what was declared and the latest state, with what goes into the queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, cast

from ontolake.history.contention import DEFAULT_PACE, ONCE, commit_optimistically
from ontolake.ontology.config import Config
from ontolake.ontology.errors import (
    BatchSizeExceededError,
    DanglingRelationError,
    HeadMismatchError,
    LiveRelationsError,
)
from ontolake.ontology.events.records import QueueChange
from ontolake.ontology.intents import Ends, Intents, Row
from ontolake.ontology.remote import DifferenceTaker
from ontolake.ontology.versioned import table_of

if TYPE_CHECKING:
    from ontolake.model.types import TypeInfo
    from ontolake.ontology.repository.protocol import LiveRelation, Repository, RepositoryTransaction


def commit_difference(
    repository: Repository, owner: str, config: Config, intents: Intents, metadata: Mapping[str, Any],
    queue: QueueChange | None = None, *, expected_head: int | None = None, check: Callable[[], None] | None = None,
) -> int | None:  # fmt: skip
    """Write what differs from the latest state as one commit, and return its id; None if nothing differs.

    `check` is called before anything is written, when nobody else can write any more. What `queue` says happens with
    it, or on its own if nothing differs. Raises `HeadMismatchError` if there is an `expected_head` and another commit
    came behind it, and what a transaction raises. Then nothing was written.
    """
    size = len(intents)
    if config.max_batch_size is not None and size > config.max_batch_size:
        raise BatchSizeExceededError(size, config.max_batch_size)
    if not intents.has_any and queue is None:
        return None
    if hasattr(repository, "take_difference"):  # to ask the protocol takes as long as to write a row
        return cast(DifferenceTaker, repository).take_difference(intents, metadata, queue, expected_head)
    return commit_optimistically(
        lambda: _once(repository, owner, config, intents, metadata, queue, expected_head, check), HeadMismatchError,
        DEFAULT_PACE if expected_head is None else ONCE)  # fmt: skip


def _once(
    repository: Repository, owner: str, config: Config, intents: Intents, metadata: Mapping[str, Any],
    queue: QueueChange | None, expected_head: int | None, check: Callable[[], None] | None,
) -> int | None:  # fmt: skip
    with repository.transaction(owner) as transaction:
        if expected_head is not None and (head := repository.head()) != expected_head:
            raise HeadMismatchError(f"commit {head} came after commit {expected_head}, which was read",
                                    hint="read again and work it out again")
        if check is not None:
            check()
        changed = 0
        for info, rows in intents.by_type():
            changed += transaction.reconcile(info, rows)
        changed += sum(delete_intended(transaction, intents).values())
        if changed:
            if config.check_endpoints:
                _check_endpoints(transaction, intents)
            return transaction.finish(metadata, queue=queue)
        if queue is not None:
            transaction.finish_queue(queue)
    return None


def delete_intended(transaction: RepositoryTransaction, intents: Intents) -> dict[str, int]:
    """Delete what was declared to go, and what a complete type has besides its rows. Returns how many rows went, by
    table.

    Raises `LiveRelationsError` if relations still lead to an entity that goes, and nothing says that they go with it.
    """
    gone: list[tuple[TypeInfo, Ends]] = [*intents.ends()]
    for info, keys, cascade in intents.completed():
        others = transaction.keys_besides(info, keys)
        gone.append((info, Ends((), others) if cascade else Ends(others, ())))
    gone.sort(key=lambda item: item[0].kind, reverse=True)
    deleted: Counter[str] = Counter()
    for info, ends in gone:
        if info.kind == "entity" and ends.cascading:
            deleted.update(_cascade(transaction, info, ends.cascading))
        deleted[table_of(info)] += transaction.delete(info, [*ends.keys, *ends.cascading])
    for info, ends in gone:
        if info.kind == "entity":
            _check_relations(transaction, info, [*ends.keys, *ends.cascading])
    return dict(deleted)


def _cascade(transaction: RepositoryTransaction, info: TypeInfo, keys: Collection[Row]) -> dict[str, int]:
    by_type: dict[str, list[LiveRelation]] = {}
    for relation in transaction.relations_of(info, keys):
        if relation.commit_id != transaction.commit_id:  # one that was declared just now is told as living
            by_type.setdefault(relation.info.name, []).append(relation)
    return {f"relation/{name}": transaction.delete(some[0].info, [one.key for one in some])
            for name, some in by_type.items()}


def _check_relations(transaction: RepositoryTransaction, info: TypeInfo, keys: Collection[Row]) -> None:
    found = transaction.relations_of(info, keys) if keys else ()
    if found:
        ends = {end for one in found for end in one.key[:2]}
        key = next((key[0] for key in keys if key[0] in ends), None)
        raise LiveRelationsError(info.name, key, [(one.info.name, one.key) for one in found])


def _check_endpoints(transaction: RepositoryTransaction, intents: Intents) -> None:
    for info, _ in intents.by_type():
        if info.kind == "relation":
            for side, key, relation in transaction.missing_endpoints(info, limit=1):
                end = info.left if side == "left" else info.right
                raise DanglingRelationError(f"there is no {end.__name__} {key!r}", type_name=info.name,
                                            key=relation, field=f"{side}_key")
