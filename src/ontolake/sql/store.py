"""How `ontolake.stores` opens SQL tables, and `ontolake.copies` reaches the branches of a native file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ontolake.sql.database import Database, open_database
from ontolake.sql.keyspace import flattening as branches

__all__ = ["branches", "open", "open_parallel"]

if TYPE_CHECKING:
    from ontolake.sql.parallel import SqlParallel


def open(url: str, *, write: bool, branch: str | None) -> Database:
    """The SQL tables at `url`, on a branch."""
    return open_database(url, readonly=not write, branch="main" if branch is None else branch)


def open_parallel(url: str, *, write: bool, branch: str | None, types: Iterable[Any]) -> SqlParallel:
    """The same for parallel readers and writers. Tables have their columns' types with them."""
    from ontolake.sql.parallel import SqlParallel

    return SqlParallel(url, branch=branch, write=write)
