"""Transactions, branches and states of documents as JSON between clients and servers, in the words of the protocol.

`ClientCommit` is what `memory/transact` takes, `CommitAnswer` what it answers; both are also what the sync socket
carries. Names are in camel case, as stored payloads have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from ontolake.decoders import learn
from ontolake.documents.commits import Commit
from ontolake.documents.operations import (
    Absent,
    Delete,
    DocumentState,
    Exists,
    HeadIs,
    Operation,
    Patch,
    Reads,
    Revision,
    Set,
    ValueIs,
)


class WireSet(msgspec.Struct, frozen=True, tag="set", tag_field="op", forbid_unknown_fields=True):
    """Make `value` the whole document."""

    id: str
    value: dict[str, Any]


class WirePatch(msgspec.Struct, frozen=True, tag="patch", tag_field="op", forbid_unknown_fields=True):
    """Change parts of a document."""

    id: str
    patches: list[dict[str, Any]]


class WireDelete(msgspec.Struct, frozen=True, tag="delete", tag_field="op", forbid_unknown_fields=True):
    """Leave a tombstone."""

    id: str


WireOperation = WireSet | WirePatch | WireDelete


class ClientCommit(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """One transaction. `(sessionId, localSeq)` makes a retry safe; a server chooses both if `sessionId` is left out."""

    operations: list[WireOperation]
    session_id: str | None = None
    local_seq: int | None = None
    reads: Reads = Reads()
    branch: str = ""
    preconditions: list[Exists | Absent | ValueIs | HeadIs] = []
    message: str | None = None

    @property
    def transaction(self) -> list[Operation]:
        """The operations as `Space.transact` takes them."""
        return [Set(one.id, one.value) if isinstance(one, WireSet) else
                Patch(one.id, one.patches) if isinstance(one, WirePatch) else Delete(one.id)
                for one in self.operations]  # fmt: skip


class ResolvedRead(msgspec.Struct, frozen=True, rename="camel"):
    """A localSeq that a pending read named, and the seq that it was accepted as."""

    local_seq: int
    seq: int


class CommitAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """A commit that was accepted."""

    seq: int
    branch: str
    session_id: str
    local_seq: int
    parents: list[int]
    time: datetime | None
    author: str | None
    message: str | None
    resolved_pending_reads: list[ResolvedRead]

    @classmethod
    def of(cls, commit: Commit) -> CommitAnswer:
        resolved = [ResolvedRead(local_seq, seq) for local_seq, seq in commit.resolved_pending_reads]
        return cls(commit.seq, commit.branch, commit.session_id, commit.local_seq, list(commit.parents), commit.time,
                   commit.author, commit.message, resolved)  # fmt: skip


class BranchCreation(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A branch to create from `parent`, as that was at `atSeq`, or from a reference `at`."""

    name: str
    parent: str | None = None
    at_seq: int | None = None
    at: str | None = None
    session_id: str | None = None
    local_seq: int | None = None


class BranchDeletion(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A branch to give up, softly."""

    name: str
    session_id: str | None = None
    local_seq: int | None = None


class WireState(msgspec.Struct, frozen=True):
    """A document as it was read at `seq`; null if it is deleted or never was. `changed` touched it last, 0 for none."""

    id: str
    document: dict[str, Any] | None
    seq: int
    changed: int
    branch: str

    @classmethod
    def of(cls, state: DocumentState) -> WireState:
        return cls(state.id, state.document, state.seq, state.changed, state.branch)


class WireRevision(msgspec.Struct, frozen=True, rename="camel"):
    """One operation on a document, and the document that it led to."""

    id: str
    seq: int
    op_index: int
    op: str
    data: Any
    document: dict[str, Any] | None
    branch: str

    @classmethod
    def of(cls, one: Revision) -> WireRevision:
        return cls(one.id, one.seq, one.op_index, one.op, one.data, one.document, one.branch)


def wire_operations(operations: Sequence[Operation]) -> list[WireOperation]:
    """Operations as a client sends them."""
    return [WireSet(one.id, one.document) if isinstance(one, Set) else
            WirePatch(one.id, list(one.patches)) if isinstance(one, Patch) else WireDelete(one.id)
            for one in operations]  # fmt: skip


learn(Set, Patch, Delete, DocumentState, Revision, ClientCommit, CommitAnswer, BranchCreation, BranchDeletion,
      WireState, WireRevision)  # fmt: skip
