"""States and spans of history for clients that hold on to them: what a reference names now, all rows of a table there,
and all changes between two commits, as lines of JSON with tags (`ontolake.history.wire`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec

from ontolake import stores
from ontolake.history import Ref, wire
from ontolake.server.answers import FORMS, answer
from ontolake.server.api.commits import branch_named, named_commit, pinned, reads_branch
from ontolake.server.api.tables import TableQuery
from ontolake.server.rights import TokenScope, Touch
from ontolake.server.routes import Call, reads_ref, route
from ontolake.server.streams import streamed

LINES = "application/vnd.ontolake+json-lines"
_A_CHUNK = 500


class SnapshotQuery(msgspec.Struct):
    """A state: of a reference, or of a commit on a branch, by default its head."""

    ref: str | None = None
    commit: str | None = None
    branch: str | None = None


class SnapshotOut(msgspec.Struct):
    """A state. `ref` goes on naming it when branches move."""

    ref: str
    branch: str
    commit: int | str


class SpanQuery(msgspec.Struct):
    """The commits `(since, until]` of a branch."""

    since: str
    until: str | None = None
    branch: str | None = None


def _reads_state(call: Call) -> Iterable[Touch]:
    query: SnapshotQuery = call.query
    if query.ref is not None:
        return [Touch(TokenScope.READ, call.store.branch_of(query.ref, call.principal))]
    if query.branch is None and query.commit is not None:
        return [Touch(TokenScope.READ, None)]
    return [Touch(TokenScope.READ, branch_named(call))]


@route("GET", "/stores/{store}/snapshot", touches=_reads_state, query=SnapshotQuery, answers={200: SnapshotOut},
       forms=FORMS, tag="history")
def show_snapshot(call: Call) -> Any:
    """What a reference names now, or a commit on a branch."""
    query: SnapshotQuery = call.query
    with call.store.reading() as store:
        if query.ref is not None:
            moment = store.at(query.ref)
        else:
            branch = {} if query.branch is None else {"branch": query.branch}
            moment = store.snapshot(named_commit(call, query.commit), **branch)
            if call.store.model is stores.DOCUMENTS and moment.commit:  # numbers count the commits of all branches
                newest = next(iter(store.commits(until=moment.commit, branch=moment.branch)), None)
                moment = moment if newest is None else store.at(Ref(moment.branch or None, str(newest.id)))
        return answer(call, {"ref": pinned(store, query.ref, moment), "branch": moment.branch,
                             "commit": moment.commit})  # fmt: skip


@route("GET", "/stores/{store}/snapshot/rows", touches=reads_ref, query=TableQuery, answers={200: (LINES,)}, tag="rows")
async def read_snapshot_rows(call: Call) -> Any:
    """All rows of a table with their keys, by key, as a stream of lines `[key, row]`."""

    def produce() -> Iterator[bytes]:
        query: TableQuery = call.query
        with call.store.reading() as store:
            moment = store.at(call.store.first_branch if query.ref is None else query.ref)
            yield from _lines(moment.rows(query.table))

    return await streamed(produce, LINES, {})


@route("GET", "/stores/{store}/span", touches=reads_branch, query=SpanQuery, answers={200: (LINES,)}, tag="history")
async def read_span(call: Call) -> Any:
    """What each commit of a span did, oldest first, as a stream of lines."""

    def produce() -> Iterator[bytes]:
        query: SpanQuery = call.query
        with call.store.reading() as store:
            yield from _lines(store.changes(named_commit(call, query.since), named_commit(call, query.until),
                                            branch=branch_named(call)))

    return await streamed(produce, LINES, {})


def _lines(values: Iterable[Any]) -> Iterator[bytes]:
    """Values as lines, many at a time."""
    left = iter(values)
    while part := list(islice(left, _A_CHUNK)):
        yield b"".join(wire.dump(one) + b"\n" for one in part)
