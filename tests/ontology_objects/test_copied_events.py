"""Copies, exports and imports take the queue of events along: what waits, what could not be handled, and schedules."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.ontology.events.story import HANDLERS, TYPES, Ordered, Stock, finish, opened, session_at, statuses, stock
from typer.testing import CliRunner

from ontolake.cli import app
from ontolake.errors import Invalid
from ontolake.ontology import (
    EventSelection,
    HandlerContext,
    Schedule,
    Session,
    StorageBackendError,
    on_event,
    open_repository,
)
from ontolake.ontology.events.copies import queue_lines
from ontolake.ontology.moving.conversion import convert

from .conftest import fresh_memory

WAYS = [("sqlite", "objects"), ("objects", "sqlite"), ("objects", "objects"), ("sqlite", "sqlite")]
NIGHTLY = Schedule(Ordered(item="nightly"), "0 4 * * *", name="nightly")
START = datetime(2024, 1, 1, tzinfo=UTC)


def place(kind: str, folder: Path, name: str) -> str:
    return str(folder / f"{name}.db") if kind == "sqlite" else fresh_memory()


@on_event(Ordered)
def fail(context: HandlerContext[Ordered]) -> None:
    raise ValueError("no")


def shop(url: str) -> None:
    """A store with events that are done, dead, claimed, waiting for another attempt, and ready."""
    with session_at(url, event_max_attempts=1, event_backoff=1000.0) as session:
        session.ensure(Stock(id="x", count=1))
        session.commit(event=Ordered(item="x", event_id="done"))
        finish(session)
        session.commit(event=Ordered(item="x", event_id="dead"))
        session.run([fail], until_idle=True)
    with session_at(url, event_backoff=1000.0) as session:
        session.commit(event=Ordered(item="x", event_id="waiting"))
        session.run([fail], until_idle=True)
        session.ensure(Stock(id="y", count=1))
        session.commit(event=[Ordered(item="y", event_id="claimed"), Ordered(item="y", count=3, event_id="ready")])
        assert session.events.claim("", ["Ordered"], "somebody", 1000.0)
        assert session.events.advance("", NIGHTLY.schedule_id, None, START, None)
    with session_at(url, namespace="other") as session:
        session.commit(event=Ordered(item="z", event_id="elsewhere"))


def looks(url: str) -> Any:
    with session_at(url) as session:
        events = [one._replace(claimed_by=None, claimed_until=None, status="ready" if one.status == "claimed" else
                               one.status) for one in session.events.select(EventSelection())]
        letters = [letter.model_dump() for letter in session.dead_letters()]
        commits = [(commit.id, commit.time, commit.metadata) for commit in session.list_commits()]
        return events, letters, commits, session.events.last_tick("", NIGHTLY.schedule_id), stock(session)


@pytest.mark.parametrize(("old", "new"), WAYS)
def test_a_copy_has_the_queue_and_the_times_of_its_source(tmp_path: Path, old: str, new: str) -> None:
    source, target = place(old, tmp_path, "old"), place(new, tmp_path, "new")
    shop(source)
    one, two = open_repository(source), open_repository(target)
    done = convert(one, two)
    assert (done.events, done.schedules) == (7, 1)
    assert looks(target) == looks(source)
    assert convert(one, two).copied == 0, "there is nothing left to do"
    assert not list(two.check())
    two.close()
    with session_at(source) as session:  # the source goes on
        session.events.requeue(["dead"])
        finish_ready(session)
    before = looks(source)
    two = open_repository(target)
    assert convert(one, two).copied > 0
    one.close()
    two.close()
    assert looks(target) == before
    with session_at(target) as session:
        assert session.run([], schedules=[NIGHTLY], max_iterations=1).fired == 1
        assert session.run(HANDLERS, until_idle=True).handled > 0


def finish_ready(session: Session) -> None:
    while session.events.count(EventSelection(status="ready", namespace="")):
        session.run(HANDLERS, max_iterations=1)


def test_runners_of_the_source_are_told_of(tmp_path: Path) -> None:
    source, target = str(tmp_path / "old.db"), (tmp_path / "new").as_uri()
    with session_at(source) as session:
        session.commit(event=Ordered(item="x"))
        keeper = session.events.keeper()
        keeper.heartbeat("me", "", {})
        assert onto("convert", source, target)["runners"] == 1
        assert "1 runners handle events of" in CliRunner().invoke(app, ["convert", source, target]).stdout
        keeper.leave("me")
        keeper.close()
    assert onto("convert", source, target)["runners"] == 0


@pytest.mark.parametrize("kind", ["sqlite", "objects"])
def test_nothing_is_copied_over_another_queue(tmp_path: Path, kind: str) -> None:
    source, target = place("sqlite", tmp_path, "old"), place(kind, tmp_path, "new")
    with session_at(source) as session:
        session.commit(event=Ordered(item="x", event_id="theirs"))
    with session_at(target) as session:
        session.commit(event=Ordered(item="x", event_id="mine"))
    one, two = open_repository(source), open_repository(target)
    with pytest.raises(StorageBackendError, match="such as 'mine'"):
        convert(one, two)
    one.close()
    two.close()
    with session_at(target) as session:
        assert statuses(session) == {"mine": "ready"}


def onto(*arguments: str, code: int = 0) -> Any:
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new"), [("sqlite", "objects"), ("objects", "sqlite")])
def test_an_export_is_imported_with_its_events(tmp_path: Path, old: str, new: str) -> None:
    place = {"sqlite": lambda name: str(tmp_path / f"{name}.db"), "objects": lambda name: (tmp_path / name).as_uri()}
    source, target, file = place[old]("old"), place[new]("new"), str(tmp_path / "shop.jsonl")
    shop(source)
    assert onto("export", source, "--output", file)["events"] == 6, "what is done is left out, schedules are not"
    assert onto("export", source, "--type", "Stock", "--output", f"{file}.part")["events"] == 0
    opened(target).close()
    option = ("--db" if new == "sqlite" else "--storage-uri", target)
    assert onto("import", file, "--dry-run", *option)["would_import"]["events"] == 5
    assert onto("import", file, *option)["events"] == 5
    assert onto("import", file, *option)["events"] == 0, "once"
    events, letters, _, tick, rows = looks(source)
    copied = looks(target)
    assert copied[0] == [event._replace(commit_id=None) for event in events if event.status != "done"]
    assert (copied[1], copied[3], copied[4]) == (letters, tick, rows)
    with session_at(target) as session:
        session.events.requeue(["dead"])
        finish_ready(session)
        assert stock(session) == {"x": 3, "y": 5}
    before = looks(target)
    Path(file).write_text('{"kind": "entity", "type": "Stock", "fields": {"id": "new", "count": 1}}\n'
                          '{"kind": "event", "event": {"id": "ready", "type": "Ordered", "payload": {"item": "other"}, '
                          '"created_at": "2024-01-01", "available_at": "2024-01-01", "root_id": "ready"}}\n')
    assert "under the id 'ready'" in str(CliRunner().invoke(app, ["import", file, *option]).exception)
    assert looks(target) == before, "neither rows nor events were imported"


@pytest.mark.parametrize("line", [
    {"event": {"id": "x"}}, {"event": None}, {"kind": "schedule", "schedule": {"schedule_id": 3, "last_tick": ""}},
    {"event": {"id": "x", "type": "T", "payload": [], "created_at": "2024-01-01", "available_at": "2024-01-01",
               "root_id": "x"}},
    {"event": {"id": "x", "type": "T", "payload": {}, "created_at": "soon", "available_at": "2024-01-01",
               "root_id": "x"}},
    {"event": {"id": "x", "type": "T", "payload": {}, "created_at": "2024-01-01", "available_at": "2024-01-01",
               "root_id": "x", "state": "dead"}},
])  # fmt: skip
def test_a_line_that_is_no_event_is_refused(tmp_path: Path, line: dict[str, Any]) -> None:
    url, file = str(tmp_path / "shop.db"), tmp_path / "bad.jsonl"
    opened(url).close()
    file.write_text(json.dumps({"kind": "event", **line}) + "\n")
    bad = onto("import", str(file), "--db", url, code=3)["bad_lines"]
    assert [one["line"] for one in bad] == [1]
    with session_at(url) as session:
        assert statuses(session) == {}


def test_an_id_that_another_event_has_is_refused(tmp_path: Path) -> None:
    source, target = place("sqlite", tmp_path, "old"), fresh_memory()
    for url, item in ((source, "x"), (target, "y")):
        with session_at(url) as session:
            session.commit(event=[Ordered(item="z"), Ordered(item=item, event_id="e")])
    one, two = open_repository(source), open_repository(target)
    for here, there in ((one, two), (two, one)):
        with pytest.raises(Invalid, match="another event is queued under the id 'e'"):
            here.events.adopt(there.events.kept())
        assert here.events.count(EventSelection()) == 2
        assert len([*queue_lines(here.events.kept())]) == 2
    one.close()
    two.close()


def test_a_queue_that_goes_on_while_it_is_copied_is_read_again() -> None:
    source = fresh_memory()
    shop(source)
    repository: Any = open_repository(source)
    moved = []
    kept = repository.events.kept

    def late(*, done: bool = True) -> Any:
        if not moved:
            moved.append(True)
            with Session(source, entity_types=TYPES) as session:
                finish_ready(session)
        return kept(done=done)

    repository.events.kept = late
    target = open_repository(fresh_memory())
    convert(repository, target)
    assert target.head() == open_repository(source).head()
    assert target.events.kept() == kept()
    assert datetime.now(UTC) - timedelta(days=1) > START
    repository.close()
    target.close()
