"""The audit log: who did what, when, from where, and how it went. Lines of JSON that are only ever appended."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import NamedTuple

import msgspec

from ontolake.errors import Invalid
from ontolake.folders import obstacle

_PIECE = 1 << 16


class AuditEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request that changed something, or that was refused."""

    time: str
    request_id: str
    token: str
    """The name of the token; empty without a valid one."""
    address: str
    """Where the request came from."""
    method: str
    path: str
    operation: str
    """The name of the route; empty for an address that is none."""
    status: int
    store: str | None = None
    problem: str | None = None
    """The class of the error, if it failed."""


class AuditPage(NamedTuple):
    """Some entries, newest first, and the cursor of those before them; None if there are none."""

    entries: list[AuditEntry]
    cursor: int | None


class AuditLog:
    """A file of entries. Threads and processes may share it."""

    def __init__(self, path: str | Path) -> None:
        """Open it for appending. Raises `Invalid` if it cannot be written to."""
        self.path = Path(path)
        self._lock = threading.Lock()
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise obstacle(self.path) or Invalid(f"cannot write to the audit log {self.path}: {error.strerror}",
                                                 hint="check the rights to it, or name another with audit") from error
        self._encoder = msgspec.json.Encoder()

    def append(self, *entries: AuditEntry) -> None:
        """Add entries. One write, so that entries of several processes do not mix."""
        lines = self._encoder.encode_lines(entries)
        with self._lock:
            os.write(self._file, lines)

    def page(self, limit: int, cursor: int | None = None) -> AuditPage:
        """The newest entries, or those before a cursor. Raises `Invalid` for a cursor of another log."""
        with self.path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            if cursor is not None and not 0 <= cursor <= end:
                raise Invalid(f"{cursor} is no cursor of this log", hint="use the cursor of a page")
            start = end if cursor is None else cursor
            data = b""
            while start > 0 and data.count(b"\n") <= limit:
                size = min(_PIECE, start)
                start -= size
                file.seek(start)
                data = file.read(size) + data
        lines = data.splitlines(keepends=True)[-limit:]
        before = start + len(data) - sum(map(len, lines))
        return AuditPage([_ENTRY.decode(line) for line in reversed(lines)], before or None)

    def close(self) -> None:
        with self._lock:
            os.close(self._file)


_ENTRY = msgspec.json.Decoder(AuditEntry)
