"""The sessions of an open database: one that is always there, and further ones for threads that meet it busy.

A statement takes the first session that is free. A transaction that BEGIN opens keeps one of its own until it ends, and
belongs to the thread that began it, or to a connection, which may go from thread to thread. Statements that write take
turns (`writer_queue`); a thread whose turn comes while a batch is open writes on the session of the batch, and all of
them are committed together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from ontolake import faults
from ontolake.sql.errors import TransactionError
from ontolake.sql.writer_queue import MOST, CommitBatch

if TYPE_CHECKING:
    from ontolake.sql.transactions import SqlSession


class HeldSession:
    """The session that a connection uses now."""

    session: SqlSession | None = None
    binding: _Binding | None = None


class ThreadHeldSession(threading.local, HeldSession):
    """The session that a thread uses now."""


class SessionPool:
    """The sessions of a database on one branch, for whoever needs one."""

    def __init__(self, first: SqlSession, opened: Callable[[], SqlSession] | None) -> None:
        """`opened` gives further sessions; None where there can be one alone, as in `:memory:`."""
        self.first = first
        self.first.group = self
        self._opened = opened
        self.is_alone = opened is None
        """Whether there is one session for all threads, so that a transaction keeps the others waiting."""
        self._writing = ThreadHeldSession()
        self._mutex = threading.Lock()
        self._idle: list[SqlSession] = []
        self._others: list[SqlSession] = []
        self.batch: CommitBatch | None = None
        self.closed = False

    def take(self) -> SqlSession:
        """A session that nobody uses, locked. `give_back` returns it."""
        first = self.first
        if self._opened is None:
            first.lock.acquire()
            return first
        if first.lock.acquire(blocking=False):
            if first.batch is None:
                return first
            first.lock.release()
        return self.another()

    def another(self) -> SqlSession:
        """A session besides the first one, locked."""
        assert self._opened is not None
        with self._mutex:
            session = self._idle.pop() if self._idle else None
        if session is None:
            self.first.check_open()
            session = self._opened()
            session.group = self
            with self._mutex:
                self._others.append(session)
                if self.closed:
                    session.close()
        session.lock.acquire()
        return session

    def give_back(self, session: SqlSession) -> None:
        """Unlock a session, for others to use."""
        if session is self.first:
            session.lock.release()
            return
        try:
            if not session.closed:
                session.forget_writes()
        finally:
            session.lock.release()
            with self._mutex:
                self._idle.append(session)

    def turn(self, prefer: SqlSession) -> Turn:
        """The turn to write what a transaction has done, in a `with` block; on its session, if no batch is open."""
        return Turn(self, self._writing, prefer)

    def give_up_turn(self) -> None:
        """End a turn that has come to a thread that does not want it any more, and the batch that is open."""
        if self.batch is not None:
            self.batch.session.lock.acquire()
        Turn(self, self._writing, None).end(self.batch)

    def next_id(self, counter: str) -> int:
        """A number that no other object of a kind ever has, even if the transaction that asks is rolled back."""
        session = self.another()
        try:
            with session.writing(""):
                number = session.next_id(counter)
                faults.reach("sql: id taken")
                session.keep()
        finally:
            self.give_back(session)
        return number

    def close(self) -> None:
        """Close all sessions; transactions that are open are rolled back."""
        self.closed = True
        self.first.close()
        with self._mutex:
            others = list(self._others)
        for session in others:
            session.close()


class Sessions:
    """The sessions of a database as those see them that share `held`: each thread, or one connection."""

    def __init__(self, pool: SessionPool, held: HeldSession, *, owns_pool: bool = True) -> None:
        self.pool = pool
        self.first = pool.first
        self.held = held
        self.is_alone = pool.is_alone
        self._owns_pool = owns_pool

    @property
    def current(self) -> SqlSession:
        """The session that statements run on."""
        return self.held.session or self.first

    def connected(self, *, owns_pool: bool = False) -> Sessions:
        """The same sessions for a connection of its own."""
        return Sessions(self.pool, HeldSession(), owns_pool=owns_pool)

    def leased(self) -> SessionLease:
        """A session for one statement, in a `with` block."""
        return SessionLease(self.pool, self.held)

    def turn(self) -> Turn:
        """The turn to write, for one transaction, in a `with` block. When it ends, that is durable."""
        return Turn(self.pool, self.held, None)

    def begin(self, *, reads: bool = False) -> None:
        """Open a transaction. Raises `TransactionError` if there is one."""
        if self.is_alone:
            self.first.begin(reads=reads)
            return
        if self.current.transaction is not None:
            raise TransactionError("there is a transaction in progress", sqlstate="25001", hint="COMMIT it first")
        session = self.pool.another()
        try:
            session.begin(reads=reads, private=True)
        except BaseException:
            self.pool.give_back(session)
            raise
        session.lock.release()
        self.held.session, self.held.binding = session, _Binding(self.pool, session)

    def commit(self) -> int | None:
        """End the transaction and keep what it did. Returns its version; see `SqlSession.commit`."""
        return self._ended(self.current.commit)

    def rollback(self) -> None:
        """End the transaction and forget what it did."""
        self._ended(self.current.rollback)

    def _ended(self, end: Callable[[], int | None]) -> int | None:
        binding = self.held.binding
        try:
            return end()
        finally:
            if binding is not None:
                self.held.session = self.held.binding = None
                binding.end()

    def close(self) -> None:
        """Roll back what is open, and close the sessions unless others have them."""
        if self._owns_pool:
            self.pool.close()
        elif not self.current.closed and self.held.binding is not None:
            self.rollback()


class _Binding:
    """Gives the session of a transaction back when that ends, or its thread does."""

    def __init__(self, sessions: SessionPool, session: SqlSession) -> None:
        self._sessions = sessions
        self._session: SqlSession | None = session

    def end(self) -> None:
        session, self._session = self._session, None
        if session is None or session.batch is not None:  # it was interrupted while others go on writing there
            return
        session.lock.acquire()
        self._sessions.give_back(session)

    def __del__(self) -> None:
        session = self._session
        if session is not None and not session.closed and session.transaction is not None:
            session.rollback()
            self.end()


class SessionLease:
    """A session for one statement. In a transaction, it is that of the transaction."""

    __slots__ = ("_held", "_session", "_sessions")

    def __init__(self, sessions: SessionPool, held: HeldSession) -> None:
        self._sessions, self._held = sessions, held

    def __enter__(self) -> SqlSession:
        held = self._held
        if held.session is not None:
            self._session: SqlSession | None = None
            return held.session
        session = self._session = held.session = self._sessions.take()
        return session

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            self._held.session = None
            self._sessions.give_back(self._session)


class Turn:
    """The turn to write. In a transaction there is none to wait for: it writes to a level of its own."""

    __slots__ = ("_before", "_held", "_prefer", "_session", "_sessions")

    def __init__(self, sessions: SessionPool, held: HeldSession, prefer: SqlSession | None) -> None:
        self._sessions, self._held, self._prefer = sessions, held, prefer

    def __enter__(self) -> SqlSession:
        sessions, held = self._sessions, self._held
        before = self._before = held.session
        if (before is not None and self._prefer is None) or sessions.is_alone:
            self._session: SqlSession | None = None
            return before or sessions.first
        first = sessions.first
        first.queue.enter(sessions)
        batch = sessions.batch
        try:
            if batch is not None:
                session = batch.session
                session.lock.acquire()
            else:
                session = self._prefer or sessions.take()
                if self._prefer is not None:
                    session.lock.acquire()
                sessions.batch = session.batch = CommitBatch(session, is_lent=self._prefer is not None)
        except BaseException:
            if batch is not None:
                batch.session.lock.acquire()
            self.end(batch)
            raise
        session.has_turn = True
        self._session = held.session = session
        return session

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session = self._session
        if session is None:
            return
        batch = session.batch
        assert batch is not None
        self._held.session = self._before
        session.has_turn = False
        sessions = self._sessions
        batch.turns += 1
        if batch.count and batch.turns < MOST and not batch.is_full and session.queue.pass_on(sessions):
            session.lock.release()
        else:
            self.end(batch)
            if batch.error is None or error is not None:
                return
        if error is None:
            batch.wait()
        else:  # what was in the way may be in the batch: whoever tries again is to see it
            batch.done.wait()

    def end(self, batch: CommitBatch | None) -> None:
        """End the turn, and the batch with it."""
        sessions = self._sessions
        failure: BaseException | None = None
        try:
            if batch is not None and batch.count:
                batch.session.publish()
        except BaseException as error:
            failure = error
        finally:
            if batch is not None:
                session = batch.session
                sessions.batch = session.batch = None
                batch.finish(failure)
                if batch.is_lent:
                    session.lock.release()  # the thread whose transaction began the batch gives it back
                else:
                    sessions.give_back(session)
            sessions.first.queue.leave()
