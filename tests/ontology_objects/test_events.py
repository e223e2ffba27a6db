"""Events on objects: queued with the head of their commit, claimed by swaps, whatever fails and whoever is first."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from marking import slow_after
from msgspec.structs import replace

from ontolake import faults
from ontolake.errors import DurabilityUnconfirmed, Invalid, OntolakeError
from ontolake.model import Entity, Field
from ontolake.objects import ObjectStore, cas, open_store
from ontolake.objects.testing import CountingStore, Fault, FaultyStore
from ontolake.ontology import (
    EventSelection,
    HandlerContext,
    LeaseExpiredError,
    Session,
    StorageBackendError,
    on_event,
)
from ontolake.ontology.events import Claim, Event, Handled, QueueChange
from ontolake.ontology.events.event import queued
from ontolake.ontology.events.letters import dead_letter
from ontolake.ontology.events.rules import in_seconds
from ontolake.ontology.repository.objects import access as s3_access
from ontolake.ontology.repository.objects.queue.layout import CHANGE, PAGES, PAST, QUEUE
from ontolake.ontology.repository.objects.queue.view import QueueView
from ontolake.ontology.repository.objects.upkeep import maintenance

from .conftest import fresh_memory

LONG = 1000.0


class Stock(Entity):
    id: Field[str] = Field(primary_key=True)
    count: Field[int] = Field(default=0)


class Ordered(Event):
    item: str = "x"


class Shipped(Event):
    order: str = ""


def opened(store: ObjectStore, **config: Any) -> Session:
    return Session(store.url, entity_types=[Stock],
                   config={"connect": {"store": store}, "lock_timeout": 1.0, "event_backoff": 0.0, **config})


def claimed(session: Session, *types: str) -> Claim:
    found = session.events.claim("", types or ("Ordered",), session.session_id, LONG)
    assert found is not None
    return found


def through(session: Session, claim: Claim, *emitted: Event, last: bool = True, handler: str = "h") -> None:
    """As a handler is that changes nothing."""
    change = QueueChange(tuple(queued(one, "") for one in emitted), Handled(claim, handler, last))
    with session.repository.transaction(session.session_id) as transaction:
        transaction.finish_queue(change)


def committed(session: Session, claim: Claim, count: int, *emitted: Event, handler: str = "h") -> None:
    """As a handler is that changes something."""
    change = QueueChange(tuple(queued(one, "") for one in emitted), Handled(claim, handler, True))
    with session.repository.transaction(session.session_id) as transaction:
        transaction.reconcile(session.types[0], [("x", count)])
        transaction.finish({}, queue=change)


def committed_late(session: Session, claim: Claim, count: int) -> None:
    """The same in a commit that began while the claim was good."""
    with session.repository.transaction(session.session_id) as transaction:
        untyped: Any = transaction
        untyped._began = in_seconds(-LONG)
        transaction.reconcile(session.types[0], [("x", count)])
        transaction.finish({}, queue=QueueChange((), Handled(claim, "h", True)))


def run_out(session: Session, claim: Claim) -> None:
    """The time of a claim is over."""

    def expire(view: QueueView) -> None:
        item = view.find([claim.event.id])[claim.event.id]
        assert item.state.held is not None
        view.put(item, replace(item.state, held=replace(item.state.held, expires_at=in_seconds(-1))))

    session.repository.events.queue.change("claim run out", expire)  # type: ignore[attr-defined]


def seen(store: ObjectStore) -> Any:
    """All that can be seen of rows and queue."""
    session = opened(store)
    try:
        events = [(one.id, one.event_type, one.status, one.attempts, one.handled, one.error, one.commit_id)
                  for one in session.events.select(EventSelection())]
        letters = [(one.failed_event_id, one.error) for one in session.dead_letters()]
        rows = [(one.id, one.count) for one in session.query().entities(Stock).collect()]
        tick = session.events.last_tick("", "s")
        assert not list(session.repository.check())
        return session.repository.head(), rows, events, letters, tick
    finally:
        session.close()


# whatever fails

CLAIMS: dict[str, Claim] = {}


def fill() -> dict[str, bytes]:
    """A queue in which something is done, dead, claimed, handed back and ready, as objects."""
    store = open_store(fresh_memory())
    session = opened(store)
    session.ensure(Stock(id="x"))
    session.commit(event=[Ordered(event_id=name) for name in ("done", "dead", "back", "held")])
    through(session, claimed(session))
    claim = claimed(session)
    session.events.bury(claim, dead_letter(claim.event, "h", 1, "why", datetime.now(UTC)))
    back = claimed(session)
    CLAIMS["held"] = claimed(session)
    session.events.release(back)
    session.ensure(Stock(id="x", count=1))
    session.commit(event=Shipped(event_id="shipped", order="held"))
    session.close()
    return {info.key: store.get(info.key).data for info in store.list()}


def enqueue_with_commit(session: Session) -> None:
    session.ensure(Stock(id="x", count=7))
    session.commit(event=[Ordered(event_id="new"), Shipped(event_id="new too")])


def bury(session: Session) -> None:
    claim = CLAIMS["held"]
    session.events.bury(claim, dead_letter(claim.event, "h", 1, "no", datetime.now(UTC)),
                        [queued(Shipped(event_id="told"), "")])


def tick(session: Session) -> None:
    assert session.events.advance("", "s", None, datetime(2024, 1, 1, tzinfo=UTC), queued(Ordered(event_id="t"), ""))


WORKS: dict[str, Callable[[Session], object]] = {
    "queue with a commit": enqueue_with_commit,
    "queue alone": lambda session: session.commit(event=[Ordered(event_id="new"), Shipped(event_id="new too")]),
    "claim": lambda session: claimed(session, "Shipped"),
    "claim what was claimed before": claimed,
    "done with a commit": lambda session: committed(session, CLAIMS["held"], 9, Shipped(event_id="next")),
    "done alone": lambda session: through(session, CLAIMS["held"], Shipped(event_id="next")),
    "failed": lambda session: session.events.fail(CLAIMS["held"], error="no", delay=LONG),
    "dead": bury,
    "tick": tick,
    "requeue": lambda session: session.events.requeue(["dead"]),
}
FOR_EVER = 10_000
KINDS: dict[str, dict[str, Any]] = {
    "fails once": {"kind": "fail"},
    "fails for ever": {"kind": "fail", "times": FOR_EVER},
    "loses the response": {"kind": "lose"},
    "loses every response": {"kind": "lose", "times": FOR_EVER},
    "takes long": {"kind": "delay", "seconds": 0.001},
}


@pytest.fixture(scope="module")
def template() -> dict[str, bytes]:
    return fill()


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cas, "FIRST_WAIT", 0.0)
    monkeypatch.setattr(s3_access, "FIRST_WAIT", 0.0)


def copy(template: dict[str, bytes]) -> ObjectStore:
    store = open_store(fresh_memory())
    for key, data in template.items():
        store.put(key, data)
    return store


def do(work: str, store: ObjectStore) -> None:
    session = opened(store)
    try:
        WORKS[work](session)
    finally:
        session.close()


def goes_on(store: ObjectStore) -> None:
    """The next event is queued with a commit, claimed and handled."""
    session = opened(store)
    session.ensure(Stock(id="x", count=100))
    session.commit(event=Event_(event_id="last"))
    claim = claimed(session, "Event_")
    assert (claim.event.id, claim.attempt) == ("last", 1)
    committed(session, claim, 101)
    assert session.events.get("last").status == "done"
    session.close()


class Event_(Event):
    pass


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("kind", slow_after(1, KINDS))
@pytest.mark.parametrize("work", slow_after(3, WORKS))
def test_an_operation_that_goes_wrong_leaves_all_or_nothing(
    template: dict[str, bytes], work: str, kind: str
) -> None:  # fmt: skip
    before, done = seen(copy(template)), copy(template)
    do(work, done)
    after = seen(done)
    assert before != after
    for n in itertools.count():
        inner = copy(template)
        store = FaultyStore(inner, Fault(n, count="all", **KINDS[kind]))
        error: OntolakeError | None = None
        try:
            do(work, store)
        except OntolakeError as failed:
            error = failed
        found = seen(inner)
        if error is None:
            assert found == after, n
        elif isinstance(error, DurabilityUnconfirmed) or work == "claim what was claimed before":
            # A claim may be there and nobody know of it: it runs out.
            assert found in (before, after), n
        else:
            assert found == before, (n, error)
        if kind in ("fails once", "loses the response", "takes long"):
            assert error is None, "what fails in passing stops nothing"
        goes_on(inner)
        if len(store.seen) <= n:
            break
    assert n > 3, "there were operations to go wrong"


# whoever is first


def test_a_claim_that_is_taken_over_stops_a_commit_that_is_about_to_be_made(memory: str) -> None:
    store = open_store(memory)
    one, two = opened(store), opened(store)
    one.commit(event=Ordered(event_id="e"))
    claim = claimed(one)
    run_out(one, claim)
    one.commit(event=Shipped())  # so that the queue is at hand

    def take_over(step: str) -> None:
        if step == "ontology objects: before the head is moved" and not taken:
            taken.append(claimed(two))
            through(two, taken[0])

    taken: list[Claim] = []
    with faults.arm(take_over), pytest.raises(LeaseExpiredError, match="ran out"):
        committed_late(one, claim, 1)
    assert taken[0].attempt == 2
    with pytest.raises(LeaseExpiredError, match="ran out"):
        committed(one, claim, 1)
    with pytest.raises(LeaseExpiredError, match="ran out"):
        through(one, claim)
    assert one.repository.head() == 0
    assert two.events.get("e").handled == ("h",)
    one.close()
    two.close()


def test_a_commit_goes_on_if_the_claim_on_another_event_is_taken_over(memory: str) -> None:
    store = open_store(memory)
    one, two = opened(store), opened(store)
    one.commit(event=[Ordered(event_id="e"), Shipped(event_id="s")])
    run_out(one, claimed(two))
    claim = claimed(one, "Shipped")

    def take_over(step: str) -> None:
        if step == "ontology objects: before the head is moved" and not taken:
            taken.append(claimed(two))

    taken: list[Claim] = []
    with faults.arm(take_over):
        committed(one, claim, 1)
        assert (taken.pop().event.id, one.repository.head()) == ("e", 1)
    assert one.events.get("s").status == "done"
    one.close()
    two.close()


def test_a_commit_after_the_claim_was_taken_over_is_refused(memory: str) -> None:
    store = open_store(memory)
    one, two = opened(store), opened(store)
    one.commit(event=[Ordered(event_id="e"), Ordered(event_id="f")])
    claim = claimed(one)
    run_out(one, claim)

    def commit_late(step: str) -> None:
        if step == "ontology: event claimed" and not late:
            late.append(step)
            with pytest.raises(LeaseExpiredError):
                committed_late(one, claim, 1)

    late: list[str] = []
    with faults.arm(commit_late):
        assert claimed(two).event.id == "e"
    assert late
    one.close()
    two.close()


def test_a_commit_before_the_claim_is_taken_over_counts(memory: str) -> None:
    store = open_store(memory)
    one, two = opened(store), opened(store)
    one.commit(event=[Ordered(event_id="e"), Ordered(event_id="f")])
    claim = claimed(one)
    run_out(one, claim)
    begun: list[Any] = []

    def commit_first(step: str) -> None:
        if step == "ontology: event claimed, not yet durable" and not begun:
            begun.append(step)
            committed_late(one, claim, 1)

    with faults.arm(commit_first):
        assert claimed(two).event.id == "f", "the other one is done"
    assert two.events.get("e").status == "done"
    assert two.repository.head() == 1
    one.close()
    two.close()


def test_an_id_that_two_queue_at_once_is_queued_once(memory: str) -> None:
    store = open_store(memory)
    one, two = opened(store), opened(store)

    def meanwhile(step: str) -> None:
        if step == "ontology objects: before the head is moved" and two.events.count(EventSelection()) == 0:
            two.commit(event=Ordered(event_id="e"))

    one.ensure(Stock(id="x"))
    with faults.arm(meanwhile):
        assert one.commit(event=[Ordered(event_id="e"), Ordered(event_id="f")]) == 1
    assert [(event.id, event.commit_id) for event in one.events.select(EventSelection())] == [("e", None), ("f", 1)]
    one.close()
    two.close()


# what it costs


def test_a_commit_without_events_reads_nothing_of_the_queue(memory: str) -> None:
    store = FaultyStore(open_store(memory))
    session = opened(store)
    session.commit(event=Ordered())
    store.seen.clear()
    session.ensure(Stock(id="x"))
    session.commit()
    assert not [key for _, key in store.seen if key.startswith("events/") or key.endswith(CHANGE)]
    session.close()


@pytest.mark.slow
def test_what_a_claim_costs_does_not_grow_with_history(memory: str) -> None:
    store = CountingStore(open_store(memory))
    session = opened(store)

    def cost() -> tuple[int, int]:
        """One event from being queued with a commit to being done: most requests of a step, and bytes sent."""
        most, sent = 0, 0
        steps: list[Callable[[], object]] = [
            lambda: session.commit(event=Ordered()),
            lambda: claims.append(claimed(session)),
            lambda: committed(session, claims.pop(), next(numbers)),
        ]
        for step in steps:
            store.reset()
            step()
            if store.operations["put_if_absent"] < 20:  # now and then, what is done is put away, much at once
                most, sent = max(most, store.total), max(sent, store.sent.total())
        return most, sent

    claims: list[Claim] = []
    numbers = itertools.count(1)
    early = [cost() for _ in range(70)]
    for _ in range(300):
        cost()
    late = [cost() for _ in range(70)]
    assert max(most for most, _ in early) <= 14
    assert max(most for most, _ in late) <= max(most for most, _ in early)
    assert max(sent for _, sent in late) <= 1.2 * max(sent for _, sent in early)
    store.reset()
    session.commit(event=Ordered())
    assert store.total <= 8
    store.reset()
    assert claimed(session).attempt == 1
    assert store.total <= 4
    session.close()


@pytest.mark.slow
def test_a_long_queue_is_claimed_in_order_page_by_page(memory: str) -> None:
    store = CountingStore(open_store(memory))
    session = opened(store)
    count = 2000
    session.ensure(Stock(id="x"))
    session.commit(event=[Ordered(event_id=f"e{n}") for n in range(count)])
    session.commit(event=[Shipped(event_id="s")])
    assert len([*store.list(PAGES)]) >= count // 256
    for n in range(200):
        store.reset()
        claim = claimed(session)
        assert claim.event.id == f"e{n}"
        assert store.sent["put_if_match"] < 64 * 1024, "what waits further back is not written again"
        through(session, claim)
    assert claimed(session, "Shipped").event.id == "s", "of another type, behind all of them"
    assert session.events.count(EventSelection(status="done")) == 200
    session.commit(event=[Ordered(event_id="e3"), Ordered(event_id="e1999")])
    assert session.events.count(EventSelection()) == count + 1, "ids are known wherever their events are"
    with pytest.raises(Invalid, match="another event is queued under the id 'e3'"):
        session.commit(event=Ordered(event_id="e3", item="other"))
    assert session.events.purge(EventSelection(status="done")) == 200
    assert session.events.purge(EventSelection(event_type="Ordered")) == count - 200
    assert [event.id for event in session.events.select(EventSelection())] == ["s"]
    assert not list(session.repository.check())
    session.close()


# looking after it


@pytest.mark.slow
def test_gc_keeps_what_the_queue_needs_and_takes_what_it_left_behind(memory: str) -> None:
    store = open_store(memory)
    session = opened(store)
    for number in range(100):
        session.ensure(Stock(id="x", count=number))
        session.commit(event=Ordered(event_id=f"e{number}"))
    for _ in range(80):
        through(session, claimed(session))
    session.events.purge(EventSelection(status="done", id="e1"))
    before = seen(store)
    repository: Any = session.repository
    assert not maintenance.garbage(repository).keys, "none of it is an hour old"
    found = maintenance.garbage(repository, grace=-1.0)
    assert {key.rsplit("/", 1)[1] for key in found.keys if key.startswith("commits/")} == {CHANGE}
    assert len([key for key in found.keys if key.startswith(PAST)]) == 1, "of the event that was removed"
    maintenance.collect(repository, found.token, grace=-1.0)
    assert not maintenance.garbage(repository, grace=-1.0).keys
    assert seen(store) == before
    assert claimed(session).event.id == "e80"
    session.close()


def test_files_and_types_are_looked_after_without_losing_an_event(memory: str) -> None:
    store = open_store(memory)
    session = opened(store)
    for number in range(3):
        session.ensure(Stock(id=f"x{number}"))
        session.commit(event=Ordered(event_id=f"e{number}"))
    repository: Any = session.repository
    assert not [*store.list("events/")], "all of it stands with the commits yet"
    assert maintenance.compact(repository, dry_run=False)
    repository.drop_type("entity", "Stock")
    found = maintenance.garbage(repository, grace=-1.0)
    maintenance.collect(repository, found.token, grace=-1.0)
    assert [event.id for event in session.events.select(EventSelection())] == ["e0", "e1", "e2"]
    for _ in range(3):
        through(session, claimed(session))
    assert {event.status for event in session.events.select(EventSelection())} == {"done"}
    session.close()


@pytest.mark.parametrize("damage", ["queue", "page", "past", "change"])
def test_damage_of_the_queue_is_named(memory: str, damage: str) -> None:
    store = open_store(memory)
    session = opened(store)
    session.commit(event=[Ordered(event_id=f"e{n}") for n in range(300)])
    for _ in range(70):
        through(session, claimed(session))
    session.ensure(Stock(id="x"))
    session.commit(event=Ordered(event_id="last"))
    assert not list(session.repository.check())
    view = session.repository.events.queue.read()  # type: ignore[attr-defined]
    key = {"queue": QUEUE, "page": view.pages[0].path, "past": next(store.list(PAST)).key,
           "change": next(info.key for info in store.list("commits/") if info.key.endswith(CHANGE))}[damage]
    whole = store.get(key).data
    store.put(key, b"{" if damage != "change" else b"{}")
    session.close()
    session = opened(store)
    assert [one for one in session.repository.check() if key in (one.where, *one.what.split("'"))]
    if damage != "past":
        with pytest.raises(StorageBackendError, match=key):
            session.events.claim("", ["Ordered"], "me", LONG)
    assert session.query().entities(Stock).count() == 1, "rows are read all the same"
    store.put(key, whole)
    assert not list(session.repository.check())
    session.close()


# on a real server


@pytest.mark.slow
def test_runners_share_a_queue_on_a_real_server(seaweed_url: str) -> None:
    import threading

    count = 8
    with Session(seaweed_url, entity_types=[Stock]) as session:
        session.commit(event=[Ordered(event_id=f"e{n}") for n in range(count)])

    @on_event(Ordered)
    def add(context: HandlerContext[Ordered]) -> None:
        found = context.query().entities(Stock).where(Stock.id == "x").first()
        context.ensure(Stock(id="x", count=(found.count if found else 0) + 1))
        context.emit(Shipped(order=context.event.event_id))

    @on_event(Shipped)
    def nothing(context: HandlerContext[Shipped]) -> None: ...

    def run() -> None:
        with Session(seaweed_url, entity_types=[Stock], config={"lock_timeout": 30.0, "event_poll": 0.01}) as own:
            deadline = time.monotonic() + 60
            while own.events.count(EventSelection(status="done")) < 2 * count and time.monotonic() < deadline:
                own.run([add, nothing], until_idle=True)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    with Session(seaweed_url, entity_types=[Stock]) as session:
        events = session.events.select(EventSelection())
        assert [(event.status, event.attempts) for event in events] == [("done", 1)] * 2 * count
        assert session.query().entities(Stock).collect()[0].count == count
        assert len(session.list_commits()) == count
        assert session.events.purge(EventSelection()) == 2 * count
        assert session.events.select(EventSelection()) == []
        assert not list(session.repository.check())
