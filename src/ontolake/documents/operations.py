"""What a transaction is made of, in the caller's words: operations, reads and preconditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from ontolake.documents.values.codec import Document, Json
from ontolake.documents.values.patches import Patches


class Set(Struct, frozen=True):
    """Make `document` the whole of an entity, whatever was there."""

    id: str
    document: Document


class Patch(Struct, frozen=True):
    """Change parts of an entity (`ontolake.documents.values.patches`). One that is absent or deleted counts as `{}`."""

    id: str
    patches: Patches


class Delete(Struct, frozen=True):
    """Leave a tombstone. Deleting what is not there is allowed and recorded."""

    id: str


Operation = Set | Patch | Delete


class Read(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The caller saw `path` of an entity as it was at `seq`; the transaction is refused if that has changed.

    `branch` is where it was read, the transaction's own branch unless given. A shallow read saw only which keys the
    container at `path` has.
    """

    id: str
    path: str
    seq: int
    branch: str | None = None
    shallow: bool = False


class PendingRead(Struct, frozen=True, rename="camel"):
    """The caller saw `path` of an entity through its own commits `local_seqs`, on top of the state at `basis_seq`."""

    id: str
    path: str
    local_seqs: Sequence[int]
    basis_seq: int


class Reads(Struct, frozen=True):
    """All that a transaction depends on."""

    confirmed: Sequence[Read] = ()
    pending: Sequence[PendingRead] = ()


class Exists(Struct, frozen=True, tag="exists", tag_field="kind"):
    """The entity must be alive."""

    id: str


class Absent(Struct, frozen=True, tag="absent", tag_field="kind"):
    """The entity must not be alive: it was deleted, or never was."""

    id: str


class ValueIs(Struct, frozen=True, tag="value-is", tag_field="kind"):
    """The entity must have this value at `path`."""

    id: str
    path: str
    value: Json


class HeadIs(Struct, frozen=True, tag="head-is", tag_field="kind"):
    """The newest commit on the branch must be `seq`: nobody has written there since."""

    seq: int


Precondition = Exists | Absent | ValueIs | HeadIs


class DocumentState(Struct, frozen=True):
    """An entity as it was read. `document` is None for one that is deleted or never was."""

    id: str
    document: Document | None
    seq: int
    """The state of the space that was read: what a `Read` of it has to name."""
    changed: int
    """The seq that last touched the entity; 0 if none did, and then it never was."""
    branch: str = ""

    @property
    def exists(self) -> bool:
        return self.document is not None

    @property
    def deleted(self) -> bool:
        """Whether a tombstone stands here, as opposed to nothing."""
        return self.document is None and self.changed > 0

    def as_read(self, path: str = "", *, shallow: bool = False) -> Read:
        """This read, or a part of it, for the reads of a transaction that depends on it."""
        return Read(self.id, path, self.seq, self.branch, shallow)


class Revision(Struct, frozen=True):
    """One entry in the log of an entity: the operation, and the document that it led to."""

    id: str
    seq: int
    op_index: int
    op: str
    data: Any
    """The document of a `set`, the patches of a `patch`, None for a `delete`."""
    document: Document | None
    branch: str
