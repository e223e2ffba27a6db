"""One socket of the sync protocol: what a client asks is answered in turn, and what it watches is sent as it commits.

A frame is sent when the one before has left: a client that reads slowly is paused, and one that does not read at all
is dropped, with its position. Nothing else waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.websockets import WebSocketDisconnect

from ontolake import __version__
from ontolake.documents.errors import ConflictError, FutureSeqError, PreconditionFailedError, ProtocolError
from ontolake.documents.names import check_session
from ontolake.documents.read.watcher import wanted_by
from ontolake.documents.wire import BranchCreation, BranchDeletion, ClientCommit, WireState
from ontolake.errors import Invalid, OntolakeError
from ontolake.server.api import documents
from ontolake.server.models import touched
from ontolake.server.problems import RefusedError, problem_of, status_of
from ontolake.server.rights import ForbiddenError, Principal, TokenScope, check
from ontolake.server.routes import EXCHANGE, Call
from ontolake.server.sync import messages
from ontolake.server.sync.feeds import BranchFeed, FeedPage, SpaceFeeds, Wanted, entry
from ontolake.server.sync.messages import encode
from ontolake.server.sync.sessions import SessionKey
from ontolake.server.sync.transport import EXTENSION

if TYPE_CHECKING:
    from ontolake.server.exchanges import Exchange

GOING_DOWN, TAKEN_OVER, TOO_SLOW = 1012, 4001, 4008
BAD_MESSAGE, NO_TOKEN, FORBIDDEN, OTHER_VERSION = 4400, 4401, 4403, 4426
"""Why a server closes a socket."""
HELLO_SECONDS = 10.0
"""How long a client may take to say hello."""
SEND_SECONDS = 20.0
"""How long a client may leave what it was sent unread before it is dropped."""
HEARTBEAT_SECONDS = 15.0
"""After how long a frame without documents tells a client where its branches are."""
RECHECK_SECONDS = 2.0
"""For how long the rights of a token are taken as they were."""
MOST_BRANCHES, MOST_IDS, MOST_ERRORS = 16, 10_000, 100
_log = logging.getLogger(__name__)

T = TypeVar("T")


class Closing(Exception):
    """The socket is to be closed, with a code and a reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class Watch:
    """A branch that a client watches, and up to where it was sent."""

    def __init__(self, feed: BranchFeed, ids: set[str] | None, prefix: str | None, since: int) -> None:
        self.feed = feed
        self.ids = ids
        self.wanted: Wanted = wanted_by(ids, prefix)
        self.position = since
        self.seen = since


class SyncConnection:
    """A socket, from its handshake to its end."""

    def __init__(self, call: Call, token: str) -> None:
        self._server, self._store, self._socket = call.server, call.store, call.socket
        self._feeds: SpaceFeeds = call.server.watchers.of(call.store)
        self._exchange: Exchange = call.socket.scope[EXCHANGE]
        self._token = token
        self._who: Principal | None = call.principal
        self._checked = time.monotonic()
        self._session: str | None = None
        self._watches: dict[str, Watch] = {}
        self._more = asyncio.Event()
        self._turn = asyncio.Lock()
        """Held from a transaction to its response: frames that cover it come behind."""
        self._accepted: deque[tuple[int, int]] = deque()
        self._caught_up: int | None = None
        self._ended: asyncio.Future[Closing] = asyncio.get_running_loop().create_future()
        self._errors = 0

    async def run(self) -> None:
        """Serve the socket until either side ends it."""
        try:
            await self._greet()
            await self._serve()
        except Closing as closing:
            await self._close(closing)
        except WebSocketDisconnect:
            pass
        except Exception as error:
            _log.exception("a sync socket of %s failed", self._store.name)
            await self._close(Closing(1011, problem_of(error).title))
        finally:
            for branch in self._watches:
                self._feeds.leave(branch, self._more)
            if self._session is not None:
                self._feeds.sessions.leave(self._session, self._revoke)

    async def _serve(self) -> None:
        work = (self._receive_all(), self._send_all(), self._close_with_server())
        tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(one) for one in work]
        try:
            done, _ = await asyncio.wait([*tasks, self._ended], return_when=asyncio.FIRST_COMPLETED)
            if self._ended in done:
                raise self._ended.result()
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _close_with_server(self) -> None:
        await self._server.closing.wait()
        raise Closing(GOING_DOWN, "the server is going down")

    # the handshake

    async def _greet(self) -> None:
        socket = self._socket
        offers = messages.offered(socket.scope.get("subprotocols", ()), socket.query_params.get("version"))
        chosen = messages.negotiated(offers) if offers else None
        await socket.accept(offers.get(chosen) if chosen is not None else None)
        if offers and chosen is None:
            raise Closing(OTHER_VERSION, f"this server speaks version {messages.VERSION}")
        try:
            text = await asyncio.wait_for(self._received(), HELLO_SECONDS)
            hello = messages.decode(text)
        except TimeoutError:
            raise Closing(BAD_MESSAGE, "there was no hello in time") from None
        except (msgspec.DecodeError, RecursionError) as error:
            raise Closing(BAD_MESSAGE, f"the first message is hello: {error}") from None
        if not isinstance(hello, messages.Hello):
            raise Closing(BAD_MESSAGE, "the first message is hello")
        if messages.negotiated([hello.version]) is None or chosen not in (None, hello.version):
            raise Closing(OTHER_VERSION, f"this server speaks version {messages.VERSION}")
        seq = await self._server.run(self._last_seq)
        await self._send(encode(messages.HelloAnswer(hello.version, f"ontolake/{__version__}", self._store.name, seq)))

    def _principal(self) -> Principal:
        """Who has the token, looked at again now and then: it may have been revoked. Raises `Closing`."""
        now = time.monotonic()
        if self._who is None or now - self._checked > RECHECK_SECONDS:
            self._who = self._server.authenticate(self._token)
            self._checked = now
        if self._who is None:
            raise Closing(NO_TOKEN, "this needs a valid token")
        return self._who

    def _last_seq(self) -> int:
        with self._store.reading() as space:
            return int(space.last_seq())

    # requests

    async def _received(self) -> str:
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005), message.get("reason"))
        text: str | None = message.get("text")
        return "" if text is None else text  # which is no message, as bytes are none

    async def _receive_all(self) -> None:
        while True:
            text = await self._received()
            try:
                message = messages.decode(text)
            except (msgspec.DecodeError, RecursionError) as error:
                self._errors += 1
                if self._errors > MOST_ERRORS:
                    raise Closing(BAD_MESSAGE, "too many messages could not be read") from None
                await self._respond(messages.request_id(text), RefusedError(422, f"this is not a message: {error}"))
                continue
            await self._handle(message)

    async def _handle(self, message: messages.Message) -> None:
        if isinstance(message, messages.SessionAck):
            if (watch := self._watches.get(message.branch)) is not None:
                watch.seen = max(watch.seen, min(message.seen_seq, watch.position))
            return
        if isinstance(message, messages.Hello):
            await self._respond(None, ProtocolError("hello was said before"))
            return
        answers: dict[type[Any], Callable[[Any], Awaitable[Any]]] = {
            messages.SessionOpen: self._open, messages.WatchSet: self._watch, messages.WatchAdd: self._watch_more,
            messages.Transact: self._transact, messages.ShortTransact: self._transact,
            messages.CreateBranch: self._create_branch, messages.DeleteBranch: self._delete_branch,
            messages.ReadDocuments: self._read}  # fmt: skip
        failure: BaseException | None = None
        try:
            await answers[type(message)](message)
        except (Closing, WebSocketDisconnect):
            raise
        except Exception as error:
            failure = error
            if not isinstance(error, OntolakeError):
                _log.exception("a request of a sync socket of %s failed", self._store.name)
            await self._respond(message.id, error)
        if isinstance(message, messages.Transact | messages.CreateBranch | messages.DeleteBranch):
            self._audit(type(message).__struct_config__.tag, failure)

    def _audit(self, operation: Any, failure: BaseException | None) -> None:
        """Note a command that changes something, or was refused."""
        status = 200 if failure is None else status_of(failure)
        if status == 409:
            self._server.metrics.conflicted(self._store.name)
        if self._server.audit is not None:
            problem = None if failure is None else type(failure).__name__
            self._server.audit.append(msgspec.structs.replace(self._exchange.entry(), operation=str(operation),
                                                              status=status, problem=problem))  # fmt: skip

    async def _respond(self, id: messages.RequestId | None, value: Any) -> None:
        if not isinstance(value, BaseException):
            await self._send(encode(messages.Response(id, value)))
            return
        retry = None
        if isinstance(value, ConflictError | PreconditionFailedError):
            found = getattr(value, "conflict_seq", None)
            retry = found if found is not None else await self._server.run(self._last_seq)
        await self._send(encode(messages.Response(id, None, problem_of(value), retry)))

    async def _open(self, message: messages.SessionOpen) -> None:
        if self._session is not None:
            raise ProtocolError("this socket has a session", hint="open another socket")
        if message.session is not None:
            check_session(message.session, 0)
        last, used = await self._server.run(self._known, message.session)
        if message.seen_seq is not None and message.seen_seq > last:
            raise FutureSeqError("seenSeq", message.seen_seq, last)
        key = SessionKey(self._token, self._principal().name, self._store.name)
        name, token, resumed = self._feeds.sessions.open(key, message.session, message.resume_token, used is not None,
                                                         self._revoke)  # fmt: skip
        self._session = name
        self._caught_up = None if used is None else used[0]
        await self._respond(message.id, messages.SessionAnswer(name, token, last, self._caught_up, resumed))

    def _known(self, session: str | None) -> tuple[int, tuple[int, int] | None]:
        with self._store.reading() as space:
            return space.last_seq(), None if session is None else space.last_request(session)

    def _revoke(self) -> None:
        if not self._ended.done():
            self._ended.set_result(Closing(TAKEN_OVER, "the session goes on at another socket"))

    def _named(self, sent: T) -> T:
        """A command under the name of the session. Raises `ProtocolError`."""
        if self._session is None:
            raise ProtocolError("there is no session", hint="send session.open first")
        fields: Any = sent
        if fields.session_id not in (None, self._session):
            raise ProtocolError("a socket speaks for its own session alone", hint="leave sessionId out")
        if fields.local_seq is None:
            raise ProtocolError("localSeq is missing")
        return msgspec.structs.replace(fields, session_id=self._session)  # type: ignore[no-any-return]

    async def _transact(self, message: messages.Transact) -> None:
        commit: ClientCommit = self._named(message.commit)
        principal = self._principal()
        for touch in documents.commit_touches(self._store, commit):
            check(principal, self._store.name, touch)
        async with self._turn:
            made = await self._server.run(documents.transact, self._store, commit, principal, changes=True)
            self._accepted.append((made.seq, made.local_seq))
            self._feeds.committed()
            await self._respond(message.id, made)

    async def _create_branch(self, message: messages.CreateBranch) -> None:
        branch: BranchCreation = self._named(message.branch)
        principal = self._principal()
        for touch in await self._server.run(documents.creation_touches, self._store, branch):
            check(principal, self._store.name, touch)
        async with self._turn:
            made = await self._server.run(documents.create_branch, self._store, branch, principal, changes=True)
            await self._respond(message.id, made)

    async def _delete_branch(self, message: messages.DeleteBranch) -> None:
        branch: BranchDeletion = self._named(message.branch)
        principal = self._principal()
        for touch in documents.deletion_touches(self._store, branch):
            check(principal, self._store.name, touch)
        async with self._turn:
            gone = await self._server.run(documents.delete_branch, self._store, branch, principal, changes=True)
            await self._respond(message.id, gone)

    async def _read(self, message: messages.ReadDocuments) -> None:
        check(self._principal(), self._store.name, touched(TokenScope.READ, message.branch))
        if len(message.ids) > documents.MOST_IDS:
            raise RefusedError(413, f"a message names at most {documents.MOST_IDS} documents")

        def read() -> documents.DocumentsAnswer:
            with self._store.reading() as space:
                found = space.read_many(message.ids, branch=message.branch, seq=message.seq)
            return documents.DocumentsAnswer([WireState.of(found[id]) for id in message.ids])

        await self._respond(message.id, await self._server.run(read))

    # watching

    async def _watch(self, message: messages.WatchSet) -> None:
        branch = message.branch
        check(self._principal(), self._store.name, touched(TokenScope.READ, branch))
        before = self._watches.get(branch)
        if message.ids is not None and not message.ids:
            if before is not None:
                del self._watches[branch]
                self._feeds.leave(branch, self._more)
            await self._respond(message.id, messages.WatchAnswer(branch, 0 if before is None else before.position))
            return
        if before is None and len(self._watches) >= MOST_BRANCHES:
            raise Invalid(f"a socket watches at most {MOST_BRANCHES} branches")
        if message.ids is not None and len(message.ids) > MOST_IDS:
            raise Invalid(f"a watch set has at most {MOST_IDS} ids", hint="watch a prefix, or all")
        wanted_by(message.ids, message.prefix)
        last = await self._server.run(self._last_seq)
        if message.since is not None and not 0 <= message.since <= last:
            raise FutureSeqError("since", message.since, last)
        feed = await self._feeds.watch(branch, self._more)
        since = message.since if message.since is not None else before.position if before is not None else feed.head
        async with self._turn:
            ids = None if message.ids is None else set(message.ids)
            self._watches[branch] = Watch(feed, ids, message.prefix, since)
            await self._respond(message.id, messages.WatchAnswer(branch, since))
            if before is not None and before.ids is not None and ids is not None and before.ids - ids:
                await self._send(self._frame(branch, since, FeedPage(since, []), sorted(before.ids - ids)))
        self._more.set()

    async def _watch_more(self, message: messages.WatchAdd) -> None:
        check(self._principal(), self._store.name, touched(TokenScope.READ, message.branch))
        watch = self._watches.get(message.branch)
        if watch is None or watch.ids is None:
            raise ProtocolError(f"no set of ids is watched on the branch {message.branch!r}",
                                hint="send session.watch.set first")
        if len(watch.ids | set(message.ids)) > MOST_IDS:
            raise Invalid(f"a watch set has at most {MOST_IDS} ids", hint="watch a prefix, or all")
        new = sorted(set(message.ids) - watch.ids)
        wanted_by(new, None)

        def read() -> list[Any]:
            with self._store.reading() as space:
                found = space.read_many(new, branch=message.branch, seq=watch.position)
            return [entry(state.changed, state.id, state.document) for state in found.values() if state.changed]

        async with self._turn:
            entries = await self._server.run(read)
            watch.ids |= set(new)
            watch.wanted = watch.ids.__contains__
            await self._respond(message.id, messages.WatchAnswer(message.branch, watch.position))
            await self._send(self._frame(message.branch, watch.position, FeedPage(watch.position, entries)))

    async def _send_all(self) -> None:
        """Send what is watched as it commits, and now and then where the branches are."""
        beat = time.monotonic() + HEARTBEAT_SECONDS
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._more.wait(), max(beat - time.monotonic(), 0.01))
            self._more.clear()
            idle = time.monotonic() >= beat
            for branch in list(self._watches):
                sent = await self._send_branch(branch)
                if idle and not sent and (watch := self._watches.get(branch)) is not None:
                    await self._send(self._frame(branch, watch.position, FeedPage(watch.position, [])))
            if idle:
                self._principal()
                beat = time.monotonic() + HEARTBEAT_SECONDS

    async def _send_branch(self, branch: str) -> bool:
        """Send all that is new on a branch. Returns whether there was anything."""
        sent = False
        while (watch := self._watches.get(branch)) is not None and watch.position < watch.feed.head:
            self._check_watch(branch)
            page = watch.feed.page(watch.position, watch.wanted)
            if page is None:
                page = await self._feeds.catch_up(branch, watch.position, watch.feed.head, watch.wanted)
            async with self._turn:
                if self._watches.get(branch) is not watch or page.to <= watch.position:
                    continue
                is_news = bool(page.entries) or self._covers(page.to)
                data, watch.position = self._frame(branch, watch.position, page), page.to
                if is_news:
                    await self._send(data)
                    sent = True
        return sent

    def _covers(self, to: int) -> bool:
        """Whether a frame without documents tells that a transaction of the session is covered."""
        return bool(self._accepted) and self._accepted[0][0] <= to

    def _check_watch(self, branch: str) -> None:
        try:
            check(self._principal(), self._store.name, touched(TokenScope.READ, branch))
        except ForbiddenError as error:
            raise Closing(FORBIDDEN, error.message) from None

    def _frame(self, branch: str, since: int, page: FeedPage, removes: list[str] | None = None) -> bytes:
        while self._accepted and self._accepted[0][0] <= page.to:
            local_seq = self._accepted.popleft()[1]
            self._caught_up = local_seq if self._caught_up is None else max(self._caught_up, local_seq)
        head = encode({"type": "sync", "branch": branch, "from": since, "to": page.to,
                       "caughtUpLocalSeq": self._caught_up, "removes": removes or []})  # fmt: skip
        return head[:-1] + b',"upserts":[' + b",".join(one.data for one in page.entries) + b"]}"

    # sending

    async def _send(self, data: bytes) -> None:
        """Send a message. Raises `Closing` if the client leaves unread what came before."""
        try:
            await asyncio.wait_for(self._socket.send_text(data.decode()), SEND_SECONDS)
        except TimeoutError:
            positions = ",".join(f"{branch or 'main'}={watch.position}" for branch, watch in self._watches.items())
            raise Closing(TOO_SLOW, f"too slow; sent up to {positions}") from None
        except RuntimeError as error:  # the other side has closed meanwhile
            raise WebSocketDisconnect(1006) from error

    async def _close(self, closing: Closing) -> None:
        reason = closing.reason.encode()[:120].decode(errors="ignore")
        drop = self._socket.scope.get("extensions", {}).get(EXTENSION, {}).get("drop")
        try:
            if closing.code == TAKEN_OVER:
                await asyncio.wait_for(self._socket.send_text(encode(messages.Revoked(closing.reason)).decode()), 1)
            if closing.code != TOO_SLOW or drop is None:
                await asyncio.wait_for(self._socket.close(closing.code, reason), 1)
                return
        except (TimeoutError, RuntimeError, WebSocketDisconnect):
            pass
        if drop is not None:
            drop(closing.code, reason)
