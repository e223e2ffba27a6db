"""The changes of a branch: a page, a long poll, or a stream of events (SSE). At least once, and in order."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated, Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ontolake.server import cursors, feeds
from ontolake.server.answers import FORMS, answer, is_tagged
from ontolake.server.api.commits import Limit, branch_named, reads_branch
from ontolake.server.feeds import BranchWatch
from ontolake.server.routes import Call, route
from ontolake.server.words import ChangeOut

EVENTS = "text/event-stream"
_PAGE = 1000
SLOW = 30.0
"""A follower that takes nothing for so many seconds is dropped; the id of its last event is its position."""


class FeedQuery(msgspec.Struct):
    """What came after `since`, a commit; by default from now on. `wait` is how many seconds to wait for something,
    `heartbeat` after how many an event stream says that it lives."""

    since: str | None = None
    branch: str | None = None
    table: str | None = None
    limit: Limit = _PAGE
    cursor: str | None = None
    wait: Annotated[float, msgspec.Meta(ge=0, le=60)] = 0
    heartbeat: Annotated[float, msgspec.Meta(ge=0.1, le=300)] = 15


class FeedOut(msgspec.Struct):
    """Changes in order. `position` is where to follow from once `cursor` is None; until then the cursor leads on."""

    changes: list[ChangeOut]
    position: str
    cursor: str | None


@route("GET", "/stores/{store}/changes", touches=reads_branch, query=FeedQuery, tag="history",
       answers={200: {**dict.fromkeys(FORMS, FeedOut), EVENTS: None}},
       headers={"last-event-id": "the position of an event stream that was cut off"})
async def follow_changes(call: Call) -> Any:
    """What commits of a branch did: a page, a long poll, or a stream of events."""
    if EVENTS in call.request.headers.get("accept", ""):
        return await _stream(call)
    query: FeedQuery = call.query
    page = await call.server.run(_page, call)
    if query.wait and not page["changes"] and page["cursor"] is None:
        call.follow()
        page = await _awaited(call, page)
    return answer(call, page)


def _name(call: Call) -> str:
    return cursors.listing("changes", call.store.name, branch_named(call), call.query.table)


def _page(call: Call) -> dict[str, Any]:
    query, branch, served = call.query, branch_named(call), call.store
    if query.cursor is not None:
        since, until, told = cursors.read(query.cursor, _name(call))
    else:
        until, told = feeds.head_of(served, branch), 0
        since = until if query.since is None else feeds.position_of(served, query.since, branch)
    found, then = feeds.read_span(served, branch, since, until, query.table, told, call.page_size(query.limit))
    cursor = None if then is None else cursors.write(_name(call), (since, until, then))
    return {"changes": found, "position": str(until), "cursor": cursor}


async def _awaited(call: Call, page: dict[str, Any]) -> dict[str, Any]:
    """The page once there is something on it, or as it is when the time is over."""
    query: FeedQuery = call.query
    clock = asyncio.get_running_loop().time
    until = clock() + query.wait
    async with call.server.watches.following(call.store, branch_named(call)) as watch:
        while True:
            number, query.since, query.cursor = watch.next, page["position"], None
            page = await call.server.run(_page, call)
            left = until - clock()
            if page["changes"] or left <= 0 or call.server.closing.is_set() or not await watch.wait(number, left):
                return page


async def _stream(call: Call) -> Response:
    query, branch = call.query, branch_named(call)
    since = call.request.headers.get("last-event-id") or query.since
    start = (await call.server.run(feeds.head_of, call.store, branch) if since is None
             else await call.server.run(feeds.position_of, call.store, since, branch))
    call.follow()
    return EventStream(call, branch, start)


class EventStream(Response):
    """Commits of a branch as they are made. A reader that does not read is dropped."""

    media_type = EVENTS

    def __init__(self, call: Call, branch: str, start: Any) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"}, media_type=EVENTS)
        del self.headers["content-length"]
        self._call = call
        self._branch = branch
        self._position = start
        self._tagged = is_tagged(call)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        tasks = [asyncio.ensure_future(one) for one in (self._follow(send), gone(), self._call.server.closing.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(Exception):
            await asyncio.wait_for(send({"type": "http.response.body", "body": b"", "more_body": False}), 1)

    async def _follow(self, send: Send) -> None:
        call, query = self._call, self._call.query
        await self._send(send, f": following {self._branch}\nid: {self._position}\n\n".encode())
        async with call.server.watches.following(call.store, self._branch) as watch:
            while True:
                number = await self._catch_up(watch, send)
                while number >= watch.first:
                    if number == watch.next and not await watch.wait(number, query.heartbeat):
                        await self._send(send, f"id: {self._position}\nevent: heartbeat\ndata: {{}}\n\n".encode())
                        continue
                    if number < watch.first:
                        break
                    some = list(watch.events)[number - watch.first :]
                    message = b"".join(one.message(query.table, self._tagged) for one in some)
                    number += len(some)
                    self._position = some[-1].commit
                    if message:
                        await self._send(send, message)

    async def _catch_up(self, watch: BranchWatch, send: Send) -> int:
        """Tell what is behind what the watcher keeps. Returns the number of the event that comes next."""
        call = self._call
        while True:
            head, number = watch.head, watch.next
            if str(self._position) == str(head):
                return number
            told: int | None = 0
            while told is not None:
                span = await call.server.run(feeds.read_span, call.store, self._branch, self._position, head,
                                             call.query.table, told, _PAGE)
                told = span.told
                if span.changes:
                    await self._send(send, feeds.event(head, span.changes, self._tagged, whole=told is None))
            self._position = head

    async def _send(self, send: Send, data: bytes) -> None:
        await asyncio.wait_for(send({"type": "http.response.body", "body": data, "more_body": True}), SLOW)
