"""Work on a whole typed store that workers share: what a repository offers for it, whichever backend it has.

A job is cut into parts that can be pickled. Whatever changes the store does so by the store's own commit, once, where
the job was started.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ontolake.history import Damage
from ontolake.model.stored import StoredType
from ontolake.model.types import TypeInfo
from ontolake.parallel import Workers

if TYPE_CHECKING:
    import pyarrow as pa

    from ontolake.ontology.migration.upgraders import Upgrader
    from ontolake.ontology.repository.protocol import RepositoryTransaction, SchemaVersion

ROWS = 1 << 20
"""Rows that a part of a job has at most, if there are keys to cut at."""


class Compaction(NamedTuple):
    """What merging does, or would do, to the files of one type."""

    type_name: str
    files_before: int
    files_after: int
    rows: int
    bytes: int


class Verified(NamedTuple):
    """What was looked at, in how many parts, and all damage that was found."""

    damage: tuple[Damage, ...]
    parts: int
    rows: int

    @property
    def ok(self) -> bool:
        return not self.damage


class Looked(NamedTuple):
    """What one part found."""

    damage: tuple[Damage, ...]
    rows: int


def together(workers: Workers, items: Sequence[tuple[Callable[[Any], Looked], Any]]) -> Verified:
    """Have all parts looked at, and put together what they found."""
    found = workers.run(_look, items)
    return Verified(tuple(damage for one in found for damage in one.damage), len(items),
                    sum(one.rows for one in found))


def _look(item: tuple[Callable[[Any], Looked], Any]) -> Looked:
    look, part = item
    return look(part)


class TypeRewrite(NamedTuple):
    """A type whose latest state is to be rewritten: from what is stored, through upgraders, as a version."""

    info: TypeInfo
    stored: StoredType
    chain: Sequence[Upgrader]
    version: int


class FileJobs(Protocol):
    """Jobs of a store whose rows are in files, which workers write and the store then names."""

    def compact(
        self, workers: Workers, *, types: Collection[str] | None = None, dry_run: bool = False,
        rows_per_file: int = ROWS,
    ) -> list[Compaction]:  # fmt: skip
        """Merge the files of types, and return what was done, or would be, for each.

        Raises `QueryError` for a type that is not there, `HeadMismatchError` if somebody else merged the same files.
        """
        ...

    def index_keys(self) -> list[str]:
        """The objects that can be made anew from the rest."""
        ...

    def repair_index(self, keys: Collection[str]) -> Sequence[tuple[str, str]]:
        """Make these anew where they differ, and return each with how it stood."""
        ...

    def verify(self, workers: Workers) -> Verified:
        """Read everything, and return all damage that is found."""
        ...

    def count(self, stored: StoredType, workers: Workers) -> int:
        """How many rows the latest state of a type has."""
        ...

    def rewrite(self, transaction: RepositoryTransaction, planned: TypeRewrite, workers: Workers) -> int:
        """`transaction.rewrite` with files that workers write. Returns how many rows they have."""
        ...


class CommitRows(Protocol):
    """What some commits wrote under a version of a type. Can be pickled."""

    def table(self, repository: Any) -> pa.Table | None:
        """The rows in their physical columns (`arrow.physical`), with their commits; None if there are none.

        `repository` is the same store, opened wherever this is read.
        """
        ...


class CommitLog(Protocol):
    """Which rows the commits of a store wrote, as of the moment when it was asked for."""

    def counts(self, version: SchemaVersion) -> Mapping[int, int]:
        """How many rows each commit wrote under a version."""
        ...

    def rows(self, version: SchemaVersion, since: int, until: int) -> CommitRows:
        """What the commits in `(since, until]` wrote under a version."""
        ...


class ParquetFile(NamedTuple):
    """A file of a view: rows of other files may be replaced by its `updates`, and its own may be `superseded`."""

    path: str
    max_commit_id: int
    updates: int
    superseded: bool


class ParquetView(NamedTuple):
    """Files that together have the rows of a view, from the oldest to the newest, and the names of their columns."""

    runs: tuple[ParquetFile, ...]
    past: tuple[ParquetFile, ...]
    """Files of rows that were replaced."""
    names: Mapping[str, str]
    """The columns of files, by stored names of fields."""
    keys: tuple[str, ...]
    commit: str
    row: str
    superseded: str
