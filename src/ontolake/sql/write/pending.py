"""What a transaction has to see to before it commits, sequences and foreign keys, and how far it had come at a mark."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ontolake.sql.transactions import SqlTransaction
    from ontolake.sql.write.rows import Rows


class Position(NamedTuple):
    """Where a sequence stands: its last number, and whether that was given."""

    last: int
    called: bool
    is_set: bool = False
    """Whether it was set, not counted up to."""


class SequenceMemory:
    """What a session knows of the numbers that it was given: currval and lastval."""

    def __init__(self) -> None:
        self.current: dict[int, int] = {}
        self.last: int | None = None


class Reference(NamedTuple):
    """Rows that were written to a table that has foreign keys, or that others have foreign keys to.

    Without `old` they are new, without `new` they are gone.
    """

    old: Rows | None
    new: Rows | None


class TransactionMark:
    """A savepoint: how far a transaction had come."""

    def __init__(self, transaction: SqlTransaction) -> None:
        self.touched, self.statements = len(transaction.touched), len(transaction.statements)
        self.ddl, self.catalog = transaction.ddl, transaction.catalog
        self.metadata, self.dirty = dict(transaction.metadata), transaction.dirty
        self.references, self.deferred = len(transaction.references), dict(transaction.deferred)

    def restore(self, transaction: SqlTransaction) -> None:
        del transaction.touched[self.touched :], transaction.statements[self.statements :]
        transaction.ddl, transaction.catalog = self.ddl, self.catalog
        transaction.metadata = dict(self.metadata)
        transaction.dirty = self.dirty or bool(transaction.sequences)
        del transaction.references[self.references :]
        transaction.deferred = dict(self.deferred)
