"""What a backend needs of the place it writes to: a log with compare-and-append, blobs, and one root.

The log is the truth. A frame is appended only where its writer thinks the log ends, so whoever lost a race
learns of it before anything is written. Blobs and the root only make reading and opening cheap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
from xxhash import xxh3_64_intdigest

from ontolake.decoders import learn
from ontolake.errors import Corruption, Invalid, NotFound, StorageError
from ontolake.storage.index import RunRef
from ontolake.storage.state import LogState

FORMAT_VERSION = 1
KIND = "pages"


class Taken(Exception):
    """The log goes on where a frame was to be appended: somebody else was first."""


class Stale(Exception):
    """The log has been trimmed past the place this process had read up to: start again from the root."""


class Gone(NotFound):
    """A segment was removed: whoever asked for it has an index that is out of date."""


class Logged(NamedTuple):
    """A frame of the log, the segment that holds it, and where the log continues after it."""

    segment: int
    cursor: int
    frame: bytes


class SegmentSpan(NamedTuple):
    """Some bytes of a segment."""

    segment: int
    offset: int
    length: int


class Layer(msgspec.Struct, frozen=True):
    """A blob of page images."""

    segment: int
    length: int


class Root(msgspec.Struct):
    """The log folded up to `state.cursor`: the state there, and the runs that index everything before it.

    `log_start` is the cursor of the oldest frame still needed, `grace_ms` how long what is before it stays,
    `since_compaction` the bytes of log written since space was last looked for; `nonce` tells versions apart.
    """

    version: int
    kind: str
    page_size: int
    log_id: int
    state: LogState
    log_start: int
    runs: tuple[RunRef, ...] = ()
    layers: tuple[Layer, ...] = ()
    grace_ms: int = 0
    since_compaction: int = 0
    generation: int = 0
    nonce: str = ""
    checksum: str = ""


class _Stamp(msgspec.Struct):
    version: int
    kind: str


learn(Root, _Stamp)


def encode_root(root: Root) -> bytes:
    """The root as JSON that carries its own checksum."""
    root.checksum = ""
    root.checksum = f"{xxh3_64_intdigest(msgspec.json.encode(root)):016x}"
    return msgspec.json.encode(root)


def decode_root(data: bytes, name: str) -> Root:
    """The root, once it is known to be whole. Raises `Corruption`, or `Invalid` for another version's."""
    try:
        raw = msgspec.json.decode(data, type=dict[str, Any])
        # First whether it is whole, whatever version wrote it: damage must not pass for another version.
        if "checksum" in raw:
            checksum, raw["checksum"] = raw["checksum"], ""
            if checksum != f"{xxh3_64_intdigest(msgspec.json.encode(raw)):016x}":
                raise Corruption(f"the root of {name} does not match its checksum")
        stamp = msgspec.json.decode(data, type=_Stamp)
        if stamp.kind == KIND and stamp.version > FORMAT_VERSION:
            raise Invalid(f"{name} has format version {stamp.version}, this build reads version {FORMAT_VERSION}",
                          hint="open it with the version of ontolake that wrote it")
        root = msgspec.json.decode(data, type=Root)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corruption(f"the root of {name} cannot be read: {error}") from None
    if encode_root(root) != data:
        raise Corruption(f"the root of {name} does not match its checksum")
    return root


class Medium(Protocol):
    """A place for one database. Methods are safe to call from threads; every write is durable on return."""

    name: str
    page_size: int
    log_id: int

    def append(self, cursor: int, pieces: Sequence[bytes], nonce: bytes) -> tuple[int, int]:
        """Append a frame, given in pieces, if the log ends at `cursor`; return its segment and the next cursor.

        Raises `Taken` and `Stale` if nothing was written, `Transient` and `DurabilityUnconfirmed` if it is not known.
        """
        ...

    def tail(self, cursor: int, *, expect: int = 1, follow: bool = True) -> Iterator[Logged]:
        """The durable frames from `cursor` on. `expect` hints how many; `follow` is for whoever will append where
        they end. Raises `Stale`, `Corruption`, `Transient`."""
        ...

    def read(self, spans: Sequence[SegmentSpan]) -> list[bytes | StorageError]:
        """Many spans in as few requests as possible; errors, `Gone` for a removed segment, in their place."""
        ...

    def read_one(self, segment: int, offset: int, length: int) -> bytes:
        """One span, or its error raised."""
        ...

    def put_blob(self, data: bytes) -> int:
        """Store bytes for good and return their segment."""
        ...

    def load_root(self) -> tuple[Root, str]:
        """The root and a tag that names this version of it."""
        ...

    def swap_root(self, root: Root, tag: str) -> str:
        """Replace the root if it is still the one that `tag` names. Raises `PreconditionFailed`."""
        ...

    def reclaim(
        self, root: Root, dropped: Sequence[tuple[int, int]], *, sweep: bool, wipe: bool = False
    ) -> int:
        """Free the blobs that were `dropped`, given as segment and length, and if asked to sweep, everything
        else that `root` does not need. Returns the bytes freed.

        With `wipe` no byte of it stays, not even in blocks that are in use or for the grace."""
        ...

    def sync(self) -> None: ...

    def close(self) -> None: ...
