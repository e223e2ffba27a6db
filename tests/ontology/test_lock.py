"""The write lock: one holder at a time, renewed while it is held, free again when its holder is gone."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest
from clock import Clock
from pausing import paused
from waiting import wait_for

from ontolake import faults
from ontolake.ontology import LeaseExpiredError, LockContentionError, MigrationResult, Session

from .conftest import fresh_url
from .processes import Process, process
from .shop import ENTITIES, RELATIONS, Customer
from .test_migration import filled, second, split


def session_at(url: str, engine: str | None = None, **config: Any) -> Session:
    return Session(url, entity_types=ENTITIES, relation_types=RELATIONS, engine_version=engine, config=config)


def holder(session: Session) -> tuple[str, str] | None:
    """Who holds the lock, and until when."""
    found: Any = session.repository.db.execute(  # type: ignore[attr-defined]
        "SELECT owner_id, expires_at FROM locks").fetchone()
    return found


def test_a_hold_lasts_over_several_commits_and_then_ends(url: str, engine: str) -> None:
    session, other = session_at(url, engine), session_at(url, lock_timeout=0.05)
    with session.exclusive():
        for number in range(3):
            session.ensure(Customer(id="c", name=f"Ada {number}"))
            assert session.commit() == number + 1
            other.ensure(Customer(id="d", name="Bob"))
            with pytest.raises(LockContentionError, match="holds the write lock"):
                other.commit()
            with pytest.raises(LockContentionError), other.exclusive():
                raise AssertionError("unreachable")
    assert holder(session) is None
    assert other.commit() == 4
    other.close()
    session.close()


@pytest.mark.slow
def test_a_hold_is_renewed_in_the_background(url: str) -> None:
    session, other = session_at(url, lease_ttl=6.0), session_at(url, lock_timeout=0.05)
    with session.exclusive():
        first = holder(session)
        assert first is not None
        wait_for(lambda: holder(other) != first)  # nobody writes meanwhile
        again = holder(other)
        assert again is not None
        assert again[0] == first[0]
        assert again[1] > first[1]
        with pytest.raises(LockContentionError):
            other.repository.acquire_lease("other")
        session.ensure(Customer(id="c", name="Ada"))
        assert session.commit() == 1
    other.close()
    session.close()


def time_of(text: str) -> float:
    from ontolake.ontology.repository.times import parse_time

    return parse_time(text).timestamp()


def test_holds_may_be_nested(native: str) -> None:
    session, other = session_at(native), session_at(native, lock_timeout=0.01)
    with session.exclusive():
        with session.exclusive():
            pass
        with pytest.raises(LockContentionError):
            other.repository.acquire_lease("other")
        session.ensure(Customer(id="c", name="Ada"))
        session.commit()
        session.repository.drop_type("entity", "Customer")
    assert other.repository.acquire_lease("other").owner_id == "other"
    other.close()
    assert holder(session) is None, "closing lets go of it"
    session.close()


HOLD = """
    import sys
    from ontolake.ontology import LeaseExpiredError, Session
    from ontology.shop import ENTITIES, RELATIONS, Customer
    url, ttl = sys.argv[1:]
    session = Session(url, entity_types=ENTITIES, relation_types=RELATIONS, config={"lease_ttl": float(ttl)})
    with session.exclusive():
        print("held", flush=True)
        sys.stdin.readline()
        session.ensure(Customer(id="c", name="too late"))
        try:
            print(session.commit(), flush=True)
        except LeaseExpiredError as error:
            print("LeaseExpiredError", session.pending, flush=True)
"""


@pytest.mark.slow
def test_a_holder_that_is_killed_is_out_when_its_time_is(native: str, engine: str) -> None:
    session = session_at(native, engine, lock_timeout=30)
    with process(HOLD, native, "1") as other:
        assert other.line() == "held"
        other.signal(signal.SIGKILL)
        other.wait()
        found = holder(session)
        assert found is not None
        session.ensure(Customer(id="c", name="Ada"))
        assert session.commit() == 1
        assert time.time() >= time_of(found[1]), "not a moment earlier"
    session.close()


@pytest.mark.slow
@pytest.mark.parametrize("taken", ["taken by another", "free", "taken and released"])
def test_a_writer_whose_hold_ran_out_never_commits(native: str, engine: str, taken: str) -> None:
    session = session_at(native, engine, lock_timeout=30)
    with process(HOLD, native, "0.5") as other:
        assert other.line() == "held"
        with paused(other.pid):
            found = holder(session)
            assert found is not None
            if taken == "free":
                wait_for(lambda: time.time() > time_of(found[1]))
            else:
                session.repository.acquire_lease("me")
                session.repository.release_lease("me") if taken == "taken and released" else None
            other.tell("go on")
        assert other.line() == "LeaseExpiredError 1"
        assert other.wait() == 0
    assert session.repository.head() == 0
    session.close()


def test_a_commit_may_take_longer_than_the_hold_lasts(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session, other, clock = session_at(url, lease_ttl=600), session_at(url, lock_timeout=0.01), Clock(monkeypatch)

    def dawdle(step: str) -> None:
        if step == "ontology: rows written":
            clock.turn_forward(601)
            held = holder(other)
            assert held is not None
            assert time.time() > time_of(held[1])

    with session.exclusive():
        session.ensure(Customer(id="c", name="Ada"))
        with faults.arm(dawdle):
            assert session.commit() == 1, "nobody could take the lock while it was written"
        with pytest.raises(LockContentionError):
            other.repository.acquire_lease("other")
        session.ensure(Customer(id="c", name="Bob"))
        assert session.commit() == 2
    other.close()
    session.close()


def test_a_migration_may_take_longer_than_the_hold_lasts(
    native: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(native, engine).close()
    types, clock = second(), Clock(monkeypatch)
    session = Session(native, entity_types=list(types[:2]), relation_types=[types[2]], config={"lease_ttl": 600})

    def slowly(row: dict[str, Any]) -> dict[str, Any]:
        clock.turn_forward(601)
        held = holder(session)
        assert held is not None
        assert time.time() > time_of(held[1])
        return split(row)

    with session.exclusive():
        result = session.migrate(dry_run=False, force=True, upgraders={("Person", 1): slowly})
        assert isinstance(result, MigrationResult)
        assert result.commit_id == 3
    session.validate()
    session.close()


def test_a_lost_hold_is_reported_and_what_was_declared_is_kept(native: str, engine: str) -> None:
    session, other = session_at(native, engine), session_at(native)
    with session.exclusive():
        session.repository.db.execute(  # type: ignore[attr-defined]
            "UPDATE locks SET owner_id = 'thief'")
        session.ensure(Customer(id="c", name="Ada"))
        for _ in range(2):
            with pytest.raises(LeaseExpiredError, match="'thief' has it now"):
                session.commit()
        other.repository.db.execute("DELETE FROM locks")  # type: ignore[attr-defined]
        with pytest.raises(LeaseExpiredError, match="it ran out"):
            session.commit()
        with pytest.raises(LeaseExpiredError), session.exclusive():
            raise AssertionError("unreachable")
        with pytest.raises(LeaseExpiredError):
            session.repository.renew_lease(session.session_id)
        assert session.pending == 1
    assert session.commit() == 1
    other.close()
    session.close()


TURNS = """
    import sys
    from ontolake.ontology import Session
    from ontology.shop import ENTITIES, RELATIONS, Customer
    url, name = sys.argv[1:]
    session = Session(url, entity_types=ENTITIES, relation_types=RELATIONS, config={"lock_timeout": 60})
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(8):
        with session.exclusive():
            before = session.query().entities(Customer).where(Customer.id == "count").first()
            session.ensure(Customer(id="count", name=name, score=before.score + 1))
            session.commit()
            session.ensure(Customer(id="count", name=name, score=before.score + 2))
            session.commit()
"""


@pytest.mark.slow
def test_holders_take_turns_and_never_interleave(tmp_path: Path, engine: str) -> None:
    url = fresh_url("native", tmp_path)
    session = session_at(url, engine)
    session.ensure(Customer(id="count", name="start"))
    session.commit()
    running = [Process(TURNS, url, name) for name in ("a", "b")]
    for one in running:
        assert one.line() == "ready"
    for one in running:
        one.tell("go")
    for one in running:
        assert one.wait() == 0
    states = session.query().entities(Customer).with_history().collect()
    assert [state.score for state in states] == list(range(33))
    names = [state.name for state in states][1:]
    assert names[::2] == names[1::2], "two commits in a row by each"
    session.close()
