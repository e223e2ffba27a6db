"""Handlers: in order, each with one commit, again after a failure, and given up in the end."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import Any

import pytest
from waiting import wait_for

from ontolake.ontology import (
    Event,
    EventDeadLetter,
    EventLoopLimitError,
    EventSelection,
    HandlerContext,
    HandlerError,
    HeadMismatchError,
    Session,
    UnknownEventError,
    on_event,
)

from .story import HANDLERS, Ordered, Parcel, Shipped, Stock, finish, parcels, session_at, statuses, stock


class Ping(Event):
    n: int = 0


def test_what_a_handler_does_is_one_commit(url: str, engine: str) -> None:
    with session_at(url, engine) as session:
        event = Ordered(item="x", count=3)
        session.commit(event=event)

        @on_event(Ordered)
        def handle(context: HandlerContext[Ordered]) -> None:
            assert (context.event, context.attempt, context.namespace) == (event, 1, None)
            context.ensure([Stock(id="x", count=3), Stock(id="y")])
            context.ensure(Parcel(id="p"))
            context.emit([Shipped(order="1"), Shipped(order="2")])
            context.emit(Shipped(order="3"))
            context.add_commit_meta({"why": "because"}, who="me")
            assert session.query().entities(Stock).count() == 0, "not there yet"

        report = session.run([handle], until_idle=True)
        assert (report.handled, report.failed, report.dead, report.lost) == (1, 0, 0, 0)
        commits = session.list_commits()
        assert [commit.id for commit in commits] == [1]
        assert commits[0].metadata == {
            "event": {"id": event.event_id, "type": "Ordered", "handler": handle.name}, "why": "because", "who": "me",
        }  # fmt: skip
        emitted = session.events.select(EventSelection(event_type="Shipped"))
        assert [one.payload["order"] for one in emitted] == ["1", "2", "3"]
        assert {(one.commit_id, one.depth, one.root_id) for one in emitted} == {(1, 1, event.event_id)}
        assert statuses(session)[event.event_id] == "done"


def test_the_lowest_priority_goes_first_and_events_in_the_order_they_were_queued(either: str) -> None:
    calls: list[tuple[str, int]] = []

    def calling(name: str, priority: int) -> Any:
        def function(context: HandlerContext[Ping]) -> None:
            calls.append((name, context.event.n))

        return on_event(Ping, priority=priority, name=name)(function)

    handlers = [calling("late", 101), calling("usual", 100), calling("usual too", 100), calling("first", -5)]
    with session_at(either) as session:
        session.commit(event=[Ping(n=n) for n in range(3)])
        session.run(handlers, until_idle=True)
        order = ["first", "usual", "usual too", "late"]
        assert calls == [(name, n) for n in range(3) for name in order]
        assert session.events.select(EventSelection())[0].handled == tuple(order)


def test_a_handler_that_is_through_is_not_called_again_when_a_later_one_fails(either: str, engine: str) -> None:
    calls: list[str] = []

    @on_event(Ordered, priority=1)
    def good(context: HandlerContext[Ordered]) -> None:
        calls.append("good")
        context.ensure(Stock(id="good"))

    @on_event(Ordered, priority=2)
    def bad(context: HandlerContext[Ordered]) -> None:
        calls.append(f"bad {context.attempt}")
        context.ensure(Stock(id="bad", count=context.attempt))
        context.emit(Shipped(order="never"))
        if context.attempt < 3:
            raise ValueError("not yet")

    with session_at(either, engine) as session:
        session.commit(event=Ordered(item="x"))
        report = session.run([good, bad], until_idle=True)
        assert calls == ["good", "bad 1", "bad 2", "bad 3"]
        assert (report.handled, report.failed) == (1, 2)
        assert stock(session) == {"good": 0, "bad": 3}
        assert len(session.list_commits()) == 2, "a failed attempt leaves no trace in the data"
        assert session.events.count(EventSelection(event_type="Shipped")) == 1


def test_attempts_wait_longer_each_time(native: str) -> None:
    @on_event(Ping)
    def fail(context: HandlerContext[Ping]) -> None:
        raise ValueError("no")

    with session_at(native, event_backoff=100.0, event_backoff_max=250.0) as session:
        session.commit(event=Ping())
        store = session.events
        waits = []
        for _ in range(4):
            before = time.time()
            session.run([fail], until_idle=True)
            (event,) = store.select(EventSelection())
            assert event.status == "waiting"
            waits.append(round((event.available_at.timestamp() - before) / 50) * 50)
            assert session.run([fail], until_idle=True).iterations == 1, "not due"
            session.repository.db.execute("UPDATE events SET available_at = created_at")  # type: ignore[attr-defined]
        assert waits == [100, 200, 250, 250]
        assert "ValueError: no" in str(store.select(EventSelection())[0].error)


def test_an_event_that_never_works_is_a_dead_letter_that_can_be_tried_again(url: str, engine: str) -> None:
    broken = True

    @on_event(Ordered, priority=50)
    def fine(context: HandlerContext[Ordered]) -> None:
        context.ensure(Parcel(id="fine", times=context.attempt))

    @on_event(Ordered)
    def pay(context: HandlerContext[Ordered]) -> None:
        if broken:
            raise RuntimeError("no money")
        context.ensure(Stock(id="paid"))

    with session_at(url, engine, namespace="till", event_max_attempts=3) as session:
        event = Ordered(item="x")
        session.commit(event=event)
        report = session.run([fine, pay], until_idle=True)
        assert (report.handled, report.failed, report.dead) == (0, 3, 1)
        (letter,) = session.dead_letters()
        assert (letter.failed_event_id, letter.failed_event_type, letter.attempts) == (event.event_id, "Ordered", 3)
        assert letter.payload == {"item": "x", "count": 1}
        assert (letter.handler, letter.namespace) == (pay.name, "till")
        assert "RuntimeError: no money" in letter.error
        assert pay.name in letter.error
        assert session.dead_letters() == [letter]
        assert session.run([fine, pay], until_idle=True).handled == 0

        store = session.events
        with pytest.raises(UnknownEventError, match="no dead event 'other'"):
            store.requeue([event.event_id, "other"])
        assert len(session.dead_letters()) == 1, "all or none"
        broken = False
        assert store.requeue([event.event_id]) == 1
        assert session.run([fine, pay], until_idle=True).handled == 1
        assert session.dead_letters() == []
        assert stock(session) == {"paid": 0}
        assert [one.times for one in session.query().entities(Parcel).collect()] == [1], "the first was through"


def test_handlers_can_be_told_of_dead_letters(either: str) -> None:
    told: list[EventDeadLetter] = []

    @on_event(Ordered)
    def fail(context: HandlerContext[Ordered]) -> None:
        raise RuntimeError("no")

    @on_event(EventDeadLetter)
    def mourn(context: HandlerContext[EventDeadLetter]) -> None:
        told.append(context.event)
        raise RuntimeError("this too")

    with session_at(either, event_max_attempts=1) as session:
        event = Ordered(item="x")
        session.commit(event=event)
        session.run([fail, mourn], until_idle=True)
        assert [letter.failed_event_id for letter in told] == [event.event_id]
        letters = session.dead_letters()
        assert [letter.failed_event_type for letter in letters] == ["Ordered", "EventDeadLetter"], "and no more"
        assert told[0] == letters[0]


def test_errors_name_the_handler_and_the_event(either: str) -> None:
    @on_event(Ping)
    def fail(context: HandlerContext[Ping]) -> None:
        raise KeyError("key")

    with session_at(either) as session:
        event = Ping()
        session.commit(event=event)
        with pytest.raises(HandlerError, match=f"{fail.name} failed at Ping {event.event_id}: KeyError") as caught:
            session.run([fail], until_idle=True, raise_errors=True)
        assert (caught.value.handler, caught.value.event_id) == (fail.name, event.event_id)
        assert isinstance(caught.value.__cause__, KeyError)
        assert statuses(session) == {event.event_id: "ready"}, "and it can be tried again"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "kept"),
    [(ValueError("\ud800 \0 ä"), "\\ud800 \0 ä"), (Unspeakable(), "cannot be shown"), (ValueError("x" * 99_999), "x")],
)
def test_any_error_can_be_kept(either: str, error: Exception, kept: str) -> None:
    @on_event(Ping)
    def fail(context: HandlerContext[Ping]) -> None:
        raise error

    with session_at(either, event_max_attempts=1) as session:
        session.commit(event=Ping())
        assert session.run([fail], until_idle=True).dead == 1
        assert kept in session.dead_letters()[0].error
        assert len(session.dead_letters()[0].error) < 11_000


def test_a_handler_that_ends_the_process_has_made_an_attempt(either: str) -> None:
    @on_event(Ping)
    def leave(context: HandlerContext[Ping]) -> None:
        context.ensure(Stock(id="x"))
        raise SystemExit(3)

    with session_at(either, event_max_attempts=2) as session:
        session.commit(event=Ping())
        for attempt in (1, 2):
            with pytest.raises(SystemExit):
                session.run([leave])
            assert session.events.select(EventSelection())[0].attempts == attempt
        assert session.run([leave], until_idle=True).dead == 1
        assert stock(session) == {}


def test_what_does_not_fit_fails_like_any_error(either: str, engine: str) -> None:
    class Other(Stock):
        pass

    @on_event(Ping)
    def wrong(context: HandlerContext[Ping]) -> None:
        if context.event.n == 0:
            context.ensure(Other(id="x"))
        elif context.event.n == 1:
            context.ensure(Stock(id="a" * 10, count=2**70))
        elif context.event.n == 2:
            context.ensure([Stock(id=str(n)) for n in range(9)])
        elif context.event.n == 3:
            context.ensure(Stock(id="x"))
            context.add_commit_meta(what=object())
        else:
            context.emit(Ping(n=9, event_id="taken"))

    with session_at(either, engine, event_max_attempts=1, max_batch_size=8) as session:
        session.commit(event=[Shipped(order="x", event_id="taken"), *(Ping(n=n) for n in range(5))])
        session.run([wrong], until_idle=True)
        errors = [letter.error for letter in session.dead_letters()]
        assert len(errors) == 5
        for expected, error in zip(("not one of the types", "64 bits", "max_batch_size", "object", "taken"), errors,
                                   strict=True):
            assert expected in error
        assert session.list_commits() == []


def test_a_payload_that_does_not_fit_any_more_is_a_failure(native: str) -> None:
    with session_at(native, event_max_attempts=2) as session:
        session.commit(event=Ordered(item="x"))
        session.repository.db.execute("UPDATE events SET payload_json = '{\"what\":1}'")  # type: ignore[attr-defined]
        report = session.run(HANDLERS, until_idle=True)
        assert (report.failed, report.dead) == (2, 1)
        assert "Ordered" in session.dead_letters()[0].error


def test_commit_is_the_last_thing_that_a_handler_does(either: str, engine: str) -> None:
    seen: list[Any] = []

    @on_event(Ordered)
    def handle(context: HandlerContext[Ordered]) -> None:
        context.ensure(Stock(id="x", count=1))
        seen.append(context.commit())
        with pytest.raises(HandlerError, match="after commit"):
            context.ensure(Stock(id="y"))
        raise RuntimeError("too late to matter")

    with session_at(either, engine) as session:
        session.commit(event=Ordered(item="x"))
        report = session.run([handle], until_idle=True)
        assert (report.handled, report.failed, report.dead) == (1, 1, 0)
        assert seen == [1]
        assert stock(session) == {"x": 1}
        assert set(statuses(session).values()) == {"done"}


@pytest.mark.parametrize("later", ["no handler", "a handler", "a handler that fails", "a handler that fails late"])
def test_an_error_after_the_commit_is_counted_and_raised_and_keeps_no_other_handler_from_its_work(
    either: str, engine: str, later: str
) -> None:  # fmt: skip
    @on_event(Ordered, priority=1)
    def first(context: HandlerContext[Ordered]) -> None:
        context.ensure(Stock(id="first", count=1))
        context.commit()
        raise KeyError("the mail was not sent")

    @on_event(Ordered, priority=2)
    def second(context: HandlerContext[Ordered]) -> None:
        if later == "a handler that fails":
            raise ValueError("at once")
        context.ensure(Stock(id="second", count=2))
        if later == "a handler that fails late":
            context.commit()
            raise ValueError("late")

    handlers = [first] if later == "no handler" else [first, second]
    with session_at(either, engine, event_max_attempts=5, event_backoff=60.0) as session:
        event = Ordered(item="x")
        session.commit(event=event)
        with pytest.raises(HandlerError) as caught:
            session.run(handlers, until_idle=True, raise_errors=True)
        told = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
        assert f"{first.name} failed after its commit at Ordered {event.event_id}: KeyError" in told
        assert caught.value.event_id == event.event_id
        if later == "a handler that fails":
            assert (caught.value.handler, type(caught.value.__cause__)) == (second.name, ValueError)
            assert set(statuses(session).values()) == {"waiting"}
            assert stock(session) == {"first": 1}
        else:
            assert (caught.value.handler, type(caught.value.__cause__)) == (first.name, KeyError)
            assert set(statuses(session).values()) == {"done"}
            assert stock(session) == {"first": 1} | ({} if later == "no handler" else {"second": 2})
        if later == "a handler that fails late":
            assert f"{second.name} failed after its commit" in told
        session.commit(event=Ordered(item="y"))
        report = session.run(handlers, until_idle=True)
        fails = {"no handler": 1, "a handler": 1}.get(later, 2)
        assert (report.handled, report.failed) == (int(later != "a handler that fails"), fails)


def test_a_refused_commit_cannot_be_overlooked(either: str) -> None:
    @on_event(Ordered)
    def handle(context: HandlerContext[Ordered]) -> None:
        context.ensure([Stock(id=str(n)) for n in range(9)])
        with contextlib.suppress(Exception):
            context.commit()

    with session_at(either, event_max_attempts=1, max_batch_size=8) as session:
        session.commit(event=Ordered(item="x"))
        assert session.run([handle], until_idle=True).dead == 1
        assert "max_batch_size" in session.dead_letters()[0].error


def test_a_handler_is_called_again_if_what_it_read_has_changed(url: str, engine: str) -> None:
    with session_at(url, engine) as session, session_at(url) as other:
        counts: list[int] = []

        @on_event(Ordered)
        def add(context: HandlerContext[Ordered]) -> None:
            found = context.query().entities(Stock).where(Stock.id == "x").first()
            counts.append(found.count if found else 0)
            if len(counts) <= 3:  # somebody else writes just now; the fourth time nobody can
                other.ensure(Stock(id="x", count=counts[-1] + 10))
                other.commit()
            context.ensure(Stock(id="x", count=counts[-1] + 1))

        session.commit(event=Ordered(item="x"))
        report = session.run([add], until_idle=True)
        assert (report.handled, report.failed) == (1, 0)
        assert counts == [0, 10, 20, 30]
        assert stock(session) == {"x": 31}


def test_a_commit_of_a_session_knows_nothing_of_expected_heads(either: str) -> None:
    from ontolake.ontology.commit import commit_difference

    with session_at(either) as session:
        session.ensure(Stock(id="x"))
        session.commit()
        declared = session.declarations()
        declared.ensure(Stock(id="y"))
        with pytest.raises(HeadMismatchError, match="commit 1 came after commit 0"):
            commit_difference(session.repository, "me", session.config, declared.intents, {}, expected_head=0)


def test_handlers_delete_update_and_complete_as_sessions_do(native: str) -> None:
    def handled(does: Any) -> Any:
        with session_at(native, "v3") as session:
            before = session.repository.head()
            session.commit(event=Ordered(item="x", count=1))
            report = session.run([on_event(Ordered)(does)], until_idle=True)
            assert (report.handled, report.failed) == (1, 0)
            assert session.pending == 0
            return session.repository.head() - before, stock(session)

    with session_at(native, "v3") as session:
        session.ensure([Stock(id=key, count=number) for number, key in enumerate("abcd")])
        session.commit()
    assert handled(lambda context: context.delete(Stock, ["a", "none"])) == (1, {"b": 1, "c": 2, "d": 3})
    assert handled(lambda context: context.update(Stock, "b", count=7)) == (1, {"b": 7, "c": 2, "d": 3})
    assert handled(lambda context: context.query().entities(Stock).where(Stock.count == 7).delete()) == (
        1, {"c": 2, "d": 3})
    assert handled(lambda context: context.delete(context.get(Stock, "c"))) == (1, {"d": 3})
    assert handled(lambda context: context.ensure_all(Stock, [Stock(id="e", count=5)])) == (1, {"e": 5})
    assert handled(lambda context: context.ensure_all(Stock, [])) == (1, {})
    assert handled(lambda context: context.delete(Stock, "e")) == (0, {})


class Loop(Event):
    n: int


@on_event(Loop)
def go_round(context: HandlerContext[Loop]) -> None:
    context.ensure(Stock(id="rounds", count=context.event.n))
    context.emit(Loop(n=context.event.n + 1))


@on_event(Loop)
def multiply(context: HandlerContext[Loop]) -> None:
    context.emit(Loop(n=context.event.n + 1) for _ in range(3))


def test_events_that_cause_events_for_ever_are_stopped(either: str, engine: str) -> None:
    with session_at(either, engine, max_event_depth=5) as session:
        session.commit(event=Loop(n=0))
        with pytest.raises(EventLoopLimitError, match="max_event_depth is 5"):
            session.run([go_round])
        assert stock(session) == {"rounds": 4}
        (letter,) = session.dead_letters()
        assert letter.payload == {"n": 5}
        assert session.run([go_round], until_idle=True).handled == 0, "the loop is cut"


def test_events_that_cause_too_many_events_are_stopped(either: str) -> None:
    with session_at(either, max_chain_events=20) as session:
        session.commit(event=Loop(n=0))
        with pytest.raises(EventLoopLimitError, match="max_chain_events = 20"):
            session.run([multiply])
        assert session.events.count(EventSelection()) <= 21
        session.commit(event=Loop(n=0))
        with pytest.raises(EventLoopLimitError):
            session.run([multiply])


def test_a_run_ends_when_it_is_told_to(either: str) -> None:
    @on_event(Ping)
    def stop(context: HandlerContext[Ping]) -> None:
        if context.event.n == 1:
            session.stop()

    with session_at(either) as session:
        session.commit(event=[Ping(n=n) for n in range(4)])
        assert session.run([stop]).handled == 2, "the event at hand is finished"
        assert session.run([stop], max_iterations=1).handled == 1
        runner = threading.Thread(target=lambda: session.run([stop]))
        runner.start()
        wait_for(lambda: session.events.count(EventSelection(status="ready")) == 0)
        session.stop()
        runner.join(120)
        assert not runner.is_alive()
        assert session.events.runners() == [], "and is no longer listed"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_after_the_event_at_hand(either: str, number: signal.Signals) -> None:
    before = signal.getsignal(number)

    @on_event(Ping)
    def interrupted(context: HandlerContext[Ping]) -> None:
        os.kill(os.getpid(), number)
        context.ensure(Stock(id="done"))

    with session_at(either) as session:
        session.commit(event=[Ping(), Ping()])
        assert session.run([interrupted]).handled == 1
        assert stock(session) == {"done": 0}
        assert sorted(statuses(session).values()) == ["done", "ready"]
    assert signal.getsignal(number) == before


def test_a_second_interrupt_gives_the_event_back(either: str) -> None:
    @on_event(Ping)
    def interrupted(context: HandlerContext[Ping]) -> None:
        context.ensure(Stock(id="never"))
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        wait_for(lambda: False)

    with session_at(either) as session:
        session.commit(event=Ping())
        with pytest.raises(KeyboardInterrupt):
            session.run([interrupted])
        (event,) = session.events.select(EventSelection())
        assert (event.status, event.attempts) == ("ready", 0)
        assert stock(session) == {}


def test_runners_are_listed_while_they_run(either: str) -> None:
    with session_at(either, namespace="n") as session:
        seen: list[Any] = []

        @on_event(Ping)
        def look(context: HandlerContext[Ping]) -> None:
            seen.extend(session.events.runners())

        session.commit(event=Ping())
        session.run([look], until_idle=True)
        assert [(one.session_id, one.namespace, one.metadata["pid"]) for one in seen] == [
            (session.session_id, "n", os.getpid())]
        assert seen[0].metadata["handlers"] == [look.name]


def test_a_session_keeps_what_it_declared_itself(either: str) -> None:
    with session_at(either) as session:
        session.commit(event=Ordered(item="x"))
        session.ensure(Stock(id="mine"))
        finish(session)
        assert stock(session) == {"x": 1}
        assert session.pending == 1
        session.commit()
        assert stock(session) == {"x": 1, "mine": 0}


def test_a_database_in_memory_has_events_too() -> None:
    with session_at(":memory:", event_lease=0.05) as session:

        @on_event(Ping)
        def slow(context: HandlerContext[Ping]) -> None:
            lease_over = time.monotonic() + 0.05
            wait_for(lambda: time.monotonic() > lease_over)
            context.ensure(Stock(id="x"))

        session.commit(event=Ping())
        assert session.run([slow], until_idle=True).handled == 1, "nobody else can claim there"
        assert stock(session) == {"x": 0}


def test_threads_share_a_queue(url: str, engine: str) -> None:
    with session_at(url, engine) as session:
        events = [Ordered(item="x", count=n) for n in range(1, 11)]
        session.commit(event=events)
        reports = []

        def run() -> None:
            with session_at(url) as own:
                finish(own)
                reports.append(threading.current_thread())

        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(200)
        assert len(reports) == 3
        assert stock(session) == {"x": 55}
        assert parcels(session) == {event.event_id: 1 for event in events}
        assert session.dead_letters() == []


def test_an_event_is_due_for_one_runner_at_a_time(url: str, engine: str) -> None:
    one: Session
    with session_at(url, engine) as one:
        store = one.repository.events
        one.commit(event=[Ordered(item="x"), Ordered(item="y")])
        first = store.claim("", ["Ordered", "Shipped"], "a", 30)
        second = store.claim("", ["Ordered"], "b", 30)
        assert first is not None
        assert second is not None
        assert first.event.id != second.event.id
        assert store.claim("", ["Ordered"], "c", 30) is None
        store.release(first)
        third = store.claim("", ["Ordered"], "c", 30)
        assert third is not None
        assert (third.event.id, third.attempt) == (first.event.id, 2)
        store.release(first)  # no longer theirs to give back
        assert store.get(first.event.id).claimed_by == "c"


