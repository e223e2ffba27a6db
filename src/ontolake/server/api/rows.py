"""Writing rows: lines of JSON or an Arrow stream in, one commit out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from ontolake.server.answers import entity_tag
from ontolake.server.problems import RefusedError
from ontolake.server.rights import TokenScope, Touch
from ontolake.server.routes import Call, Reply, looks_up_nothing, route
from ontolake.server.writes.bodies import TAKEN
from ontolake.server.writes.queues import PendingWrite
from ontolake.server.writes.requests import RowWrite
from ontolake.server.writes.retries import RequestKey

_LONGEST_KEY = 255


class WriteQuery(msgspec.Struct):
    """Where rows go: `upsert` changes what is there, `insert` must find nothing there, `delete` takes keys away."""

    table: str
    branch: str | None = None
    mode: Literal["upsert", "insert", "delete"] = "upsert"
    message: str | None = None


class WriteOut(msgspec.Struct):
    """What came of a write: the commit, None if nothing differed. Writes that wait together share a commit."""

    table: str
    branch: str
    commit: int | str | None
    replayed: bool
    """Whether this is the answer that the same key was given before."""


def _writes(call: Call) -> Iterable[Touch]:
    branch = call.query.branch
    return [Touch(TokenScope.WRITE, call.store.first_branch if branch is None else branch)]


@route("POST", "/stores/{store}/rows", touches=_writes, looks_up=looks_up_nothing, query=WriteQuery, takes=TAKEN,
       answers={200: WriteOut}, tag="rows", keeps_keys=True, streams=True,
       headers={"if-match": "the ETag of the head that the commit must follow",
                "idempotency-key": "a text of the caller's, the same for retries of one request"})
async def write_rows(call: Call) -> Any:
    """Write rows of a table as one commit."""
    query: WriteQuery = call.query
    headers = call.request.headers
    branch = call.store.first_branch if query.branch is None else query.branch
    body = await call.request.body()
    key = headers.get("idempotency-key")
    if key is not None and not 1 <= len(key) <= _LONGEST_KEY:
        raise RefusedError(400, f"an Idempotency-Key has 1 to {_LONGEST_KEY} characters")
    known = None
    if key is not None:
        said = msgspec.json.encode([query.table, branch, query.mode, query.message])
        known = RequestKey.of(call.principal.name, key, said, body)
    write = RowWrite(query.table, query.mode, body, headers.get("content-type", ""))
    pending = PendingWrite(write, call.principal.name, query.message, _expected(headers.get("if-match")), known)
    done = await call.server.writes.of(call.store, branch).put(pending)
    tag = {} if done.commit is None else {"etag": entity_tag(done.commit)}
    return Reply(WriteOut(query.table, branch, done.commit, done.replayed), headers=tag)


def _expected(header: str | None) -> str | None:
    """The commit that `If-Match` names. Raises `RefusedError` with 400 for several or none."""
    if header is None or header.strip() == "*":
        return None
    text = header.strip()
    if len(text) < 3 or text[0] != '"' or text[-1] != '"' or '"' in text[1:-1]:
        raise RefusedError(400, f"If-Match is {header!r}, which is not one ETag", hint='send If-Match: "COMMIT"')
    return text[1:-1]
