"""`Runner`: claims events one by one, calls their handlers, and sees to it that each counts once."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

from ontolake import faults
from ontolake.errors import Invalid, OntolakeError
from ontolake.model.errors import ModelError, SchemaValidationError
from ontolake.ontology.errors import (
    EventLoopLimitError,
    HandlerError,
    HeadMismatchError,
    LeaseExpiredError,
    LockContentionError,
    SchemaOutdatedError,
    StorageBackendError,
)
from ontolake.ontology.events.context import HandlerContext
from ontolake.ontology.events.event import EventDeadLetter, queued
from ontolake.ontology.events.handlers import Handler, by_type
from ontolake.ontology.events.letters import dead_letter
from ontolake.ontology.events.records import Claim, Handled, QueueChange
from ontolake.ontology.events.schedule import Schedule
from ontolake.ontology.renewal import Renewal

if TYPE_CHECKING:
    from ontolake.ontology.session import Session

_log = logging.getLogger("ontolake.ontology.events")
_LONGEST = 10_000
"""How much of an error's text is kept."""
_FREE_TRIES = 3
"""How often a handler is called again because others committed, before it gets the store for itself."""


@dataclass
class RunReport:
    """What a run did: events handled to their end, calls of handlers that failed, dead letters, claims lost to others,
    ticks of schedules that it fired, and how often it looked at the queue."""

    handled: int = 0
    failed: int = 0
    dead: int = 0
    lost: int = 0
    fired: int = 0
    iterations: int = 0


class Runner:
    """One run of a session's handlers."""

    def __init__(
        self, session: Session, handlers: Iterable[Any], schedules: Iterable[Schedule], stop: threading.Event,
        raise_errors: bool,
    ) -> None:  # fmt: skip
        self._session = session
        self._config = session.config
        self._store = session.repository.events
        self._namespace = session.namespace or ""
        self._handlers = by_type(handlers)
        self._types = tuple(self._handlers)
        self._schedules = _checked(schedules)
        self._due: dict[str, float] = {}
        self._stop = stop
        self._raise = raise_errors
        self._claim: Claim | None = None
        self._keeper = self._store.keeper()
        self._about = {"host": socket.gethostname(), "pid": os.getpid(), "handlers": self._names()}
        self.report = RunReport()

    def run(self, max_iterations: int | None, until_idle: bool) -> RunReport:
        """Handle events until told to stop, or for so many rounds, or until nothing is due."""
        try:
            self._beat()
            renewal = Renewal("ontolake-events", self._config.event_lease / 3, self._beat)
            try:
                with stopped_by_signals(self._stop):
                    self._rounds(max_iterations, until_idle)
            finally:
                renewal.stop()
                with contextlib.suppress(OntolakeError):
                    self._keeper.leave(self._session.session_id)
        finally:
            self._keeper.close()
        return self.report

    def _names(self) -> list[str]:
        return sorted(handler.name for same in self._handlers.values() for handler in same)

    def _beat(self) -> bool:
        claim = self._claim
        try:
            if claim is not None and not self._keeper.renew(claim, self._config.event_lease):
                _log.debug("the claim on event %s is gone", claim.event.id)
            self._keeper.heartbeat(self._session.session_id, self._namespace, self._about)
        except LockContentionError as error:
            _log.debug("not renewed: %s", error)
        return True

    def _rounds(self, max_iterations: int | None, until_idle: bool) -> None:
        report = self.report
        while not self._stop.is_set() and (max_iterations is None or report.iterations < max_iterations):
            report.iterations += 1
            try:
                self._fire()
                claim = self._next()
            except LockContentionError as error:
                _log.debug("the store is busy: %s", error)
                self._stop.wait(self._config.event_poll)
                continue
            if claim is not None:
                try:
                    self._handle(claim)
                finally:
                    self._claim = None
            elif until_idle:
                return
            elif report.iterations != max_iterations:
                self._stop.wait(self._config.event_poll)

    def _next(self) -> Claim | None:
        if not self._types:
            return None
        claim = self._store.claim(self._namespace, self._types, self._session.session_id, self._config.event_lease)
        self._claim = claim
        return claim

    # schedules
    def _fire(self) -> None:
        """Queue the events of ticks that have come since they were last looked at."""
        for schedule in self._schedules:
            if time.time() < self._due.get(schedule.schedule_id, 0.0):
                continue
            now = datetime.now(UTC)
            seen = self._store.last_tick(self._namespace, schedule.schedule_id)
            tick = now if seen is None else schedule.missed_tick(seen, now)
            if tick is not None:
                event = None if seen is None else schedule.event_at(tick, self._namespace)
                if not self._store.advance(self._namespace, schedule.schedule_id, seen, tick, event):
                    continue  # another process was first: look again in the next round
                faults.reach("ontology: schedule advanced")
                self.report.fired += event is not None
            self._due[schedule.schedule_id] = schedule.next_tick(now).timestamp()

    # handling
    def _handle(self, claim: Claim) -> None:
        handlers = self._handlers[claim.event.event_type]
        limit = self._config.event_max_attempts
        if claim.attempt > limit:
            self._bury(claim, None, claim.attempt - 1,
                       f"{limit} attempts were begun, and none of them ended: the process was stopped each time")
            return
        try:
            event = handlers[0].event_type.restored(claim.event)
        except SchemaValidationError as error:
            self._failed(claim, None, f"the event does not fit its class: {error}")
            if self._raise:
                raise HandlerError(f"{_told(claim)} does not fit its class", event_id=claim.event.id) from error
            return
        late: list[HandlerError] = []
        try:
            left = [handler for handler in handlers if handler.name not in claim.handled]
            if not left:
                self._settle(claim)
            for handler in left:
                late += self._call(handler, event, claim, handler is left[-1])
                faults.reach("ontology: handler done")
        except LeaseExpiredError as error:
            self.report.lost += 1
            _log.warning("%s", error)
        except LockContentionError as error:
            _log.warning("event %s waits, as the store is busy: %s", claim.event.id, error)
            self._give_back(claim, delay=self._config.event_backoff)
        except EventLoopLimitError as error:
            self._bury(claim, None, claim.attempt, str(error))
            raise
        except HandlerError as error:
            self._failed(claim, error.handler, str(error))
            if self._raise:
                for earlier in late:
                    error.add_note(str(earlier))
                raise
        except BaseException as error:
            # That storage failed, or somebody interrupted us, is no fault of the event; ending the process is.
            self._give_back(claim, counted=not isinstance(error, Exception | KeyboardInterrupt))
            raise
        else:
            self.report.handled += 1
        if late and self._raise:
            for other in late[1:]:
                late[0].add_note(str(other))
            raise late[0]

    def _call(self, handler: Handler[Any], event: Any, claim: Claim, last: bool) -> list[HandlerError]:
        """Call a handler and commit what it did, again if others committed what it might have read.

        Returns what it raised after its commit, if it did.
        """
        for _ in range(_FREE_TRIES):
            try:
                return self._once(handler, event, claim, last)
            except HeadMismatchError as error:
                _log.debug("the handler %s is called again: %s", handler.name, error)
        with self._session.exclusive():
            return self._once(handler, event, claim, last)

    def _once(self, handler: Handler[Any], event: Any, claim: Claim, last: bool) -> list[HandlerError]:
        context: HandlerContext[Any] = HandlerContext(self._session, event, claim, handler.name, last)
        try:
            handler(context)
        except Exception as error:
            if context.committed:
                return [self._failed_late(error, handler, claim)]
            if context.refused is None:
                _raise_failure(error, handler, claim)
        if not context.committed:
            if context.refused is None:
                with contextlib.suppress(Exception):  # it is in `refused`
                    context.commit()
            if context.refused is not None:
                _raise_refusal(context.refused, handler, claim)
        return []

    def _failed_late(self, error: Exception, handler: Handler[Any], claim: Claim) -> HandlerError:
        """Count what a handler raised after its commit. The commit stays, so the handler is not called again."""
        self.report.failed += 1
        found = HandlerError(
            f"the handler {handler.name} failed after its commit at {_told(claim)}: {type(error).__name__}: "
            f"{_text(error)}", handler=handler.name, event_id=claim.event.id,
            hint="what it committed stays, and it is not called again for this event: do the rest by hand")
        found.__cause__ = error
        _log.warning("%s", found)
        return found

    def _settle(self, claim: Claim) -> None:
        """The event is done: no handler is left that is not through with it."""
        with self._session.repository.transaction(self._session.session_id) as transaction:
            transaction.finish_queue(QueueChange(handled=Handled(claim, None, True)))

    def _give_back(self, claim: Claim, delay: float = 0.0, counted: bool = False) -> None:
        with contextlib.suppress(OntolakeError):  # then it runs out by itself
            self._store.release(claim, delay=delay, counted=counted)

    def _failed(self, claim: Claim, handler: str | None, error: str) -> None:
        """Try again later, or give the event up."""
        self.report.failed += 1
        _log.warning("attempt %d to handle %s failed: %s", claim.attempt, _told(claim), error)
        if claim.attempt >= self._config.event_max_attempts:
            self._bury(claim, handler, claim.attempt, error)
            return
        config = self._config
        delay = min(config.event_backoff * 2 ** (claim.attempt - 1), config.event_backoff_max)
        with _claims_may_be_lost(self.report):
            self._store.fail(claim, error=error, delay=delay)

    def _bury(self, claim: Claim, handler: str | None, attempts: int, error: str) -> None:
        _log.error("the event %s is given up: %s", _told(claim), error)
        letter = dead_letter(claim.event, handler, attempts, error, datetime.now(UTC))
        told = []
        name = EventDeadLetter.type_name()
        if name in self._handlers and claim.event.event_type != name:
            told.append(queued(letter, self._namespace, root_id=claim.event.root_id, depth=claim.event.depth + 1))
        with _claims_may_be_lost(self.report):
            self._store.bury(claim, letter, told)
            self.report.dead += 1


def _raise_failure(error: Exception, handler: Handler[Any], claim: Claim) -> NoReturn:
    """A handler raised. But that this process runs old code is no fault of the event."""
    if isinstance(error, SchemaOutdatedError):
        raise error
    raise HandlerError(f"the handler {handler.name} failed at {_told(claim)}: {type(error).__name__}: {_text(error)}",
                       handler=handler.name, event_id=claim.event.id) from error


def _raise_refusal(refused: Exception, handler: Handler[Any], claim: Claim) -> NoReturn:
    """What `commit` or `emit` refused: it is the handler's fault if what it declared does not fit."""
    ours = HeadMismatchError | LeaseExpiredError | LockContentionError | EventLoopLimitError | StorageBackendError
    if isinstance(refused, ModelError | ValueError | TypeError) and not isinstance(refused, ours):
        _raise_failure(refused, handler, claim)
    raise refused


def _text(error: Exception) -> str:
    """What an error says, in a form that can be kept, whatever it is."""
    try:
        text = str(error)
    except Exception as worse:
        text = f"(it cannot be shown: {type(worse).__name__})"
    return text[:_LONGEST].encode("utf-8", "backslashreplace").decode()


def _told(claim: Claim) -> str:
    return f"{claim.event.event_type} {claim.event.id}"


@contextlib.contextmanager
def _claims_may_be_lost(report: RunReport) -> Iterator[None]:
    """A claim that is somebody else's by now needs nothing from us."""
    try:
        yield
    except LeaseExpiredError as error:
        report.lost += 1
        _log.warning("%s", error)


def _checked(schedules: Iterable[Any]) -> Sequence[Schedule]:
    found: dict[str, Schedule] = {}
    for schedule in schedules:
        if not isinstance(schedule, Schedule):
            raise Invalid(f"{schedule!r} is not a schedule", hint="write Schedule(event, '0 4 * * *')")
        if schedule.schedule_id in found:
            raise Invalid(f"two schedules are called {schedule.schedule_id}", hint="give one of them a name=")
        found[schedule.schedule_id] = schedule
    return tuple(found.values())


@contextlib.contextmanager
def stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM stop the loop after the event at hand; a second Ctrl-C interrupts at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, frame: object) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    try:
        for number in before:
            signal.signal(number, ask)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
