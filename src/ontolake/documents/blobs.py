"""Binary data under the hash of its content. What describes a blob is an ordinary entity, with a history of its own."""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

import apsw

from ontolake.documents.database import SpaceDatabase, row, rows
from ontolake.documents.errors import InvalidOperationError
from ontolake.errors import Corruption, NotFound
from ontolake.faults import reach

MAX_BYTES = 256 * 2**20
"""The biggest blob: what SQLite can hold is more, but it has to fit into memory several times over."""

META_PREFIX = "urn:blob-meta:"

_INSERT = "INSERT OR IGNORE INTO blob_store (hash, data, content_type, size) VALUES (?, ?, ?, ?)"
_SELECT = "SELECT data, content_type, size FROM blob_store WHERE hash = ?"
_HASH = re.compile(r"[0-9a-f]{64}")


class Blob(NamedTuple):
    """Immutable bytes. `hash` is the SHA-256 of `data` in hexadecimal digits."""

    hash: str
    data: bytes
    content_type: str | None
    size: int


def meta_id(hash: str) -> str:
    """The id of the entity that describes a blob."""
    return f"{META_PREFIX}{hash}"


def sealed(data: bytes, content_type: str | None) -> Blob:
    """Bytes that can be stored, with their hash. Raises `InvalidOperationError` for what is no blob or is too big."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidOperationError(f"a blob is made of bytes, not {type(data).__name__}")
    size = memoryview(data).nbytes
    if size > MAX_BYTES:
        raise InvalidOperationError(f"the blob has {size:,} bytes, and {MAX_BYTES:,} are the limit",
                                    hint="store it in parts, or as an object of its own")
    if content_type is not None and (not isinstance(content_type, str) or not content_type.isprintable()):
        raise InvalidOperationError(f"a content type is text such as image/png, not {content_type!r}")
    return Blob(hashlib.sha256(data).hexdigest(), data, content_type, size)


def insert(connection: apsw.Connection, blob: Blob) -> None:
    """Store a blob inside a transaction, unless it is there."""
    connection.execute(_INSERT, blob)
    reach("documents: blob written")


def get(database: SpaceDatabase, hash: str) -> Blob:
    """The blob of this hash. Raises `NotFound`, or `Corruption` if its bytes are not those that were stored."""
    if not isinstance(hash, str) or not _HASH.fullmatch(hash):
        raise InvalidOperationError(f"{hash!r} is not the hash of a blob", hint="it has 64 hexadecimal digits")
    with database.read as connection:
        found = row(connection, _SELECT, (hash,))
    if found is None:
        raise NotFound(f"there is no blob {hash}")
    blob = Blob(hash, *found)
    if not is_sound(blob):
        raise Corruption(f"the bytes of blob {hash} are not those that were stored", hint="restore it from a copy")
    return blob


def is_sound(blob: Blob) -> bool:
    """Whether the bytes of a blob are what its name says."""
    return blob.size == len(blob.data) and hashlib.sha256(blob.data).hexdigest() == blob.hash


def hashes(connection: apsw.Connection) -> list[str]:
    """The hashes of all blobs."""
    return [hash for (hash,) in rows(connection, "SELECT hash FROM blob_store ORDER BY hash")]
