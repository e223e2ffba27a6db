"""Committing: the difference between what was declared and the latest state, with what goes into the queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ontolake.history.contention import DEFAULT_PACE, ONCE, commit_optimistically
from ontolake.ontology.config import Config
from ontolake.ontology.errors import BatchSizeExceededError, DanglingRelationError, HeadMismatchError
from ontolake.ontology.events.records import QueueChange
from ontolake.ontology.intents import Intents

if TYPE_CHECKING:
    from ontolake.ontology.repository.protocol import Repository, RepositoryTransaction


def commit_difference(
    repository: Repository, owner: str, config: Config, intents: Intents, metadata: Mapping[str, Any],
    queue: QueueChange | None = None, *, expected_head: int | None = None,
) -> int | None:  # fmt: skip
    """Write what differs from the latest state as one commit, and return its id; None if nothing differs.

    What `queue` says happens with it, or on its own if nothing differs. Raises `HeadMismatchError` if there is an
    `expected_head` and another commit came behind it, and what a transaction raises. Then nothing was written.
    """
    size = len(intents)
    if config.max_batch_size is not None and size > config.max_batch_size:
        raise BatchSizeExceededError(size, config.max_batch_size)
    if not size and queue is None:
        return None
    return commit_optimistically(
        lambda: _once(repository, owner, config, intents, metadata, queue, expected_head), HeadMismatchError,
        DEFAULT_PACE if expected_head is None else ONCE)  # fmt: skip


def _once(
    repository: Repository, owner: str, config: Config, intents: Intents, metadata: Mapping[str, Any],
    queue: QueueChange | None, expected_head: int | None,
) -> int | None:  # fmt: skip
    with repository.transaction(owner) as transaction:
        if expected_head is not None and (head := repository.head()) != expected_head:
            raise HeadMismatchError(f"commit {head} came after commit {expected_head}, which was read",
                                    hint="read again and work it out again")
        changed = 0
        for info, rows in intents.by_type():
            changed += transaction.reconcile(info, rows)
        if changed:
            if config.check_endpoints:
                _check_endpoints(transaction, intents)
            return transaction.finish(metadata, queue=queue)
        if queue is not None:
            transaction.finish_queue(queue)
    return None


def _check_endpoints(transaction: RepositoryTransaction, intents: Intents) -> None:
    for info, _ in intents.by_type():
        if info.kind == "relation":
            for side, key, relation in transaction.missing_endpoints(info, limit=1):
                end = info.left if side == "left" else info.right
                raise DanglingRelationError(f"there is no {end.__name__} {key!r}", type_name=info.name,
                                            key=relation, field=f"{side}_key")
