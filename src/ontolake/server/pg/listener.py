"""The server of PostgreSQL's protocol: a socket, the clients that are connected, and the threads that work for them."""

from __future__ import annotations

import asyncio
import signal
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any, NamedTuple
from urllib.parse import quote

import uvloop

from ontolake.errors import StorageError
from ontolake.server import telemetry
from ontolake.server.audit import AuditEntry, AuditLog
from ontolake.server.config import is_loopback
from ontolake.server.handles import ServedStores
from ontolake.server.limits import Limits, Slots
from ontolake.server.listener import bind
from ontolake.server.pg import failures
from ontolake.server.pg import messages as m
from ontolake.server.pg.connections import PgConnection
from ontolake.server.pg.databases import Databases
from ontolake.server.pg.notifications import Notifications
from ontolake.server.pg.scram import MockVerifiers
from ontolake.server.pg.sessions import SessionEvents, WireSession
from ontolake.server.pg.startup import ClientCredentials, apply_parameters
from ontolake.server.rights import ForbiddenError, Principal
from ontolake.sql.errors import SqlError

DEFAULT_PORT = 5433
_processes = count(1)


class PgOptions(NamedTuple):
    """What a server may be configured with."""

    limits: Limits = Limits()
    audit: AuditLog | None = None
    tls: ssl.SSLContext | None = None
    insecure: bool = False
    """Whether clients elsewhere may come without TLS."""


class PgServer:
    """Clients of PostgreSQL on a socket. Port 0 takes a free one; `port` says which.

    `start` and `stop` are for an event loop that runs already, as that of HTTP; `run` has one of its own.
    """

    def __init__(
        self, stores: ServedStores, credentials: ClientCredentials, options: PgOptions | None = None, *,
        host: str = "127.0.0.1", port: int = 0,
    ) -> None:  # fmt: skip
        """Bind the socket; nothing is answered until `start`. Raises `Invalid` if the address cannot be had."""
        options = PgOptions() if options is None else options
        self.limits, self.tls = options.limits, options.tls
        self.credentials = credentials
        self.mocks = MockVerifiers()
        self.slots = Slots(options.limits)
        self._insecure = options.insecure
        self._audit = options.audit
        self._databases = Databases(stores)
        self._socket = bind(host, port)
        self.host, self.port = self._socket.getsockname()[:2]
        self.loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]
        self._server: asyncio.Server | None = None
        self._clients: dict[int, PgConnection] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._notifications: Notifications | None = None
        self._stopping: asyncio.Event | None = None

    def url(self, database: str, user: str, password: str | None = None) -> str:
        """The connection URL of a database."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        secret = "" if password is None else f":{quote(password, safe='')}"
        return f"postgres://{quote(user, safe='')}{secret}@{host}:{self.port}/{quote(database, safe='@:')}"

    # running

    async def start(self) -> None:
        """Begin to answer."""
        self.loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(self.limits.readers + self.limits.writers, "ontolake-pg")
        self._notifications = Notifications(self._on_thread)
        self._stopping = asyncio.Event()
        self._server = await self.loop.create_server(lambda: PgConnection(self), sock=self._socket)

    async def stop(self) -> None:
        """End: idle clients at once, others when their statement has ended, or when they have had their time."""
        assert self._server is not None
        assert self._threads is not None
        assert self._notifications is not None
        self._server.close()
        for client in list(self._clients.values()):
            client.leave()
        until = self.loop.time() + self.limits.grace_seconds
        while self._clients and self.loop.time() < until:
            await asyncio.sleep(0.02)
        for client in list(self._clients.values()):
            client.cancel()
            client.end(None)
        self._notifications.close()
        self._databases.close()
        await self.loop.run_in_executor(None, self._threads.shutdown)

    def run(self) -> None:
        """Answer until SIGTERM, SIGINT or `close`."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        await self.start()
        assert self._stopping is not None
        if threading.current_thread() is threading.main_thread():
            for one in (signal.SIGINT, signal.SIGTERM):
                self.loop.add_signal_handler(one, self._stopping.set)
        try:
            await self._stopping.wait()
        finally:
            await self.stop()

    def close(self) -> None:
        """End `run`, from another thread."""
        if self._stopping is not None:
            with suppress(RuntimeError):  # it has ended already
                self.loop.call_soon_threadsafe(self._stopping.set)

    @contextmanager
    def running(self) -> Iterator[PgServer]:
        """Answer in a thread for a block. Raises `StorageError` if it cannot start."""
        thread = threading.Thread(target=self.run, name="ontolake-pg-server")
        thread.start()
        try:
            while self._stopping is None:
                if not thread.is_alive():
                    raise StorageError("the server did not start")
                thread.join(0.01)
            yield self
        finally:
            self.close()
            thread.join()

    # clients

    def next_process(self) -> int:
        return next(_processes) & 0x7FFFFFFF

    def add(self, client: PgConnection) -> None:
        self._clients[client.process] = client

    def remove(self, client: PgConnection) -> None:
        self._clients.pop(client.process, None)

    def check_room(self, client: PgConnection) -> None:
        """Raise `SqlError` (53300) if there are as many clients as there may be."""
        if len(self._clients) > self.limits.connections:
            raise SqlError("sorry, too many clients already", sqlstate="53300", hint="try again in a moment")

    def check_encryption(self, client: PgConnection) -> None:
        """Raise `SqlError` (28000) if a client elsewhere comes without TLS."""
        if not client.is_encrypted and not self._insecure and client.address and not is_loopback(client.address):
            raise SqlError("this server is reached with TLS alone", sqlstate="28000",
                           hint="connect with sslmode=require")

    def cancel(self, process: int, secret: int) -> None:
        """Cancel what a client runs, if the secret is its own."""
        client = self._clients.get(process)
        if client is not None and client.secret == secret:
            client.cancel()

    def open_session(
        self, client: PgConnection, principal: Principal, parameters: Mapping[str, str]
    ) -> tuple[WireSession, bytes]:
        """The session of a client, and what it is told at first. On a thread. Raises `SqlError`, `ForbiddenError`."""
        name = parameters.get("database") or parameters["user"]
        database = self._databases.open(name, principal)
        try:
            said: list[bytes] = []
            apply_parameters(database.connection.settings, parameters,
                             lambda message: said.append(failures.notice(message, severity="WARNING")))
            session = WireSession(database, principal, self._events(client, principal, database.name,
                                                                    database.store.name))  # fmt: skip
            said += [session.changed_settings(), m.parameter_status("is_superuser", "off"),
                     m.parameter_status("session_authorization", principal.name)]  # fmt: skip
        except BaseException:
            database.close()
            raise
        return session, b"".join(said)

    def forget(self, client: PgConnection, session: WireSession) -> None:
        """A client has gone."""
        if self._notifications is not None:
            self._notifications.unlisten(client, session.database.store, session.database.branch, None)

    def _events(self, client: PgConnection, principal: Principal, database: str, store: str) -> SessionEvents:
        def on_loop(method: str, *arguments: Any) -> None:
            def call() -> None:
                session = client.session
                if session is not None and self._notifications is not None:
                    place = session.database
                    if method == "tell":
                        self._notifications.tell(place.store, place.branch, client.process, *arguments)
                    else:
                        getattr(self._notifications, method)(client, place.store, place.branch, *arguments)

            self.loop.call_soon_threadsafe(call)

        def committed(kind: str) -> None:
            session = client.session
            if session is not None:
                session.database.store.on_write(store, 1)
            self._note(client, principal.name, f"pg.{kind}", 200, database, store)

        def refused(kind: str, error: BaseException) -> None:
            if isinstance(error, ForbiddenError):
                self._note(client, principal.name, f"pg.{kind}", 403, database, store, error)

        return SessionEvents(committed, refused, partial(on_loop, "listen"), partial(on_loop, "unlisten"),
                             partial(on_loop, "tell"))  # fmt: skip

    # the audit log

    def note_login(self, client: PgConnection, user: str, *, ok: bool) -> None:
        """Note that somebody came with a wrong secret."""
        self._note(client, "", "pg.login", 200 if ok else 401, user, None)

    def note_refusal(self, client: PgConnection, principal: Principal, error: BaseException) -> None:
        """Note that a client may not use the database that it has named."""
        if isinstance(error, ForbiddenError):
            self._note(client, principal.name, "pg.connect", 403, "", None, error)

    def _note(
        self, client: PgConnection, token: str, operation: str, status: int, database: str, store: str | None,
        error: BaseException | None = None,
    ) -> None:  # fmt: skip
        if self._audit is not None:
            self._audit.append(AuditEntry(
                datetime.now(UTC).isoformat(timespec="milliseconds"), f"pg-{client.process}", token, client.address,
                "PG", database, operation, status, store, None if error is None else type(error).__name__))  # fmt: skip

    def log_failure(self, error: BaseException) -> None:
        telemetry.failures.error("a connection failed", exc_info=error)

    # threads

    def work(self, step: Callable[[], Any], done: Callable[[Any, BaseException | None], None] | None = None) -> None:
        """Do something on a thread, then something with what it gave on the event loop."""
        assert self._threads is not None
        future = self._threads.submit(step)
        if done is not None:
            future.add_done_callback(partial(self._worked, done))

    def _worked(self, done: Callable[[Any, BaseException | None], None], future: Future[Any]) -> None:
        error = future.exception()
        self.loop.call_soon_threadsafe(done, None if error is not None else future.result(), error)

    async def _on_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self.loop.run_in_executor(self._threads, partial(function, *arguments))


