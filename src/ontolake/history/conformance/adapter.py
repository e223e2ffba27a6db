"""How the suite reaches a store: a few methods that a model fills in. Everything else goes through the contract.

The suite works on one table of records with a text key and the fields `f` and `g`, which hold an integer or nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from ontolake.history.conformance.oracle import Record, State
from ontolake.history.contract import Snapshot


class VersioningAdapter(ABC):
    """A model on one layout. A class of its own for each, since children of the suite import it by name."""

    table: ClassVar[str]
    """The table of the records, as `Snapshot.tables` and `Conflict.table` name it."""
    first: ClassVar[str] = "main"
    """The store's first branch."""
    erases: ClassVar[bool] = True
    """Whether random histories erase rows."""

    @classmethod
    def place(cls, base: str, name: str) -> str:
        """The place of a store called `name` below a URL or a folder, as `create` and `open` take it."""
        return f"{base.rstrip('/')}/{name}"

    @classmethod
    @abstractmethod
    def create(cls, where: str) -> None:
        """Make an empty store at a place, with the table in it."""

    @classmethod
    @abstractmethod
    def open(cls, where: str, *, readonly: bool = False) -> AbstractContextManager[Any]:
        """Open the store, a `VersionControlled` and `Maintained`. A writer that crashed is taken over."""

    @classmethod
    @abstractmethod
    def write(
        cls, store: Any, branch: str, changes: Mapping[str, Record | None], *, message: str | None = None,
        author: str | None = None,
    ) -> Any:  # fmt: skip
        """Set records, or delete those that are None, as one commit. Returns its id."""

    @classmethod
    def records(cls, snapshot: Snapshot[Any]) -> State:
        """All records of a snapshot, by key."""
        return {cls.text(key): {"f": row["f"], "g": row["g"]} for key, row in snapshot.rows(cls.table)}

    @classmethod
    def text(cls, key: Any) -> str:
        """A key of the store as the key of a record."""
        return str(key)

    @classmethod
    def key(cls, text: str) -> Any:
        """The key of a record as the store has it."""
        return text

    @classmethod
    def field(cls, name: str) -> str:
        """What the store calls a field in conflicts, resolutions and blame."""
        return name

    @classmethod
    def upkeep(cls, store: Any) -> None:
        """Do all that maintenance does without a user's decision: compact, index, collect garbage."""
        store.gc(dry_run=False)

    @classmethod
    def forget(cls, store: Any) -> None:
        """Give up the past as far as the store can, but for heads and tags. A store that keeps all does nothing."""
        return

    @classmethod
    def stored(cls, where: str) -> Iterable[bytes] | None:
        """All bytes that are stored, for the proof that an erased row is gone; None if they cannot be read."""
        return None
