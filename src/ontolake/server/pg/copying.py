"""COPY from and to a client, in the protocol's messages."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator
from typing import IO, Any, NamedTuple, cast

from ontolake.server.pg import messages as m
from ontolake.sql import SqlConnection
from ontolake.sql.errors import SqlError
from ontolake.sql.syntax.statements import ParsedStatement

_IN_MEMORY = 64 << 20
"""Bytes of a client that are kept in memory; more goes to a file."""


_BLOCK = 1 << 18


class CopyIn(NamedTuple):
    """The client is to send data. `response` is CopyInResponse, which tells it so."""

    response: bytes


def copy(connection: SqlConnection, statement: ParsedStatement) -> Generator[bytes | CopyIn, IO[bytes], int]:
    """Run a COPY FROM STDIN or TO STDOUT. Returns how many rows it copied. Raises `SqlError`."""
    binary = str(statement.options.get("options", {}).get("format", "")).lower() == "binary"
    columns = _column_count(connection, statement)
    if statement.options["into"]:
        data = yield CopyIn(m.copy_response(b"G", binary=binary, columns=columns))
        return connection.run(_with_source(statement, data), ()).count
    with CopyOutput() as target:
        count = connection.run(_with_source(statement, target), ()).count
        yield m.copy_response(b"H", binary=binary, columns=columns)
        yield from target.blocks()
    yield m.COPY_DONE
    return count


class CopyOutput:
    """The rows that a client gets, each a CopyData message: in memory, and in a file when they are many."""

    tag = b"d"
    """The letter of the message that COPY makes of each row."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115

    def __enter__(self) -> CopyOutput:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: bytes | memoryview) -> int:
        """Take messages."""
        return self._file.write(data)

    def blocks(self) -> Iterator[bytes]:
        """All messages, in blocks."""
        self._file.seek(0)
        while block := self._file.read(_BLOCK):
            yield block


def _with_source(statement: ParsedStatement, source: Any) -> ParsedStatement:
    """The statement with a file object. The one that was parsed may be that of others, too."""
    found = ParsedStatement(statement.kind, statement.sql, statement.begins, statement.tree, statement.names)
    found.inner = statement.inner
    found.options = {**statement.options, "source": source}
    return found


def _column_count(connection: SqlConnection, statement: ParsedStatement) -> int:
    """How many columns are copied."""
    options = statement.options
    if options["columns"]:
        return len(options["columns"])
    if options["table"]:
        name = ".".join('"' + part.replace('"', '""') + '"' for part in options["table"])
        table = connection.find_table(name, connection.catalog())
        return sum(not column.generated for column in table.visible)
    assert statement.inner is not None
    described = connection.describe(statement.inner)
    return len(described.columns or ())


class CopyInput:
    """What a client sends to be copied in: in memory, and in a file when it is much."""

    def __init__(self, most: int) -> None:
        """`most` is how many bytes it may be."""
        self._most = most
        self._size = 0
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115
        self.error: SqlError | None = None
        """Why it cannot be taken."""

    def write(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._most:
            self.error = SqlError(f"COPY takes at most {self._most} bytes here", sqlstate="54000",
                                  hint="send less at a time, or raise limits.stream")
        else:
            self._file.write(data)

    def file(self) -> IO[bytes]:
        """All of it, to be read from its beginning."""
        self._file.seek(0)
        return cast("IO[bytes]", self._file)

    def close(self) -> None:
        self._file.close()
