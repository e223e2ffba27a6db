"""SQL over HTTP: statements in, rows out, on a branch or at any reference, within limits, and cancelled by id."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from anyio import to_thread
from starlette.responses import StreamingResponse

from ontolake.history import wire
from ontolake.server import formats
from ontolake.server.answers import sent_value
from ontolake.server.models import check_model
from ontolake.server.problems import RefusedError
from ontolake.server.rights import ForbiddenError, TokenScope, Touch
from ontolake.server.routes import Call, Reply, route
from ontolake.server.values import plain
from ontolake.stores import SQL

if TYPE_CHECKING:
    from starlette.requests import Request

    from ontolake.server.statements import StatementUse
    from ontolake.sql import Database
    from ontolake.sql.results import Result
    from ontolake.sql.syntax.statements import ParsedStatement

ROWS, MOST_ROWS = 10_000, 5_000_000
"""How many rows an answer has at most, unless the request says otherwise, and what it may say."""
SECONDS, MOST_SECONDS = 30.0, 600.0
"""How long a request may run, unless it says otherwise, and what it may say."""

_NARROWING = ("where", "group", "limit", "offset", "fetch", "distinct", "locks", "with_")


class SqlRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One or more statements, which are one transaction. `params` are for a single one.

    They run on `branch`, the first one unless named; a query may ask for a version or time of it with `as_of`, or for
    any reference with `ref`. `id` lets another request cancel it.
    """

    sql: str
    params: list[Any] | dict[str, Any] = []
    branch: str | None = None
    ref: str | None = None
    as_of: int | str | None = None
    limit: int = ROWS
    timeout: float = SECONDS
    id: str | None = None
    message: str | None = None


class StatementStatus(msgspec.Struct):
    """What one statement did, and how many rows it gave or changed."""

    status: str
    count: int


class SqlAnswer(msgspec.Struct):
    """The rows of the last statement. `truncated` says that there were more than the limit."""

    status: str
    count: int
    columns: list[formats.ColumnType]
    rows: list[list[Any]]
    truncated: bool
    notices: list[str]
    statements: list[StatementStatus]


class CancelRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which request to cancel."""

    id: str


class CancelAnswer(msgspec.Struct):
    """Whether the request was still running."""

    id: str
    cancelled: bool


class RunningRequest:
    """A request that runs: who sent it, what it touches, and where it can be cancelled."""

    def __init__(self, principal: str, touches: list[Touch]) -> None:
        self.principal = principal
        self.touches = touches
        self.reason: str | None = None
        self._lock = threading.Lock()
        self._database: Database | None = None
        self._thread = 0

    @contextmanager
    def on(self, database: Database) -> Iterator[None]:
        """Run statements of this thread, which `cancel` ends."""
        from ontolake.sql.errors import SqlError

        with self._lock:
            if self.reason is not None:
                raise SqlError(self.reason, sqlstate="57014")
            self._database, self._thread = database, threading.get_ident()
        try:
            with database.running.run(None, None):
                yield
        except SqlError as error:
            if error.sqlstate == "57014" and self.reason is not None:
                raise SqlError(self.reason, sqlstate="57014", hint="run it again, or give it more time") from error
            raise
        finally:
            with self._lock:  # whoever cancels holds it until the statement has ended, and not one of the next request
                self._database = None

    def cancel(self, reason: str) -> None:
        """Make it end, and wait until it has."""
        with self._lock:
            self.reason = self.reason or reason
            if self._database is not None:
                self._database.cancel(self._thread)


_running: dict[tuple[int, str, str], RunningRequest] = {}
"""Requests with an id, by server, store and id. The event loop alone changes it."""


def _key(call: Call) -> tuple[int, str, str]:
    return id(call.server), call.store.name, call.body.id


def _parameters(call: Call) -> list[Any] | dict[str, Any]:
    """The parameters, decoded where the client sends tags."""
    params: list[Any] | dict[str, Any] = sent_value(call, call.body.params)
    return params


def _touches(call: Call) -> list[Touch]:
    """What the statements of a request touch. Raises `SqlError`, `RefusedError`."""
    call.notes["touches"] = touches = _use(call).touches
    return touches


def _use(call: Call) -> StatementUse:
    check_model(call.store, SQL)
    from ontolake.server.statements import StatementUse
    from ontolake.sql.errors import SqlSyntaxError
    from ontolake.sql.syntax.statements import parse

    body: SqlRequest = call.body
    statements = parse(body.sql)
    if not statements:
        raise SqlSyntaxError("there is no statement")
    if len(statements) > 1 and body.params:
        raise SqlSyntaxError("several statements cannot share parameters", hint="send one at a time")
    if body.ref is not None and (body.branch is not None or body.as_of is not None):
        raise RefusedError(422, "ref says all that branch and as_of could", hint="send ref alone, or the other two")
    if not 0 <= body.limit <= MOST_ROWS:
        raise RefusedError(422, f"limit is from 0 to {MOST_ROWS}, not {body.limit}")
    if not 0 < body.timeout <= MOST_SECONDS:
        raise RefusedError(422, f"timeout is more than 0 and at most {MOST_SECONDS:.0f} seconds, not {body.timeout}")
    use = StatementUse(call.store, statements, _parameters(call), body.branch or call.store.first_branch)
    if use.writes and (body.ref is not None or body.as_of is not None):
        raise RefusedError(422, "the past cannot be written to", hint="leave ref and as_of out")
    if body.ref is not None:
        use.touches[0] = Touch(TokenScope.READ, call.store.branch_of(body.ref))
    return use


@route("POST", "/stores/{store}/sql", body=SqlRequest, touches=_touches, answers={200: SqlAnswer}, tag="sql")
async def run_sql(call: Call) -> Any:
    """Run SQL statements as one transaction; the answer has the rows of the last one."""
    body: SqlRequest = call.body
    media_type = formats.chosen(call.request.headers.get("accept"), (*formats.FORMATS, wire.MEDIA_TYPE))
    running = RunningRequest(call.principal.name, call.notes["touches"])
    key = None if body.id is None else _key(call)
    if key is not None:
        if key in _running:
            raise RefusedError(409, f"a request with the id {body.id!r} is running", hint="choose another id")
        _running[key] = running
    try:
        results = await _ended(call, running)
    finally:
        if key is not None:
            del _running[key]
    return await to_thread.run_sync(_answer, results, body.limit, media_type)


async def _ended(call: Call, running: RunningRequest) -> list[Result]:
    """The results, unless the time is up or the client has gone before."""
    worker = asyncio.ensure_future(to_thread.run_sync(_run, call, running))
    gone = asyncio.ensure_future(_disconnected(call.request))
    try:
        await asyncio.wait({worker, gone}, timeout=call.body.timeout, return_when=asyncio.FIRST_COMPLETED)
        if not worker.done():
            from ontolake.sql.cancellation import CANCELED, TIMED_OUT

            await to_thread.run_sync(running.cancel, CANCELED if gone.done() else TIMED_OUT)
            if gone.done():  # whoever sends it again may have it run again
                with suppress(Exception):
                    return await worker
                raise RefusedError(408, "the client was gone before the end")
        return await worker
    finally:
        gone.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _run(call: Call, running: RunningRequest) -> list[Result]:
    from ontolake.sql.syntax.statements import parse

    body: SqlRequest = call.body
    statements, params, store = parse(body.sql), _parameters(call), call.store
    if any(touch.scope > TokenScope.READ for touch in running.touches):
        with store.writing(body.branch) as database, running.on(database):
            return _written(database, statements, params, body.message, call.principal.name)
    branch, as_of = body.branch, body.as_of
    if body.ref is not None:
        with store.reading() as database:
            found = database.at(body.ref)
            branch, as_of = found.branch, found.commit
    with store.reading(branch) as database, running.on(database):
        limited = [_limited(one, body.limit) for one in statements]
        if len(statements) == 1:
            return [database.run(limited[0], _bound(params), as_of)]
        with _reading(database):
            return [database.run(one, (), as_of) for one in limited]


def _bound(params: list[Any] | dict[str, Any]) -> tuple[Any, ...] | Mapping[str, Any]:
    return params if isinstance(params, dict) else tuple(params)


def _written(
    database: Database, statements: Iterable[ParsedStatement], params: Any, message: str | None, author: str
) -> list[Result]:
    statements = list(statements)
    if len(statements) == 1:
        with database.session.noted(message, author):
            return [database.run(statements[0], _bound(params))]
    with database.transaction(message=message, author=author):
        return [database.run(one, ()) for one in statements]


@contextmanager
def _reading(database: Database) -> Iterator[None]:
    """A transaction that only reads, so that all statements see the same."""
    from ontolake.sql.syntax.statements import parse_one

    database.run(parse_one("BEGIN READ ONLY"), ())
    try:
        yield
    finally:
        database.run(parse_one("ROLLBACK"), ())


def _limited(statement: ParsedStatement, limit: int) -> ParsedStatement:
    """A query of a whole table that ends when the answer has all its rows; another statement as it is."""
    from sqlglot import exp

    tree = statement.tree
    if statement.kind != "select" or not isinstance(tree, exp.Select) or any(map(tree.args.get, _NARROWING)):
        return statement
    return statement.changed(tree.limit(limit + 1, copy=True), statement.given)


def _answer(results: list[Result], limit: int, media_type: str) -> Any:
    last = results[-1]
    truncated = last.count > limit if last.columns else False
    headers = {"x-ontolake-truncated": "true"} if truncated else {}
    if media_type == formats.ARROW:
        table = last.arrow().slice(0, limit)
        parts = formats.arrow_of(table.schema, table.to_batches(max_chunksize=65_536))
        return StreamingResponse(parts, media_type=media_type, headers=headers)
    rows = islice(iter(last), limit)
    if media_type == formats.LINES:
        return StreamingResponse(formats.lines_of(last.columns, rows), media_type=media_type, headers=headers)
    if media_type == formats.CSV:
        return StreamingResponse(formats.csv_of(last.columns, rows), media_type=media_type, headers=headers)
    shown = wire.encode if media_type == wire.MEDIA_TYPE else plain
    answer = SqlAnswer(last.status, min(last.count, limit) if last.columns else last.count,
                       [formats.ColumnType(name, str(type)) for name, type in last.description] if last.columns else [],
                       [[shown(value) for value in row] for row in rows], truncated, list(last.notices),
                       [StatementStatus(one.status, one.count) for one in results])  # fmt: skip
    return Reply(msgspec.json.encode(answer), media_type=media_type)


def _cancels(call: Call) -> list[Touch]:
    check_model(call.store, SQL)
    running = _running.get(_key(call))
    return [Touch(TokenScope.READ, call.store.first_branch)] if running is None else running.touches


@route("POST", "/stores/{store}/sql/cancel", body=CancelRequest, touches=_cancels, answers={200: CancelAnswer},
       tag="sql")
async def cancel_sql(call: Call) -> Any:
    """Cancel a request by its id; the token that sent it may, and administrators."""
    running = _running.get(_key(call))
    if running is None:
        return CancelAnswer(call.body.id, False)
    if running.principal != call.principal.name and call.principal.scope < TokenScope.ADMIN:
        raise ForbiddenError(f"the request {call.body.id!r} is of another token", TokenScope.ADMIN)
    from ontolake.sql.cancellation import CANCELED

    await to_thread.run_sync(running.cancel, CANCELED)
    return CancelAnswer(call.body.id, True)
