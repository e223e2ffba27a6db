"""Recovery sidecars: what an operation is about to do, written before the first table moves.

A sidecar goes when its operation is published or has given up. One that stays belongs to a process that died.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ontolake import faults
from ontolake.errors import NotFound
from ontolake.graph.commit.records import CommitRecord
from ontolake.graph.place import UNFINISHED, GraphPlace
from ontolake.graph.tables.types import GraphType

if TYPE_CHECKING:
    from pydantic import TypeAdapter

FOLDER = "__recovery"
QUARANTINE = f"{FOLDER}/quarantine"
FORMAT = 1
FOREIGN_GRACE = 300.0
"""Seconds for which the sidecar of another machine, whose processes cannot be looked at, counts as one at work."""

LEFTOVER_AGE = 3600.0

_active: set[str] = set()
_active_lock = threading.Lock()


@dataclass
class TableMove:
    """A table that an operation moves: from which version, on which line, in how many steps."""

    key: str
    path: str
    expected: int
    transaction: str
    steps: int
    schema: str


@dataclass
class Sidecar:
    operation: str
    branch: str
    identity: str
    actor: str | None
    kind: str
    tables: list[TableMove]
    started_at: str = ""
    host: str = ""
    process: str = ""
    merge_source: str | None = None
    merged_parent: str | None = None
    types: list[dict[str, Any]] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    lineage: list[str] = field(default_factory=list)
    purged: list[str] = field(default_factory=list)
    """Tables of which nothing that is older than the commit is to be left."""
    extra: dict[str, Any] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def key(self) -> str:
        return f"{FOLDER}/{self.operation}.json"

    def to_bytes(self) -> bytes:
        return json.dumps({**vars(self), "tables": [vars(move) for move in self.tables]}, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Sidecar:
        """Raises `ValueError` if it is none, or none of ours."""
        found = json.loads(data)
        if not isinstance(found, dict):
            raise ValueError("it is not a sidecar: it has no fields")
        if found.get("format") != FORMAT:
            raise ValueError(f"its format is {found.get('format')!r}, and this build knows {FORMAT}")
        from pydantic import ValidationError

        try:
            sidecar = _reader().validate_json(data, strict=True)
            _age(sidecar)
            int(sidecar.process.partition("/")[0] or 0)
            for one in sidecar.types:
                GraphType.from_json(one)
            for text in sidecar.lineage:
                CommitRecord.from_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(f"it is not a sidecar: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"it is not a sidecar: {error!r}") from error
        return sidecar


@cache
def _reader() -> TypeAdapter[Sidecar]:
    """Made once, when the first sidecar is read: that takes longer than to recover from most."""
    from pydantic import TypeAdapter

    return TypeAdapter(Sidecar)


class Sidecars:
    """The sidecars of a graph."""

    def __init__(self, place: GraphPlace) -> None:
        self._place = place
        self._store = place.store

    def write(self, sidecar: Sidecar) -> None:
        """From now on the operation counts as at work. What it does is durable no sooner than this."""
        sidecar.started_at = datetime.now(UTC).isoformat(timespec="microseconds")
        sidecar.host, sidecar.process = _host(), _process(os.getpid())
        with _active_lock:
            _active.add(sidecar.operation)
        faults.reach("graph: before writing the sidecar")
        self._place.put_owed(sidecar.operation, sidecar.key, sidecar.to_bytes())
        faults.reach("graph: sidecar written")

    def remove(self, operation: str, *, published: bool = False) -> None:
        """Take a sidecar away. It must not come back unless its operation was published, which then tells all."""
        faults.reach("graph: before removing the sidecar")
        key = f"{FOLDER}/{operation}.json"
        if published:
            self._place.remove_lazily(key)
        else:
            self._store.delete([key])
        faults.reach("graph: sidecar removed")

    def leave(self, operation: str) -> None:
        """The operation is no longer at work, whatever became of it."""
        with _active_lock:
            _active.discard(operation)
        self._place.write_off(operation)

    def sweep(self) -> None:
        """Remove what never became a sidecar: the writing of it was cut off, so nothing was done."""
        if not self._place.local:
            return
        for info in list(self._store.list(f"{FOLDER}/")):
            if info.key.endswith(UNFINISHED) and info.modified < time.time() - LEFTOVER_AGE:
                self._store.delete([info.key])

    def list(self) -> Iterator[tuple[str, bytes]]:
        """File and content of each, oldest first."""
        for info in list(self._store.list(f"{FOLDER}/")):
            if info.key.startswith(f"{QUARANTINE}/") or not info.key.endswith(".json"):
                continue
            try:
                yield info.key, self._store.get(info.key).data
            except NotFound:
                continue

    def set_aside(self, key: str, data: bytes) -> str:
        """Move a sidecar out of the way, where people can look at it. Returns where."""
        where = f"{QUARANTINE}/{key.rpartition('/')[2]}"
        self._store.put(where, data)
        faults.reach("graph: sidecar set aside")
        self._store.delete([key])
        return where


def at_work(sidecar: Sidecar) -> bool:
    """Whether the process that wrote a sidecar may still be at it."""
    here, boot = _host().split("/", 1)
    host, _, its_boot = sidecar.host.partition("/")
    if host != here:
        return _age(sidecar) < FOREIGN_GRACE
    if its_boot != boot:
        return False
    pid = int(sidecar.process.partition("/")[0] or 0)
    if pid == os.getpid():
        with _active_lock:
            return sidecar.operation in _active
    return bool(pid) and _process(pid) == sidecar.process


def _age(sidecar: Sidecar) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(sidecar.started_at)).total_seconds()


def _host() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()}/{boot}"


def _process(pid: int) -> str:
    """A process as nobody after it can be: its number and when it began. Empty if it is not there."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if stat[0] in ("Z", "X") else f"{pid}/{stat[19]}"
    except (OSError, IndexError):
        pass
    if Path("/proc/self").exists():
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return f"{pid}/"
