"""Documents of a space: transactions, reads of one or many, history, and the commands of branches by their old names.

The bodies are those of `ontolake.documents.wire`. `memory/transact`, `memory/branch/create` and `memory/branch/delete`
are the same commands by the names that they have in the protocol of documents.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from ontolake.documents.wire import (
    BranchCreation,
    BranchDeletion,
    ClientCommit,
    CommitAnswer,
    WireRevision,
    WireState,
)
from ontolake.history import Branch
from ontolake.server.handles import ServedStore
from ontolake.server.models import check_model, touched
from ontolake.server.problems import RefusedError
from ontolake.server.rights import Principal, TokenScope, Touch
from ontolake.server.routes import Call, Reply, route
from ontolake.stores import DOCUMENTS

if TYPE_CHECKING:
    from ontolake.documents import Space

MOST_IDS = 1000
"""How many documents one request may name."""


class DocumentQuery(msgspec.Struct):
    """Which document, on which branch, at which seq."""

    id: str
    branch: str = ""
    seq: int | None = None


class HistoryQuery(msgspec.Struct):
    """The operations on a document after `since`, up to `until`."""

    id: str
    branch: str = ""
    since: int = 0
    until: int | None = None
    limit: int = 100


class ManyDocuments(msgspec.Struct, forbid_unknown_fields=True):
    """Documents by their ids, all at one moment."""

    ids: list[str]
    branch: str = ""
    seq: int | None = None


class DocumentsAnswer(msgspec.Struct):
    """Documents in the order in which they were asked for."""

    documents: list[WireState]


class HistoryAnswer(msgspec.Struct):
    """Operations, oldest first. `next` is the `since` that goes on; null at the end."""

    revisions: list[WireRevision]
    next: int | None


class BranchAnswer(msgspec.Struct):
    """A branch of a space."""

    name: str
    head: int
    base: int | None
    parent: str | None
    protected: bool

    @classmethod
    def of(cls, branch: Branch[int]) -> BranchAnswer:
        return cls(*branch)


class DeletedBranch(msgspec.Struct):
    """The branch that was given up."""

    name: str
    status: str = "deleted"


def _reads(call: Call) -> Iterable[Touch]:
    check_model(call.store, DOCUMENTS)
    return [touched(TokenScope.READ, (call.body or call.query).branch)]


@route("GET", "/stores/{store}/documents", query=DocumentQuery, touches=_reads, answers={200: WireState},
       tag="documents")
def read_document(call: Call) -> Any:
    """A document now, or as it was at a seq; null if it is not there."""
    query: DocumentQuery = call.query
    with call.store.reading() as space:
        return WireState.of(space.read(query.id, branch=query.branch, seq=query.seq))


@route("POST", "/stores/{store}/documents/read", body=ManyDocuments, touches=_reads, changes=False,
       answers={200: DocumentsAnswer}, tag="documents")
def read_documents(call: Call) -> Any:
    """Many documents, all at the same moment."""
    body: ManyDocuments = call.body
    if len(body.ids) > MOST_IDS:
        raise RefusedError(413, f"a request names at most {MOST_IDS} documents, this one {len(body.ids)}",
                           hint="ask in parts, each with the seq of the first answer")
    with call.store.reading() as space:
        found = space.read_many(body.ids, branch=body.branch, seq=body.seq)
    return DocumentsAnswer([WireState.of(found[id]) for id in body.ids])


@route("GET", "/stores/{store}/documents/history", query=HistoryQuery, touches=_reads,
       answers={200: HistoryAnswer}, tag="documents")
def document_history(call: Call) -> Any:
    """The operations on a document, oldest first, a page at a time."""
    query: HistoryQuery = call.query
    if not 1 <= query.limit <= MOST_IDS:
        raise RefusedError(422, f"limit is from 1 to {MOST_IDS}, not {query.limit}")
    with call.store.reading() as space:
        revisions = space.history(query.id, branch=query.branch, since=query.since, until=query.until)
        page = [WireRevision.of(one) for one in islice(revisions, query.limit)]
        if len(page) < query.limit:
            return HistoryAnswer(page, None)
        page += [WireRevision.of(one) for one in _same_commit(revisions, page[-1].seq)]
    return HistoryAnswer(page, page[-1].seq)


def _same_commit(revisions: Any, seq: int) -> Iterable[Any]:
    """The rest of a commit, so that a page ends with one."""
    for one in revisions:
        if one.seq != seq:
            return
        yield one


def commit_touches(store: ServedStore, commit: ClientCommit) -> list[Touch]:
    """What a transaction touches: the branch that it writes, and those that it has read."""
    check_model(store, DOCUMENTS)
    read = {one.branch for one in commit.reads.confirmed if one.branch is not None}
    return [touched(TokenScope.WRITE, commit.branch), *(touched(TokenScope.READ, one) for one in sorted(read))]


def transact(store: ServedStore, commit: ClientCommit, principal: Principal) -> CommitAnswer:
    """Run a transaction. Raises what `Space.transact` raises, `RefusedError` if only one half of its name is there."""
    with store.writing() as space:
        session_id, local_seq = _request(space, commit)
        made = space.transact(session_id, local_seq, commit.transaction, reads=commit.reads, branch=commit.branch,
                              preconditions=commit.preconditions, message=commit.message, author=principal.name)
    return CommitAnswer.of(made)


def _request(space: Space, sent: ClientCommit | BranchCreation | BranchDeletion) -> tuple[str, int]:
    if sent.session_id is None and sent.local_seq is None:
        return space.next_request()
    if sent.session_id is None or sent.local_seq is None:
        raise RefusedError(422, "sessionId and localSeq are sent together, or neither is")
    return sent.session_id, sent.local_seq


@route("POST", "/stores/{store}/documents/transact", body=ClientCommit, answers={200: CommitAnswer}, tag="documents",
       touches=lambda call: commit_touches(call.store, call.body))
def transact_documents(call: Call) -> Any:
    """Apply operations as one commit, or not at all."""
    made = transact(call.store, call.body, call.principal)
    call.server.watchers.committed(call.store)
    return made


@route("POST", "/stores/{store}/memory/transact", body=ClientCommit, answers={200: CommitAnswer}, tag="documents",
       touches=lambda call: commit_touches(call.store, call.body))
def memory_transact(call: Call) -> Any:
    """The same under its name in the protocol of documents."""
    return transact_documents(call)


def creation_touches(store: ServedStore, branch: BranchCreation) -> list[Touch]:
    """What creating a branch touches: the new branch, and the one that it starts from."""
    check_model(store, DOCUMENTS)
    source = store.branch_of(branch.at) if branch.at is not None else branch.parent or store.first_branch
    return [touched(TokenScope.WRITE, branch.name), Touch(TokenScope.READ, source)]


def create_branch(store: ServedStore, sent: BranchCreation, principal: Principal) -> BranchAnswer:
    """Create a branch. Raises what `SpaceBranches.create` raises."""
    if sent.at is not None and sent.at_seq is not None:
        raise RefusedError(422, "a branch starts at atSeq or at a reference, not at both")
    with store.writing() as space:
        session_id, local_seq = _request(space, sent)
        made = space.branches.create(sent.name, at=sent.at if sent.at_seq is None else sent.at_seq, parent=sent.parent,
                                     session_id=session_id, local_seq=local_seq, author=principal.name)
    return BranchAnswer.of(made)


@route("POST", "/stores/{store}/memory/branch/create", body=BranchCreation, answers={201: BranchAnswer},
       tag="documents", touches=lambda call: creation_touches(call.store, call.body))
def memory_branch_create(call: Call) -> Any:
    """Create a branch of a space, as a commit."""
    return Reply(create_branch(call.store, call.body, call.principal), 201)


def deletion_touches(store: ServedStore, branch: BranchDeletion) -> list[Touch]:
    """What deleting a branch touches."""
    check_model(store, DOCUMENTS)
    return [touched(TokenScope.WRITE, branch.name)]


def delete_branch(store: ServedStore, sent: BranchDeletion, principal: Principal) -> DeletedBranch:
    """Delete a branch. Raises what `SpaceBranches.delete` raises."""
    with store.writing() as space:
        session_id, local_seq = _request(space, sent)
        space.branches.delete(sent.name, session_id=session_id, local_seq=local_seq, author=principal.name)
    return DeletedBranch(sent.name)


@route("POST", "/stores/{store}/memory/branch/delete", body=BranchDeletion, answers={200: DeletedBranch},
       tag="documents", touches=lambda call: deletion_touches(call.store, call.body))
def memory_branch_delete(call: Call) -> Any:
    """Give a branch of a space up, as a commit; what was on it can still be read."""
    return delete_branch(call.store, call.body, call.principal)
