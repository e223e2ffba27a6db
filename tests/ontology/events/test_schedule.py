"""Schedules: each tick once, whoever looks after it, and one for all that were missed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ontolake.errors import Invalid
from ontolake.model import SchemaValidationError
from ontolake.ontology import Event, EventSelection, Schedule, Session

from ..processes import Process
from .story import session_at


class Nightly(Event):
    what: str = "report"


class Needy(Event):
    what: str


def ticks(session: Session) -> list[datetime]:
    return [event.created_at for event in session.events.select(EventSelection(event_type="Nightly"))]


def rewind(session: Session, schedule: Schedule, moment: datetime) -> None:
    """As if the schedule had been looked at last at that moment."""
    store = session.events
    seen = store.last_tick(session.namespace or "", schedule.schedule_id)
    assert store.advance(session.namespace or "", schedule.schedule_id, seen, moment, None)


def fired(session: Session, *schedules: Schedule) -> int:
    return session.run([], schedules=schedules, max_iterations=1).fired


def test_a_new_schedule_starts_now(url: str, engine: str) -> None:
    with session_at(url, engine) as session:
        schedule = Schedule(Nightly, "0 4 * * *")
        assert fired(session, schedule) == 0
        last = session.events.last_tick("", schedule.schedule_id)
        assert last is not None
        assert abs(last - datetime.now(UTC)) < timedelta(minutes=1)
        assert ticks(session) == []


def test_missed_ticks_fire_once_for_the_last_of_them(url: str, engine: str) -> None:
    with session_at(url, engine, namespace="n") as session:
        now = datetime.now(UTC)
        last = (now - timedelta(hours=12)).replace(minute=30, second=0, microsecond=0)  # and the next is as far away
        schedule = Schedule(Nightly(what="sums"), f"30 {last.hour} * * *")
        rewind(session, schedule, now - timedelta(days=10))
        assert fired(session, schedule) == 1
        assert fired(session, schedule) == 0
        assert ticks(session) == [last]
        (event,) = session.events.select(EventSelection())
        assert (event.payload, event.namespace, event.status) == ({"what": "sums"}, "n", "ready")
    with session_at(url, namespace="n") as again:
        assert fired(again, schedule) == 0, "nor after reopening"


def test_schedules_are_known_by_all_they_are_made_of_or_by_their_name(either: str) -> None:
    same = [Schedule(Nightly, "@daily"), Schedule(Nightly(), "@daily")]
    assert same[0].schedule_id == same[1].schedule_id
    different = [*same[:1], Schedule(Nightly(what="x"), "@daily"), Schedule(Nightly, "@hourly"),
                 Schedule(Nightly, "@daily", timezone="Asia/Tokyo"), Schedule(Nightly, "@daily", name="mine")]
    assert len({schedule.schedule_id for schedule in different}) == len(different)
    with session_at(either) as session, pytest.raises(Invalid, match="two schedules are called"):
        session.run([], schedules=same)


def test_ticks_are_those_of_the_time_zone() -> None:
    schedule = Schedule(Nightly, "0 4 * * *", timezone="Europe/Berlin")
    winter = datetime(2024, 1, 10, tzinfo=UTC)
    assert schedule.next_tick(winter) == winter.replace(hour=3)
    summer = datetime(2024, 7, 10, tzinfo=UTC)
    assert schedule.next_tick(summer) == summer.replace(hour=2)
    skipped = Schedule(Nightly, "30 2 * * *", timezone="Europe/Berlin")
    day = [skipped.next_tick(datetime(2024, 3, 30, 12, tzinfo=UTC))]
    for _ in range(2):
        day.append(skipped.next_tick(day[-1]))
    assert [tick.day for tick in day] == [31, 1, 2], "an hour that is skipped fires behind it"
    twice = [skipped.next_tick(datetime(2024, 10, 26, 12, tzinfo=UTC))]
    twice.append(skipped.next_tick(twice[0]))
    assert twice[1] - twice[0] > timedelta(hours=20), "one that comes twice fires once"


CRONS = ["* * * * *", "*/7 * * * *", "0 4 * * 1-5", "15 3 1 * *", "59 23 31 12 *", "0 0 29 2 *", "*/20 * * * * *"]
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]
MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2026, 1, 1)).map(lambda moment: moment.replace(tzinfo=UTC))


@given(st.sampled_from(CRONS), st.sampled_from(ZONES), MOMENTS, st.timedeltas(timedelta(0), timedelta(hours=30)))
def test_a_missed_tick_is_the_last_one_before_now(cron: str, zone: str, after: datetime, gap: timedelta) -> None:
    schedule = Schedule(Nightly, cron, timezone=zone)
    now = after + gap
    found = schedule.missed_tick(after, now)
    following = schedule.next_tick(after)
    assert following > after
    if following > now:
        assert found is None
        return
    assert found is not None
    assert following <= found <= now
    if zone == "UTC":
        assert schedule.next_tick(found) > now


@pytest.mark.parametrize("cron", ["", "every day", "61 * * * *", "* * * *", "0 0 30 2 *", "1 2 3 4 5 6 7", None])
def test_what_is_no_time_is_refused(cron: Any) -> None:
    with pytest.raises(Invalid, match="is not a time of a cron table"):
        Schedule(Nightly, cron)


def test_what_else_is_wrong_with_a_schedule_is_refused() -> None:
    with pytest.raises(Invalid, match="Mars"):
        Schedule(Nightly, "@daily", timezone="Mars/Olympus")
    with pytest.raises(SchemaValidationError, match="Needy"):
        Schedule(Needy, "@daily")
    for wrong in ("Nightly", None, int):
        with pytest.raises(Invalid, match="is not an event"):
            Schedule(wrong, "@daily")  # type: ignore[arg-type]


def test_one_of_two_processes_moves_a_schedule(either: str) -> None:
    with session_at(either) as one, session_at(either) as two:
        schedule = Schedule(Nightly, "@daily")
        start = datetime(2024, 1, 1, tzinfo=UTC)
        rewind(one, schedule, start)
        seen = two.repository.events.last_tick("", schedule.schedule_id)
        assert seen == start
        tick = start + timedelta(days=1)
        event = schedule.event_at(tick, "")
        assert one.repository.events.advance("", schedule.schedule_id, seen, tick, event)
        assert not two.repository.events.advance("", schedule.schedule_id, seen, tick, event)
        assert ticks(one) == [tick]


FIRE = """
    import sys, time
    from datetime import UTC, datetime, timedelta
    from ontolake.ontology import EventSelection, Schedule
    from ontology.events.story import opened
    from ontology.events.test_schedule import Nightly
    session = opened(sys.argv[1])
    schedule = Schedule(Nightly, "* * * * * *")
    print("ready", flush=True)
    sys.stdin.readline()
    end, fired = time.monotonic() + 2.5, 0
    while time.monotonic() < end or not session.events.count(EventSelection()):
        fired += session.run([], schedules=[schedule], max_iterations=5).fired
    session.close()
    print(fired, flush=True)
"""


@pytest.mark.slow
def test_processes_never_fire_a_tick_twice(shared: str) -> None:
    with session_at(shared) as session:
        began = datetime.now(UTC)
        running = [Process(FIRE, shared) for _ in range(3)]
        for one in running:
            assert one.line() == "ready"
        for one in running:
            one.tell("go")
        counts = [int(one.line()) for one in running]
        for one in running:
            assert one.wait() == 0
        found = ticks(session)
        assert len(found) == len(set(found)) == sum(counts) > 0
        assert all(began - timedelta(seconds=1) <= tick <= datetime.now(UTC) for tick in found)
