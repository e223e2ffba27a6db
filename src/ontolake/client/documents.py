"""`RemoteSpace`: a space of documents behind a server, with the methods of `documents.Space`."""

from __future__ import annotations

import builtins
import itertools
import threading
import time
import uuid
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from ontolake.client.branches import RemoteBranches
from ontolake.client.errors import UnreachableError
from ontolake.client.store import ClientStore
from ontolake.client.transport import ConnectOptions
from ontolake.documents import Blob
from ontolake.documents.commits import Commit
from ontolake.documents.names import check_id
from ontolake.documents.operations import DocumentState, Operation, Precondition, Reads, Revision, Set
from ontolake.documents.read.feed import TABLE
from ontolake.documents.read.watcher import wanted_by
from ontolake.documents.wire import wire_operations
from ontolake.errors import Invalid
from ontolake.history import Branch, Change, RowVersion
from ontolake.history.errors import BranchError, UnknownBranchError
from ontolake.history.metadata import BRANCH, LOCAL_SEQ, RESOLVED_PENDING_READS, SESSION_ID
from ontolake.history.operations import check_texts

_AT_ONCE = 1000
"""How many documents are read by one request."""
_PAUSE = 0.2
"""Seconds between two looks for new commits."""


class RemoteSpaceBranches(RemoteBranches):
    """The branches of a space. The first one may be called by no name."""

    def list(self, *, deleted: bool = False) -> builtins.list[Branch[Any]]:
        """The branches that the token may see, the first one first. Raises `Invalid` for `deleted`."""
        if deleted:
            raise Invalid("a server lists no branches that were deleted", hint="ask where the space is stored")
        return super().list()

    def create(self, name: str, *, at: Any = None, parent: str | None = None) -> Branch[Any]:
        """A branch of `parent` as it was `at` a commit. See `history.contract.Branches`."""
        return super().create(name, at=at, parent=parent if parent != "" else None)

    def plan_delete(self, name: str) -> Branch[Any]:
        """The branch that `delete` would give up. Raises `UnknownBranchError`, and `BranchError` for the first one."""
        found = super().list()
        if name in ("", found[0].name):
            raise BranchError(name or found[0].name, "cannot be deleted: it is the first branch")
        for branch in found:
            if branch.name == name:
                return branch
        raise UnknownBranchError(name)


class RemoteSpace(ClientStore):
    """See `documents.Space`."""

    branches: RemoteSpaceBranches

    def __init__(
        self, url: str, *, write: bool = True, branch: str | None = None, options: ConnectOptions | None = None
    ) -> None:  # fmt: skip
        super().__init__(url, write=write, branch=branch, options=options)
        self.branches = RemoteSpaceBranches(self.connection)
        self.name = self.connection.address.store
        self.session_id = uuid.uuid4().hex
        self._local_seqs = itertools.count(1)
        self._local_seq_lock = threading.Lock()

    def _named(self, branch: str | None) -> str:
        return super()._named(branch if branch != "" else None)

    def commits(
        self, *, since: Any = None, until: Any = None, branch: str | None = None
    ) -> Iterator[Commit]:  # fmt: skip
        """The commits that a branch sees, newest first. See `Space.commits`."""
        return (Commit(*one) for one in super().commits(since=since, until=until, branch=branch))

    def next_request(self) -> tuple[str, int]:
        """A session_id and a local_seq that were never used."""
        with self._local_seq_lock:
            return self.session_id, next(self._local_seqs)

    def transact(
        self, session_id: str, local_seq: int, operations: Iterable[Operation], *, reads: Reads | None = None,
        branch: str | None = None, preconditions: Iterable[Precondition] = (), message: str | None = None,
        author: str | None = None,
    ) -> Commit:  # fmt: skip
        """Apply operations in order, as one commit with the next seq, or not at all. See `Space.transact`.

        The session and its number make it safe to send it again, also after the server was started anew.
        """
        check_texts(message=message, author=author)
        body = {"sessionId": session_id, "localSeq": local_seq, "operations": wire_operations(list(operations)),
                "branch": self._named(branch), "preconditions": list(preconditions), "message": message}  # fmt: skip
        if reads is not None:
            body["reads"] = reads
        found = self._posted("/documents/transact", body)
        return _commit(found)

    def _posted(self, path: str, body: Any) -> Any:
        """Send plain JSON: documents have nothing else in them."""
        self.connection.check_writable()
        try:
            data = msgspec.json.encode(body)
        except (TypeError, UnicodeEncodeError, ValueError) as error:
            raise Invalid(f"this cannot be sent: {error}", hint="documents are made of what JSON has") from error
        answer = self.connection.transport.request(
            "POST", f"{self.connection.address.path}{path}", data=data, headers={"content-type": "application/json"})
        return msgspec.json.decode(answer.body)

    def last_seq(self) -> int:
        """The seq of the newest commit, on whichever branch; 0 in a new space."""
        return self.read("_").seq

    def read(self, id: str, *, branch: str | None = None, seq: int | None = None) -> DocumentState:
        """An entity now, or as it was at `seq`. See `Space.read`."""
        found = self.connection.get("/documents", id=check_id(id), branch=self._named(branch), seq=seq)
        return DocumentState(**found)

    def read_many(
        self, ids: Iterable[str], *, branch: str | None = None, seq: int | None = None
    ) -> dict[str, DocumentState]:  # fmt: skip
        """Entities, all at the same moment, in the order in which they were asked for. See `Space.read_many`."""
        wanted = list(dict.fromkeys(check_id(id) for id in ids))
        found: dict[str, DocumentState] = {}
        for start in range(0, len(wanted), _AT_ONCE):
            some = wanted[start : start + _AT_ONCE]
            page = self.connection.ask("/documents/read", {"ids": some, "branch": self._named(branch), "seq": seq})
            states = [DocumentState(**one) for one in page["documents"]]
            seq = states[0].seq if seq is None else seq
            found |= {one.id: one for one in states}
        return found

    def history(  # type: ignore[override]
        self, table: str, key: Any = None, *, ref: str | None = None, branch: str | None = None, since: int = 0,
        until: int | None = None,
    ) -> Iterator[Revision] | Iterator[RowVersion[int]]:  # fmt: skip
        """`history(id)` gives the operations on an entity, oldest first; `history("documents", id)` all its states.
        See `Space.history`."""
        if key is not None:
            return super().history(table, check_id(key) if table == TABLE else key, ref=ref)
        return self._revisions(check_id(table), self._named(branch), since, until)

    def _revisions(self, id: str, branch: str, since: int, until: int | None) -> Iterator[Revision]:
        position: int | None = since
        while position is not None:
            page = self.connection.get("/documents/history", id=id, branch=branch, since=position, until=until,
                                       limit=_AT_ONCE)
            for one in page["revisions"]:
                yield Revision(**{"op_index" if name == "opIndex" else name: value for name, value in one.items()})
            position = page["next"]

    def watch(
        self, ids: Collection[str] | None = None, *, prefix: str | None = None, since: int | None = None,
        branch: str | None = None, idle_timeout: float | None = None,
    ) -> Iterator[Change[int]]:  # fmt: skip
        """Changes after `since` (now, unless given) as they are committed; then waits for more. See `Space.watch`."""
        wanted_by(ids, prefix)
        start = self.last_seq() if since is None else since
        return self._followed(ids, prefix, start, self._named(branch), idle_timeout)

    def _followed(
        self, ids: Collection[str] | None, prefix: str | None, since: int, branch: str, idle: float | None
    ) -> Iterator[Change[int]]:  # fmt: skip
        last = time.monotonic()
        while not self.connection.transport.closed:
            newest = self.last_seq()
            for change in self.changes(since, newest, branch=branch) if newest > since else ():
                if (ids is None or change.key in ids) and (prefix is None or str(change.key).startswith(prefix)):
                    last = time.monotonic()
                    yield change
            since = newest
            if idle is not None and time.monotonic() - last > idle:
                return
            time.sleep(_PAUSE if idle is None else min(_PAUSE, idle))

    def put_blob(
        self, data: bytes, *, content_type: str | None = None, metadata: Any = None, branch: str | None = None
    ) -> str:
        """Store bytes under the hash of their content, which is returned. See `Space.put_blob`.

        `metadata` becomes a document in a transaction of its own, after the bytes are there.
        """
        from ontolake.documents.blobs import meta_id, sealed

        blob = sealed(data, content_type)
        self.connection.put("/blobs", bytes(data), content_type, branch=self._named(branch))
        if metadata is not None:
            self.transact(*self.next_request(), [Set(meta_id(blob.hash), metadata)], branch=branch)
        return blob.hash

    def get_blob(self, hash: str) -> Blob:
        """The blob of this hash. Raises `NotFound`, and `UnreachableError` if it came damaged."""
        from hashlib import sha256

        if not isinstance(hash, str) or not hash.isalnum():
            raise Invalid(f"{hash!r} is not the hash of a blob", hint="put_blob returns it")
        answer = self.connection.raw(f"/blobs/{hash}", "*/*")
        if sha256(answer.body).hexdigest() != hash:
            raise UnreachableError(f"the blob {hash} did not arrive whole", hint="try again")
        kind = answer.headers.get("content-type")
        return Blob(hash, answer.body, None if kind == "application/octet-stream" else kind, len(answer.body))


def _commit(found: Any) -> Commit:
    """A commit as a space gives it."""
    made = None if found["time"] is None else datetime.fromisoformat(found["time"])
    resolved = tuple((one["localSeq"], one["seq"]) for one in found["resolvedPendingReads"])
    metadata = {BRANCH: found["branch"], LOCAL_SEQ: found["localSeq"], RESOLVED_PENDING_READS: resolved,
                SESSION_ID: found["sessionId"]}  # fmt: skip
    return Commit(found["seq"], tuple(found["parents"]), made, found["author"], metadata, found["message"])
