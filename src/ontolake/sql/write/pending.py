"""What a transaction has to see to before it commits: where sequences stand, and rows that foreign keys are about."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
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
