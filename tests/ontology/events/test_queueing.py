"""An event is queued if and only if its commit is there."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from ontolake import faults
from ontolake.errors import Invalid
from ontolake.model import Entity, Field, SchemaValidationError
from ontolake.ontology import (
    EventSelection,
    HandlerContext,
    SchemaOutdatedError,
    Session,
    StorageBackendError,
    UnknownEventError,
    on_event,
)

from .story import HANDLERS, Ordered, Stock, finish, opened, parcels, session_at, statuses, stock


def queue(session: Session, **selection: Any) -> list[Any]:
    return [event.payload["item"] for event in session.events.select(EventSelection(**selection))]


def test_events_are_queued_with_their_commit(url: str, engine: str) -> None:
    with session_at(url, engine) as session:
        session.ensure(Stock(id="a"))
        first = Ordered(item="one")
        assert session.commit(event=first) == 1
        assert session.commit(event=[Ordered(item="two"), Ordered(item="three")]) is None, "nothing differed"
        session.ensure(Stock(id="a"))
        assert session.commit(event=iter([Ordered(item="four")])) is None
        assert session.commit(event=[]) is None
        assert queue(session) == ["one", "two", "three", "four"]
        assert [commit.id for commit in session.list_commits()] == [1]
        stored = session.events.get(first.event_id)
        assert (stored.commit_id, stored.status, stored.depth, stored.root_id) == (1, "ready", 0, first.event_id)
        assert stored.created_at == first.created_at
        with pytest.raises(UnknownEventError, match="nothing"):
            session.events.get("nothing")


def test_a_commit_that_fails_queues_nothing(native: str, engine: str) -> None:
    with session_at(native, engine) as session:
        session.ensure(Stock(id="a"))

        def fail() -> None:
            raise ZeroDivisionError

        seen = faults.At(99, fail)
        with faults.arm(seen):
            session.commit(event=Ordered(item="x"))
        for step in range(len(seen.seen) - 1):  # at the last step it is durable
            session.ensure(Stock(id="a", count=step + 1))
            with faults.arm(faults.At(step, fail)), pytest.raises(ZeroDivisionError):
                session.commit(event=Ordered(item="lost"))
            assert session.pending == 1
        assert queue(session) == ["x"]
        assert session.repository.head() == 1


def test_an_id_is_queued_once(either: str, engine: str) -> None:
    with session_at(either, engine) as session:
        event = Ordered(item="x", event_id="mine")
        session.commit(event=[event, event])
        session.commit(event=event)
        assert queue(session) == ["x"]
        session.ensure(Stock(id="a"))
        with pytest.raises(Invalid, match="another event is queued under the id 'mine'"):
            session.commit(event=Ordered(item="other", event_id="mine"))
        assert session.repository.head() == 0, "nothing was written"
        finish(session)
        session.commit(event=event)
        assert statuses(session)["mine"] == "done", "and handled once"


def test_namespaces_do_not_see_each_other(either: str, engine: str) -> None:
    with session_at(either, engine) as plain, session_at(either, namespace="shop") as shop:
        plain.commit(event=Ordered(item="plain"))
        shop.commit(event=Ordered(item="shop"))
        assert shop.run(HANDLERS, until_idle=True).handled == 2
        assert stock(plain) == {"shop": 1}, "rows are for all"
        assert queue(plain, namespace="", status="ready") == ["plain"]
        assert plain.run(HANDLERS, until_idle=True).handled == 2
        assert stock(plain) == {"shop": 1, "plain": 1}


class Wider(Entity):
    """`Stock` as it is in the next version."""

    id: Field[str] = Field(primary_key=True)
    count: Field[int] = Field(default=0)
    place: Field[str | None] = Field(default=None)


Wider.__name__ = "Stock"


@on_event(Ordered)
def count_at_a_place(context: HandlerContext[Ordered]) -> None:
    found = context.query().entities(Wider).where(Wider.id == context.event.item).first()
    assert found is not None
    context.ensure(Wider(id=found.id, count=found.count + context.event.count, place="here"))


def test_events_survive_migrations_and_reopening(url: str, engine: str) -> None:
    old = opened(url, engine)
    old.ensure(Stock(id="x", count=1))
    old.commit(event=[Ordered(item="x"), Ordered(item="x", count=2)])
    migrating = Session(url, entity_types=[Wider])
    migrating.migrate(dry_run=False, force=True)
    migrating.close()

    with pytest.raises(SchemaOutdatedError):
        old.run(HANDLERS)
    assert set(statuses(old).values()) == {"ready"}, "a runner with old code stops, and no event suffers"
    assert {event.attempts for event in old.repository.events.select(EventSelection())} == {0}

    session = Session(url, entity_types=[Wider])
    assert session.run([count_at_a_place], until_idle=True).handled == 2
    assert [(one.count, one.place) for one in session.query().entities(Wider).collect()] == [(4, "here")]
    session.close()
    old.close()


@pytest.mark.parametrize("left", ["nothing", "an empty queue of another layout"])
def test_a_store_without_a_queue_gets_one_when_it_is_needed(native: str, engine: str, left: str) -> None:
    opened(native, engine).close()
    with sqlite3.connect(native) as db:
        for table in ("events", "event_claims", "event_schedules", "sessions", "dead_letters"):
            db.execute(f"DROP TABLE {table}")
            if left != "nothing":
                db.execute(f"CREATE TABLE {table} (id TEXT PRIMARY KEY, other)")
    with session_at(native) as session:
        assert statuses(session) == {}
        assert session.dead_letters() == []
        assert session.run(HANDLERS, until_idle=True).handled == 0
        session.commit(event=Ordered(item="x"))
        finish(session)
        assert stock(session) == {"x": 1}


def test_a_queue_of_another_layout_is_left_alone(native: str) -> None:
    opened(native).close()
    with sqlite3.connect(native) as db:
        db.executescript("DROP TABLE events; CREATE TABLE events (id, what); INSERT INTO events VALUES (1, 'theirs')")
    with session_at(native) as session:
        session.ensure(Stock(id="x"))
        with pytest.raises(StorageBackendError, match="another layout"):
            session.commit(event=Ordered(item="x"))
        assert session.repository.head() == 0
    with sqlite3.connect(native) as db:
        assert db.execute("SELECT what FROM events").fetchall() == [("theirs",)]


def test_a_reader_can_look_at_the_queue_but_not_change_it(either: str) -> None:
    with session_at(either) as session:
        session.commit(event=Ordered(item="x"))
    with session_at(either, readonly=True) as reader:
        assert queue(reader) == ["x"]
        with pytest.raises(StorageBackendError, match="reading only"):
            reader.commit(event=Ordered(item="y"))
        with pytest.raises(StorageBackendError, match="reading only"):
            reader.run(HANDLERS)


def test_events_are_purged_by_what_they_are(either: str) -> None:
    with session_at(either) as session:
        store = session.events
        session.commit(event=[Ordered(item="x"), Ordered(item="y")])
        session.run(HANDLERS, max_iterations=1)
        assert (store.count(EventSelection(status="done")), store.count(EventSelection(status="ready"))) == (1, 2)
        claim = store.claim("", ["Ordered"], "somebody", 30.0)
        assert claim is not None
        assert store.purge(EventSelection()) == 2, "what is claimed stays"
        assert [event.id for event in store.select(EventSelection())] == [claim.event.id]
        assert store.get(claim.event.id).claimed_by == "somebody"
        assert store.purge(EventSelection(status="done")) == 0
        store.release(claim)
        finish(session)
        assert parcels(session) == {claim.event.id: 1}


def test_text_that_cannot_be_stored_is_refused(either: str) -> None:
    with session_at(either) as session:
        session.ensure(Stock(id="x"))
        with pytest.raises(Invalid, match="not Unicode"):
            session.commit(event=[Ordered(item="fine"), Ordered(item="\ud800")])
        assert (statuses(session), session.repository.head(), session.pending) == ({}, 0, 1)


def test_wrong_settings_are_refused(either: str) -> None:
    for setting, value in (("event_lease", 0), ("event_poll", -1), ("event_max_attempts", 0), ("max_event_depth", -1)):
        with pytest.raises(Invalid):
            opened(either, **{setting: value})  # type: ignore[arg-type]
    with pytest.raises(SchemaValidationError):
        Ordered()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("damage", "what"),
    [("UPDATE events SET payload_json = '[1]'", "payload"), ("UPDATE events SET state = 'odd'", "how it stands"),
     ("UPDATE events SET handled_json = '{'", "how it stands"), ("UPDATE events SET state = 'dead'", "without a lett")],
)  # fmt: skip
def test_damage_of_the_queue_is_found(native: str, damage: str, what: str) -> None:
    with session_at(native) as session:
        session.commit(event=Ordered(item="x", event_id="e"))
        assert not list(session.repository.check())
        session.repository.db.execute(damage)  # type: ignore[attr-defined]
        (found,) = session.repository.check()
        assert found.where == "row e in events"
        assert what in found.what
