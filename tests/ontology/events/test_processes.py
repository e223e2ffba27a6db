"""Several processes share a queue, are killed at any step, or paused for too long: every event counts once."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from pausing import paused
from waiting import wait_for

from ontolake.ontology import EventDeadLetter, EventSelection, HandlerContext, Schedule, Session, on_event
from ontolake.ontology.repository.objects.queue.view import QueueView
from ontolake.ontology.repository.sqlite.base import SqliteRepository

from ..processes import FORKS, Process, process
from .story import Ordered, Parcel, Stock, finish, opened, parcels, session_at, statuses, stock

SWEEP = FORKS + """
    import pyarrow  # all of this once, not in every child
    import ontolake.ontology.repository.objects.queue.events, ontolake.ontology.repository.objects.engines
    pyarrow.array([1])  # which imports pandas
    from ontolake import faults
    from ontology.events import test_processes as tests

    def work(url, story, step):
        session = tests.opened(url, event_max_attempts=1000)
        hook = faults.At(int(step), faults.kill)
        # The steps of the storage beneath are swept by its own tests.
        with faults.arm(lambda name: hook(name) if name.startswith("ontology:") else None):
            tests.STORIES[story].end(session)
        session.close()

    each(work)
"""


class Orders:
    """An order with two handlers, one of which emits an event that is handled too."""

    steps = 15

    @staticmethod
    def begin(session: Session) -> None:
        session.commit(event=Ordered(item="x", count=5, event_id="order"))

    @staticmethod
    def end(session: Session) -> None:
        finish(session)

    @staticmethod
    def check_half_way(session: Session) -> None:
        """A handler's effects are there if and only if the event says that it is through."""
        stored = session.events.get("order")
        assert ("x" in stock(session)) == any("take_from_stock" in name for name in stored.handled)
        emitted = session.events.select(EventSelection(event_type="Shipped"))
        assert bool(emitted) == any("ship" in name for name in stored.handled) == (stored.status == "done")
        for one in emitted:
            assert bool(parcels(session)) == (one.status == "done")

    @staticmethod
    def check(session: Session) -> None:
        assert stock(session) == {"x": 5}
        assert parcels(session) == {"order": 1}
        assert session.repository.head() == 2
        assert list(statuses(session).values()) == ["done", "done"]
        assert session.dead_letters() == []


@on_event(Ordered)
def give_up(context: HandlerContext[Ordered]) -> None:
    context.ensure(Stock(id="never"))
    raise ValueError("no")


@on_event(EventDeadLetter)
def mourn(context: HandlerContext[EventDeadLetter]) -> None:
    found = context.query().entities(Parcel).where(Parcel.id == context.event.failed_event_id).first()
    context.ensure(Parcel(id=context.event.failed_event_id, times=(found.times if found else 0) + 1))


class Letters:
    """An order that cannot be handled, and what is told of that."""

    steps = 10
    begin = Orders.begin

    @staticmethod
    def end(session: Session) -> None:
        session.config = replace(session.config, event_max_attempts=2)
        finish(session, [give_up, mourn])

    @staticmethod
    def check_half_way(session: Session) -> None:
        dead = [event.id for event in session.events.select(EventSelection(status="dead"))]
        assert dead == [letter.failed_event_id for letter in session.dead_letters()]
        assert stock(session) == {}

    @staticmethod
    def check(session: Session) -> None:
        assert [letter.failed_event_id for letter in session.dead_letters()] == ["order"]
        assert stock(session) == {}
        assert session.events.count(EventSelection()) == 2
        assert parcels(session) == {"order": 1}, "it was told once"


class Ticks:
    """A schedule that missed a tick."""

    steps = 2
    schedule = Schedule(Ordered(item="tick"), "0 0 1 1 *")

    @classmethod
    def begin(cls, session: Session) -> None:
        session.events.advance("", cls.schedule.schedule_id, None, datetime(2020, 6, 1, tzinfo=UTC), None)

    @classmethod
    def end(cls, session: Session) -> None:
        session.run([], schedules=[cls.schedule], max_iterations=1)

    @classmethod
    def check_half_way(cls, session: Session) -> None:
        last = session.events.last_tick("", cls.schedule.schedule_id)
        assert last is not None
        assert session.events.count(EventSelection(event_type="Ordered")) == (last.year > 2020)

    @staticmethod
    def check(session: Session) -> None:
        assert [event.payload["item"] for event in session.events.select(EventSelection())] == ["tick"]


STORIES: dict[str, Any] = {"orders": Orders, "letters": Letters, "ticks": Ticks}


def let_claims_run_out(session: Session, of: str | None = None) -> None:
    """As if the time of every claim were over, or of those of one session."""

    def expire(view: QueueView) -> None:
        for item in [*view.items()]:
            held = item.state.held
            if held is not None and of in (None, held.session_id):
                view.put(item, structs.replace(item.state, held=structs.replace(held, expires_at="")))

    if isinstance(session.repository, SqliteRepository):
        session.repository.db.execute("UPDATE event_claims SET expires_at = '' WHERE ?1 IS NULL OR session_id = ?1",
                                      (of,))
    else:
        session.repository.events.queue.change("claims run out", expire)  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("story", "kind", "engine"),
    [("orders", "native", "v1"), ("orders", "native", "v2"), ("orders", "page file", "v2"), ("letters", "native", "v2"),
     ("ticks", "native", "v2"), ("orders", "objects", "v2"), ("letters", "objects", "v2"), ("ticks", "objects", "v1")],
)  # fmt: skip
def test_an_event_counts_once_at_whichever_step_its_runner_is_killed(
    tmp_path: Path, story: str, kind: str, engine: str
) -> None:  # fmt: skip
    told = STORIES[story]
    with process(SWEEP) as forks:
        for step in range(200):
            url = {"native": f"{tmp_path}/s{step}.db", "page file": f"file://{tmp_path}/s{step}.db",
                   "objects": f"file://{tmp_path}/s{step}"}[kind]
            with session_at(url, engine) as session:
                told.begin(session)
            ended = int(forks.ask(f"{url}\t{story}\t{step}"))
            assert ended in (0, -signal.SIGKILL)
            takeover = {"connect": {"takeover": True}} if kind == "page file" else {}
            with session_at(url, event_max_attempts=1000, **takeover) as session:
                told.check_half_way(session)
                let_claims_run_out(session)
                if ended != 0:
                    told.end(session)
                told.check(session)
            if ended == 0:
                assert step > told.steps, "there were steps to be killed at"
                return
    raise AssertionError("it never came to its end")


@pytest.mark.slow
def test_a_runner_that_dies_again_and_again_makes_a_dead_letter(shared: str) -> None:
    program = FORKS + """
    from ontolake import faults
    from ontolake.ontology import on_event
    from ontology.events.story import Ordered, finish, opened

    @on_event(Ordered)
    def die(context):
        faults.kill()

    each(lambda url: opened(url, event_max_attempts=2).run([die]))
    """
    with session_at(shared, event_max_attempts=2) as session, process(program) as forks:
        session.commit(event=Ordered(item="x"))
        for _ in range(2):
            assert int(forks.ask(shared)) == -signal.SIGKILL
            let_claims_run_out(session)
        finish(session)
        (letter,) = session.dead_letters()
        assert letter.attempts == 2
        assert "2 attempts were begun, and none of them ended" in letter.error
        assert stock(session) == {}


def begun(count: int, program: str, *arguments: str) -> list[Process]:
    """Processes that begin at the same time."""
    found = [Process(program, *arguments) for _ in range(count)]
    for one in found:
        assert one.line() == "ready"
    for one in found:
        one.tell("go")
    return found


SHARE = """
    import sys
    from ontology.events.story import HANDLERS, finish, opened
    session = opened(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    report = session.run(HANDLERS, until_idle=True)
    finish(session)
    session.close()
    print(report.handled, report.failed, report.dead, report.lost, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["v2"])
def test_processes_share_a_queue_and_handle_each_event_once(shared: str, engine: str) -> None:
    session = opened(shared, engine)
    events = [Ordered(item=f"item {n % 3}", count=n) for n in range(1, 41)]
    session.commit(event=events)
    runners = begun(3, SHARE, shared)
    reports = [tuple(map(int, runner.line().split())) for runner in runners]
    for runner in runners:
        assert runner.wait() == 0
    assert {report[1:] for report in reports} == {(0, 0, 0)}
    assert stock(session) == {f"item {n}": sum(m for m in range(1, 41) if m % 3 == n) for n in range(3)}
    assert parcels(session) == {event.event_id: 1 for event in events}
    stored = session.events.select(EventSelection())
    assert len(stored) == 80
    assert {event.status for event in stored} == {"done"}
    assert {event.attempts for event in stored} == {1}, "nobody was handed an event of another"
    assert len(session.list_commits()) == 80
    session.close()


SLOW = """
    import sys, time
    from ontolake.ontology import on_event
    from ontology.events.story import Ordered, Stock, opened

    @on_event(Ordered)
    def slow(context):
        context.ensure(Stock(id="x", count=int(sys.argv[2])))
        print("began", flush=True)
        sys.stdin.readline()

    session = opened(sys.argv[1], event_lease=float(sys.argv[3]))
    report = session.run([slow], max_iterations=1)
    print(report.handled, report.failed, report.lost, flush=True)
"""


@on_event(Ordered, name="__main__.slow")
def quick(context: HandlerContext[Ordered]) -> None:
    context.ensure(Stock(id="x", count=2))


@pytest.mark.slow
def test_a_claim_is_kept_for_as_long_as_the_handler_works(native: str) -> None:
    with session_at(native) as session, process(SLOW, native, "1", "6") as slow:
        event = Ordered(item="x")
        session.commit(event=event)
        assert slow.line() == "began"
        first = until = session.events.get(event.event_id).claimed_until
        while until == first:
            assert session.run([quick], max_iterations=20).handled == 0
            until = session.events.get(event.event_id).claimed_until
        assert first is not None
        assert until is not None
        assert until > first
        slow.tell("go on")
        assert slow.line() == "1 0 0"
        assert stock(session) == {"x": 1}


@pytest.mark.slow
def test_a_handler_that_lost_its_claim_commits_nothing(shared: str, engine: str) -> None:
    with session_at(shared, engine) as session, process(SLOW, shared, "1", "0.3") as slow:
        session.commit(event=Ordered(item="x"))
        assert slow.line() == "began"
        with paused(slow.pid):
            finish(session, [quick])  # as soon as the claim has run out
            assert stock(session) == {"x": 2}
            slow.tell("go on")
        assert slow.line() == "0 0 1"
        assert stock(session) == {"x": 2}
        assert len(session.list_commits()) == 1
        assert session.events.select(EventSelection())[0].attempts == 2


@pytest.mark.slow
def test_a_claim_that_ran_out_is_refused_even_if_nobody_else_took_the_event(native: str, engine: str) -> None:
    with session_at(native, engine) as session, process(SLOW, native, "1", "0.2") as slow:
        session.commit(event=Ordered(item="x"))
        assert slow.line() == "began"
        with paused(slow.pid):
            wait_for(lambda: "ready" in statuses(session).values())
            slow.tell("go on")
        assert slow.line() == "0 0 1"
        assert stock(session) == {}
        finish(session, [quick])
        assert stock(session) == {"x": 2}


def test_a_commit_may_take_longer_than_the_claim_lasts(shared: str, engine: str) -> None:
    from ontolake import faults

    with session_at(shared, engine, event_lease=0.1, event_max_attempts=1000) as session:
        session.commit(event=Ordered(item="x"))
        dawdled = 0

        def dawdle(step: str) -> None:
            nonlocal dawdled
            if step == "ontology: rows written":
                # Amid the transaction, so that nothing can be renewed, and nothing taken.
                (claimed,) = session.events.select(EventSelection())
                if claimed.claimed_until is not None:  # else it was too slow before, and is lost
                    until = claimed.claimed_until.timestamp()
                    wait_for(lambda: time.time() > until)
                    dawdled += 1

        with faults.arm(dawdle):
            report = session.run([quick], until_idle=True)
        assert (report.handled, dawdled) == (1, 1)
        assert stock(session) == {"x": 2}


INTERRUPT = """
    import sys
    from ontology.events.story import HANDLERS, opened
    session = opened(sys.argv[1])
    print("ready", flush=True)
    report = session.run(HANDLERS)
    print(report.handled, flush=True)
    session.close()
"""


@pytest.mark.slow
def test_an_idle_runner_stops_at_once_on_ctrl_c(native: str) -> None:
    with session_at(native) as session, process(INTERRUPT, native) as runner:
        assert runner.line() == "ready"
        session.commit(event=Ordered(item="x"))
        wait_for(lambda: list(statuses(session).values()) == ["done", "done"])
        runner.signal(signal.SIGINT)
        assert runner.line() == "2"
        assert runner.wait() == 0
        assert session.events.runners() == []


TAKE_PART = """
    import sys
    from dataclasses import replace
    from ontology.events.story import HANDLERS, finish, opened
    import pyarrow
    pyarrow.array([1])  # imports what takes long
    session = opened(sys.argv[1], event_lease=float(sys.argv[2]), event_max_attempts=100_000)
    print("ready", flush=True)
    sys.stdin.readline()
    print(session.session_id, flush=True)
    session.run(HANDLERS, max_iterations=int(sys.argv[3]))
    session.config = replace(session.config, event_lease=60.0)
    finish(session)
    session.close()
    print("done", flush=True)
"""


@pytest.mark.slow
def test_claims_that_run_out_all_the_time_let_nothing_count_twice(tmp_path: Path) -> None:
    url = (tmp_path / "lake").as_uri()
    with session_at(url) as session:
        events = [Ordered(item="x", count=n) for n in range(1, 21)]
        session.commit(event=events)
        runners = begun(3, TAKE_PART, url, "0.05", "40")  # and then with ones that last, so that it comes to an end
        assert len({runner.line() for runner in runners}) == 3
        assert [runner.line() for runner in runners] == ["done"] * 3
        assert {runner.wait() for runner in runners} == {0}
        assert stock(session) == {"x": sum(range(1, 21))}
        assert parcels(session) == {event.event_id: 1 for event in events}
        assert [event.status for event in session.events.select(EventSelection())] == ["done"] * 40
        assert len(session.list_commits()) == 40


@pytest.mark.slow
def test_processes_share_a_queue_on_a_real_server_and_one_of_them_is_killed(seaweed_url: str) -> None:
    with session_at(seaweed_url) as session:
        events = [Ordered(item=f"item {n % 2}", count=n) for n in range(1, 13)]
        session.commit(event=events)
        runners = begun(4, TAKE_PART, seaweed_url, "60", "1")
        names = [runner.line() for runner in runners]
        killed = runners.pop()
        wait_for(lambda: session.events.count(EventSelection(status="done")) >= 2)
        killed.kill()
        let_claims_run_out(session, names.pop())
        assert [runner.line() for runner in runners] == ["done"] * 3
        assert {runner.wait() for runner in runners} == {0}
        assert stock(session) == {f"item {n}": sum(m for m in range(1, 13) if m % 2 == n) for n in range(2)}
        assert parcels(session) == {event.event_id: 1 for event in events}
        stored = session.events.select(EventSelection())
        assert [event.status for event in stored] == ["done"] * 24
        assert sum(event.attempts for event in stored) in (24, 25), "what the killed one had was tried again, no other"
        assert not list(session.repository.check())
