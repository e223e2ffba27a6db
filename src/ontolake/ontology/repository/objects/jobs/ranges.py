"""Parts of typed stores on objects: the rows of some files whose leading keys lie in a range."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ontolake.model.schema import Schema
from ontolake.model.stored import StoredType
from ontolake.ontology.arrow.physical import DELETED, Type, concat, empty_table, living
from ontolake.ontology.config import Config
from ontolake.ontology.errors import StorageBackendError
from ontolake.ontology.repository.jobs import ROWS
from ontolake.ontology.repository.objects.layout import DataFile
from ontolake.ontology.repository.objects.read.scan import last_of_each
from ontolake.ontology.repository.objects.read.splits import cuts_of, groups_within, in_range

if TYPE_CHECKING:
    import pyarrow as pa

    from ontolake.ontology.repository.objects.base import S3Repository

LEAST = 1024
"""Rows below which it is not worth cutting."""


@contextlib.contextmanager
def on_objects(url: str, *, write: bool = False) -> Iterator[S3Repository]:
    """The typed store on objects at a URL, which must be there."""
    from ontolake.ontology.repository.objects.engines import open_objects

    with contextlib.closing(open_objects(url, None, Config(create=False, readonly=not write))) as repository:
        yield repository


@dataclass(frozen=True)
class KeyPart:
    """The rows of a version of a type with leading keys in `[low, high)`, in files from the oldest to the newest."""

    url: str
    schema: Schema
    version: int
    files: tuple[DataFile, ...]
    low: Any = None
    high: Any = None

    @property
    def stored(self) -> StoredType:
        return StoredType(self.schema)

    @property
    def most(self) -> int:
        """How many rows it can have at most."""
        return sum(file.row_count for file in self.files)

    def tables(
        self, repository: S3Repository, files: Sequence[DataFile], columns: Sequence[str] | None = None
    ) -> list[pa.Table]:  # fmt: skip
        """The rows of each file as they are stored, without files that have none of them."""
        info, found = self.stored, []
        repository.files.load([file for file in files if self.meets(file)])
        for file in files:
            groups = groups_within(repository, info, file, self.low, self.high) if self.meets(file) else ()
            if groups == ():
                continue
            table = (repository.files.table(file, columns) if groups is None
                     else repository.files.groups(file, groups, columns))  # fmt: skip
            table = in_range(info, table, self.low, self.high)
            if len(table):
                found.append(table)
        return found

    def meets(self, file: DataFile) -> bool:
        """Whether a file can have rows of this range."""
        return not ((self.low is not None and file.high is not None and file.high < self.low) or (
            self.high is not None and file.low is not None and file.low >= self.high))

    def latest(self, repository: S3Repository, columns: Sequence[str] | None = None) -> pa.Table:
        """Of every key the row that was written last."""
        tables = self.tables(repository, self.files, columns and [*columns, DELETED])
        if not tables:
            return empty_table(self.stored)
        plain = len(tables) == 1 or not any(file.updates for file in self.files)
        return living(concat(tables) if plain else last_of_each(self.stored, concat(tables)))


def key_ranges(
    repository: S3Repository, info: Type, files: Sequence[DataFile], parts: int
) -> Iterator[tuple[Any, Any]]:  # fmt: skip
    """Ranges of keys that together are all, each with about as many rows; one, where keys are not known in order."""
    rows = sum(file.row_count for file in files)
    wanted = max(min(parts, rows // LEAST), rows // ROWS, 1)
    return itertools.pairwise([None, *(cuts_of(repository, info, files, wanted) if wanted > 1 else ()), None])


def key_parts(
    repository: S3Repository, url: str, info: StoredType, version: int, files: Sequence[DataFile], parts: int
) -> list[KeyPart]:  # fmt: skip
    """The rows of files cut at keys."""
    made = (KeyPart(url, info.schema, version, tuple(files), low, high)
            for low, high in key_ranges(repository, info, files, parts))
    return [KeyPart(one.url, one.schema, one.version, tuple(file for file in one.files if one.meets(file)), one.low,
                    one.high) for one in made]  # fmt: skip


def check_written(repository: S3Repository, paths: Collection[str]) -> None:
    """Raise `StorageBackendError` if something that workers wrote is gone: a gc may have taken it for garbage."""
    folders = {path.rpartition("/")[0] + "/" for path in paths}
    there = {info.key for folder in folders for info in repository.access.store.list(folder)}
    gone = sorted(set(paths) - there)
    if gone:
        raise StorageBackendError(f"{gone[0]!r} was removed before it could be published",
                                  hint="onto gc ran meanwhile; nothing was changed, run the job again")
