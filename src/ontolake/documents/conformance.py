"""Spaces of documents for the conformance suite of history, one adapter a layout.

`where` is the place of spaces and the name of one, with a blank between: `/folder/ test`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from ontolake.documents.operations import Delete, Operation, Set
from ontolake.documents.read.feed import TABLE
from ontolake.documents.space import Space, open_space
from ontolake.history.conformance import VersioningAdapter
from ontolake.history.conformance.oracle import Record


class DocumentsAdapter(VersioningAdapter):
    """Spaces anywhere. Records are documents with the fields `f` and `g`."""

    table: ClassVar[str] = TABLE

    @classmethod
    def place(cls, base: str, name: str) -> str:
        return f"{base.rstrip('/')}/{name.partition('.')[0]} test"

    @classmethod
    def create(cls, where: str) -> None:
        with cls.open(where):
            pass

    @classmethod
    @contextmanager
    def open(cls, where: str, *, readonly: bool = False) -> Iterator[Space]:
        url, _, name = where.rpartition(" ")
        with open_space(url, name, readonly=readonly, takeover=cls.takes_over(url, readonly)) as space:
            yield space

    @classmethod
    def takes_over(cls, url: str, readonly: bool) -> bool:
        """Whether a writer that is there is ended: on pages there is one at a time, and it may have crashed."""
        return "://" in url and not readonly

    @classmethod
    def write(
        cls, store: Any, branch: str, changes: Mapping[str, Record | None], *, message: str | None = None,
        author: str | None = None,
    ) -> int:  # fmt: skip
        operations: list[Operation] = [Delete(key) if row is None else Set(key, row) for key, row in changes.items()]
        commit = store.transact(*store.next_request(), operations, branch=branch, message=message, author=author)
        return int(commit.id)

    @classmethod
    def field(cls, name: str) -> str:
        return f"/{name}"


class DirectoryAdapter(DocumentsAdapter):
    """Spaces in a local folder, native or on pages: all bytes can be read."""

    @classmethod
    def files(cls, where: str) -> list[Path]:
        return [Path(where.rpartition(" ")[0].rpartition("://")[2])]
