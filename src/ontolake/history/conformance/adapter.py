"""How the suite reaches a store: a few methods that a model fills in. Everything else goes through the contract.

The suite works on one table of records with a text key and the fields `f` and `g`, which hold an integer or nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

from ontolake import urls
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
    def files(cls, where: str) -> Sequence[Path] | None:
        """The files and folders that hold the whole store; None if it is not on a local disk, or if writers wait long
        for one that was killed.

        With them every fault point of a history is swept, without them only some.
        """
        return None

    @classmethod
    def stored(cls, where: str) -> Iterable[bytes] | None:
        """All bytes that are stored, for the proof that an erased row is gone; None if they cannot be read."""
        files = cls.files(where)
        if files is None:
            return None
        paths = (path for root in files for path in (root, *root.rglob("*")))
        return (path.read_bytes() for path in paths if path.is_file())


def files_at(url: str) -> list[Path] | None:
    """The files and folders at a URL of a local disk: those whose name begins as the URL's, as those of SQLite do."""
    location = urls.parse(url)
    if location.place not in (urls.Place.SQLITE, urls.Place.PAGE_FILE, urls.Place.DIRECTORY):
        return None
    path = Path(location.path)
    return sorted(path.parent.glob(f"{path.name}*"))
