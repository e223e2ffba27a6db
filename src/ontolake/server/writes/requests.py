"""The words of writing: a write of rows to one table, what is said about the commit, and what can go wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from ontolake.errors import PreconditionFailed

WriteMode = Literal["upsert", "insert", "delete"]


@dataclass(frozen=True)
class RowWrite:
    """Rows of one table as a request sent them: `upsert` changes what is there, `insert` must find nothing there,
    `delete` takes keys away. `body` is decoded once the table is known."""

    table: str
    mode: WriteMode
    body: bytes
    media_type: str


class WriteNote(NamedTuple):
    """What is kept with the commit, and the head that it must follow."""

    author: str
    message: str | None = None
    metadata: Mapping[str, Any] = MappingProxyType({})
    expected: str | None = None


class WriteFailure(Exception):
    """One write of a group cannot be done. `place` is its number in the group, the cause says why."""

    def __init__(self, place: int, error: BaseException) -> None:
        super().__init__(place)
        self.place = place
        self.error = error


class StaleHeadError(PreconditionFailed):
    """The head of the branch is not the commit that the request names. `head` is the commit that it is."""

    def __init__(self, branch: str, expected: str, head: Any) -> None:
        super().__init__(f"the head of branch {branch!r} is {head}, not {expected}",
                         hint="read again, and send the ETag of what was read as If-Match")
        self.branch = branch
        self.expected = expected
        self.head = head


class KeyExistsError(PreconditionFailed):
    """A row that was to be inserted is there already. `table` and `key` name it."""

    def __init__(self, table: str, key: Any) -> None:
        super().__init__(f"{table} has the key {key!r} already", hint="use mode=upsert to change what is there")
        self.table = table
        self.key = key
