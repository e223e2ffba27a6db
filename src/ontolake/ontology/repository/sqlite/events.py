"""The queue of events in SQLite: in the same database as the commits, and so in the same transactions."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import apsw

from ontolake import faults
from ontolake.model.codecs import encode_datetime, json_text
from ontolake.ontology.errors import StorageBackendError, UnknownEventError
from ontolake.ontology.events.event import EventDeadLetter
from ontolake.ontology.events.letters import dead_letter
from ontolake.ontology.events.records import (
    Claim,
    EventSelection,
    KeptEvent,
    KeptLetter,
    KeptQueue,
    KeptSchedule,
    QueueChange,
    QueuedEvent,
    RunnerInfo,
    StoredEvent,
)
from ontolake.ontology.events.rules import STALE, check_copy, check_text, claim_lost, id_taken, in_seconds
from ontolake.ontology.repository.sqlite.beside import ENDLESS, Beside, is_private, write_transaction
from ontolake.ontology.repository.sqlite.control import EVENTS
from ontolake.ontology.repository.times import now_text, parse_time

if TYPE_CHECKING:
    from ontolake.ontology.repository.sqlite.base import SqliteRepository

_EVENT = "e.id, e.namespace, e.event_type, e.payload_json, e.created_at, e.root_event_id, e.chain_depth"
_LIVE = "EXISTS (SELECT 1 FROM event_claims AS c WHERE c.event_id = e.id AND c.expires_at > :now)"
_STATUS = f"""CASE WHEN e.state <> 'open' THEN e.state WHEN {_LIVE} THEN 'claimed'
    WHEN e.available_at > :now THEN 'waiting' ELSE 'ready' END"""


class SqliteEventStore:
    """The queue of a typed store in SQLite, whichever engine version it has."""

    def __init__(self, repository: SqliteRepository) -> None:
        self._repository = repository
        self._db = repository.db
        self._uri = repository.uri
        self._config = repository.config
        self._private = is_private(repository.uri)
        self._there = False
        self._claiming: dict[int, str] = {}

    # the tables
    def _ready(self) -> bool:
        """Whether there is a queue. Stores from before queues get one when something is queued."""
        if not self._there:
            self._there = bool(self._db.execute(
                "SELECT count(*) = 2 FROM pragma_table_info('events') WHERE name IN ('state', 'available_at')").get)
        return self._there

    def prepare(self) -> None:
        """See to it that there is a queue, inside a write transaction."""
        if self._ready():
            return
        for table in ("events", "event_claims", "dead_letters", "event_schedules", "sessions"):
            if self._db.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (table,)).get:
                if self._db.execute(f"SELECT 1 FROM {table}").get:
                    raise StorageBackendError(f"the table {table} of {self._uri!r} has rows of another layout",
                                              hint="handle its events with the version that queued them")
                self._db.execute(f"DROP TABLE {table}")
        for statement in EVENTS:
            self._db.execute(statement)

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        self._repository.check_writable()
        with write_transaction(self._db, self._uri):
            self.prepare()
            yield
            faults.reach(f"ontology: {what}, not yet durable")
        faults.reach(f"ontology: {what}")

    # queueing
    def enqueue(self, events: Sequence[QueuedEvent]) -> int:
        with self._writing("events queued"):
            return insert_events(self._db, events, None)

    def chain_size(self, root_id: str, limit: int) -> int:
        if not self._ready():
            return 0
        return int(self._db.execute("SELECT count(*) FROM (SELECT 1 FROM events WHERE root_event_id = ?1 AND id <> ?1 "
                                    "LIMIT ?2)", (root_id, limit)).get or 0)

    # handling
    def claim(self, namespace: str, event_types: Sequence[str], session_id: str, ttl: float) -> Claim | None:
        if not self._ready() or self._due(namespace, event_types) is None:
            return None
        with self._writing("event claimed"):
            row = self._due(namespace, event_types)  # another runner may have been first
            if row is None:
                return None
            event, attempts, handled = QueuedEvent(*row[1:8]), row[8], row[9]
            claim = Claim(event, uuid.uuid4().hex, attempts + 1, tuple(json.loads(handled)))
            self._db.execute("INSERT OR REPLACE INTO event_claims VALUES (?, ?, ?, ?, ?)",
                             (event.id, claim.claim_id, session_id, now_text(),
                              in_seconds(ENDLESS if self._private else ttl)))
            self._db.execute("UPDATE events SET attempts = attempts + 1 WHERE id = ?", (event.id,))
        return claim

    def _due(self, namespace: str, event_types: Sequence[str]) -> Any:
        """The oldest event that may be claimed: the oldest of each type is found through the index."""
        count = len(event_types)
        if count not in self._claiming:
            each = (f"SELECT * FROM (SELECT e.seq, {_EVENT}, e.attempts, e.handled_json FROM events AS e "
                    "WHERE e.namespace = :namespace AND e.event_type = :type{} AND e.state = 'open' "
                    f"AND e.available_at <= :now AND NOT {_LIVE} ORDER BY e.seq LIMIT 1)")
            self._claiming[count] = " UNION ALL ".join(map(each.format, range(count))) + " ORDER BY 1 LIMIT 1"
        given = {f"type{n}": name for n, name in enumerate(event_types)}
        return self._db.execute(self._claiming[count], {"namespace": namespace, "now": now_text(), **given}).fetchone()

    def keeper(self) -> SqliteKeeper:
        self._repository.check_writable()
        if not self._ready():
            with self._writing("queue made"):
                pass
        beside = None if self._private else Beside(self._uri, self._config, self._repository.seam_branch)
        return SqliteKeeper(beside, self._config.event_lease)

    def release(self, claim: Claim, *, delay: float = 0.0, counted: bool = True) -> None:
        with self._writing("claim released"):
            if holds(self._db, claim):
                self._put_back(claim, delay)
                if not counted:
                    self._db.execute("UPDATE events SET attempts = attempts - 1 WHERE id = ?", (claim.event.id,))

    def fail(self, claim: Claim, *, error: str, delay: float) -> None:
        with self._writing("failure noted"):
            check_claim(self._db, claim)
            self._put_back(claim, delay)
            self._db.execute("UPDATE events SET last_error = ? WHERE id = ?", (error, claim.event.id))

    def _put_back(self, claim: Claim, delay: float) -> None:
        self._db.execute("UPDATE events SET available_at = ? WHERE id = ?", (in_seconds(delay), claim.event.id))
        self._db.execute("DELETE FROM event_claims WHERE event_id = ?", (claim.event.id,))

    def bury(self, claim: Claim, letter: EventDeadLetter, told: Sequence[QueuedEvent] = ()) -> None:
        event, failed_at = claim.event, encode_datetime(letter.failed_at)
        with self._writing("dead letter written"):
            check_claim(self._db, claim)
            self._db.execute("UPDATE events SET state = 'dead', last_error = ?, done_at = ? WHERE id = ?",
                             (letter.error, failed_at, event.id))
            self._db.execute("INSERT INTO dead_letters (event_id, namespace, event_type, payload_json, handler_id, "
                             "attempts, last_error, failed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                             (event.id, event.namespace, event.event_type, event.payload_json, letter.handler,
                              letter.attempts, letter.error, failed_at))
            self._db.execute("DELETE FROM event_claims WHERE event_id = ?", (event.id,))
            insert_events(self._db, told, None)

    # schedules
    def last_tick(self, namespace: str, schedule_id: str) -> datetime | None:
        if not self._ready():
            return None
        found = self._db.execute("SELECT last_tick FROM event_schedules WHERE namespace = ? AND schedule_id = ?",
                                 (namespace, schedule_id)).get
        return None if found is None else parse_time(str(found))

    def advance(
        self, namespace: str, schedule_id: str, seen: datetime | None, tick: datetime, event: QueuedEvent | None
    ) -> bool:  # fmt: skip
        with self._writing("schedule advanced"):
            if self.last_tick(namespace, schedule_id) != seen:
                return False
            self._db.execute("INSERT OR REPLACE INTO event_schedules VALUES (?, ?, ?)",
                             (namespace, schedule_id, tick.astimezone(UTC).isoformat(timespec="microseconds")))
            if event is not None:
                insert_events(self._db, [event], None)
        return True

    # looking and looking after
    def select(self, selection: EventSelection, *, limit: int | None = None) -> list[StoredEvent]:
        if not self._ready():
            return []
        where, given = _condition(selection)
        rows: Any = self._db.execute(
            f"SELECT {_EVENT}, {_STATUS}, e.created_commit_id, e.attempts, e.available_at, e.handled_json, "
            "e.last_error, e.done_at, k.session_id, k.expires_at FROM events AS e LEFT JOIN event_claims AS k "
            f"ON k.event_id = e.id AND k.expires_at > :now WHERE {where} ORDER BY e.seq LIMIT :limit",
            {**given, "limit": -1 if limit is None else limit})  # fmt: skip
        return [_stored(row) for row in rows]

    def count(self, selection: EventSelection) -> int:
        if not self._ready():
            return 0
        where, given = _condition(selection)
        return int(self._db.execute(f"SELECT count(*) FROM events AS e WHERE {where}", given).get or 0)

    def get(self, event_id: str) -> StoredEvent:
        for found in self.select(EventSelection(id=event_id)):
            return found
        raise UnknownEventError(event_id)

    def dead_letters(self, namespace: str | None = None, *, limit: int | None = None) -> list[EventDeadLetter]:
        if not self._ready():
            return []
        rows: Any = self._db.execute(
            f"SELECT {_EVENT}, d.handler_id, d.attempts, d.last_error, d.failed_at FROM dead_letters AS d "
            "JOIN events AS e ON e.id = d.event_id WHERE ?1 IS NULL OR d.namespace = ?1 ORDER BY d.id LIMIT ?2",
            (namespace, -1 if limit is None else limit))  # fmt: skip
        return [dead_letter(QueuedEvent(*row[:7]), row[7], row[8], row[9], parse_time(row[10])) for row in rows]

    def requeue(self, event_ids: Sequence[str]) -> int:
        with self._writing("dead letters queued again"):
            for event_id in event_ids:
                self._db.execute("UPDATE events SET state = 'open', attempts = 0, available_at = ?, done_at = NULL "
                                 "WHERE id = ? AND state = 'dead'", (now_text(), event_id))
                if not self._db.changes():
                    raise UnknownEventError(event_id, "dead event")
                self._db.execute("DELETE FROM dead_letters WHERE event_id = ?", (event_id,))
        return len(event_ids)

    def purge(self, selection: EventSelection) -> int:
        where, given = _condition(selection)
        with self._writing("events purged"):
            chosen = f"SELECT e.id FROM events AS e WHERE {where} AND NOT {_LIVE}"
            self._db.execute(f"DELETE FROM dead_letters WHERE event_id IN ({chosen})", given)
            self._db.execute(f"DELETE FROM events WHERE id IN ({chosen})", given)
            purged = self._db.changes()
            self._db.execute("DELETE FROM event_claims WHERE NOT EXISTS (SELECT 1 FROM events WHERE id = event_id)")
        return purged

    # copies
    def kept(self, *, done: bool = True) -> KeptQueue:
        if not self._ready():
            return KeptQueue()
        rows: Any = self._db.execute(
            f"SELECT {_EVENT}, e.created_commit_id, e.state, e.attempts, e.available_at, e.handled_json, e.last_error, "
            "e.done_at, d.handler_id, d.attempts, d.last_error, d.failed_at FROM events AS e "
            "LEFT JOIN dead_letters AS d ON d.event_id = e.id WHERE ?1 OR e.state <> 'done' ORDER BY e.seq", (done,))
        events = [KeptEvent(QueuedEvent(*row[:7]), row[7], row[8], row[9], row[10], tuple(json.loads(row[11])), row[12],
                            row[13], None if row[17] is None else KeptLetter(*row[14:])) for row in rows]
        schedules: Any = self._db.execute("SELECT namespace, schedule_id, last_tick FROM event_schedules ORDER BY 1, 2")
        return KeptQueue(tuple(events), tuple(KeptSchedule(*row) for row in schedules))

    def restore(self, kept: KeptQueue) -> None:
        with self._writing("queue copied"):
            there: Any = self._db.execute("SELECT id FROM events")
            check_copy(self._uri, [row[0] for row in there], kept)
            for table in ("dead_letters", "event_claims", "event_schedules"):
                self._db.execute(f"DELETE FROM {table}")
            self._put(kept, "UPDATE SET state = excluded.state, attempts = excluded.attempts, available_at = "
                            "excluded.available_at, last_error = excluded.last_error, handled_json = "
                            "excluded.handled_json, done_at = excluded.done_at")

    def adopt(self, kept: KeptQueue, *, dry_run: bool = False) -> int:
        events = {one.event.id: one.event for one in kept.events}
        if dry_run:
            return count_new(self._db, events.values()) if self._ready() else len(events)
        with self._writing("events queued"):
            new = count_new(self._db, events.values())
            self._put(kept, "NOTHING")
            return new

    def _put(self, kept: KeptQueue, if_there: str) -> None:
        """Write what was kept of a queue; `if_there` says what becomes of an event that is in this one."""
        self._db.executemany(
            "INSERT INTO events (id, namespace, event_type, payload_json, created_at, root_event_id, chain_depth, "
            "created_commit_id, state, attempts, available_at, handled_json, last_error, done_at) VALUES "
            f"(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO {if_there}",
            [(*one.event, one.commit_id, one.state, one.attempts, one.available_at, json_text(list(one.handled)),
              one.error, one.done_at) for one in kept.events])  # fmt: skip
        letters = sorted([one for one in kept.events if one.letter], key=lambda one: one.done_at or "")
        self._db.executemany(
            "INSERT INTO dead_letters (event_id, namespace, event_type, payload_json, handler_id, attempts, "
            "last_error, failed_at) SELECT ?1, ?, ?, ?, ?, ?, ?, ? WHERE (SELECT state FROM events WHERE id = ?1) = "
            "'dead' ON CONFLICT (event_id) DO NOTHING",
            [(*one.event[:4], *one.letter) for one in letters if one.letter])
        self._db.executemany("INSERT OR IGNORE INTO event_schedules VALUES (?, ?, ?)", kept.schedules)

    # who is there
    def runners(self) -> list[RunnerInfo]:
        if not self._ready():
            return []
        rows: Any = self._db.execute("SELECT session_id, namespace, started_at, last_heartbeat, metadata_json "
                                     "FROM sessions ORDER BY started_at")
        return [RunnerInfo(row[0], row[1] or "", parse_time(row[2]), parse_time(row[3]), json.loads(row[4] or "{}"))
                for row in rows]


class SqliteKeeper:
    """Renews claims through a connection of its own; where nobody else can come, there is nothing to renew."""

    def __init__(self, beside: Beside | None, lease: float) -> None:
        self._beside = beside
        self._lease = lease

    def renew(self, claim: Claim, ttl: float) -> bool:
        if self._beside is None:
            return True
        with self._beside.writing() as db:
            if not holds(db, claim):
                return False
            db.execute("UPDATE event_claims SET expires_at = ? WHERE event_id = ?", (in_seconds(ttl), claim.event.id))
        return True

    def heartbeat(self, session_id: str, namespace: str, metadata: Mapping[str, Any]) -> None:
        if self._beside is None:
            return
        with self._beside.writing() as db:
            db.execute("INSERT INTO sessions VALUES (?, ?, ?3, ?3, ?4) ON CONFLICT (session_id) DO UPDATE SET "
                       "last_heartbeat = ?3", (session_id, namespace, now_text(), json_text(dict(metadata))))
            db.execute("DELETE FROM sessions WHERE last_heartbeat < ?", (in_seconds(-STALE * self._lease),))

    def leave(self, session_id: str) -> None:
        if self._beside is not None:
            with self._beside.writing() as db:
                db.execute("DELETE FROM sessions WHERE session_id = ?", (session_id,))

    def close(self) -> None:
        if self._beside is not None:
            self._beside.close()


# inside a write transaction


def apply_queue(db: apsw.Connection, change: QueueChange, commit_id: int | None, began: str) -> None:
    """Do to the queue what goes with a commit.

    Raises `LeaseExpiredError` if the claim was not good any more when the transaction began. Since then nobody else
    could take it, however long the transaction took.
    """
    done = change.handled
    if done is not None:
        check_claim(db, done.claim, began)
        event_id = done.claim.event.id
        if done.handler is not None:
            db.execute("UPDATE events SET handled_json = json_insert(handled_json, '$[#]', ?) WHERE id = ?",
                       (done.handler, event_id))
        if done.last:
            db.execute("UPDATE events SET state = 'done', last_error = NULL, done_at = ? WHERE id = ?",
                       (now_text(), event_id))
            db.execute("DELETE FROM event_claims WHERE event_id = ?", (event_id,))
    insert_events(db, change.queued, commit_id)
    faults.reach("ontology: queue changed")


def insert_events(db: apsw.Connection, events: Sequence[QueuedEvent], commit_id: int | None) -> int:
    """Queue events, and return how many are new. One that is queued already under its id is left alone."""
    for event in events:
        check_text(event)
    before = db.total_changes()
    db.executemany("INSERT INTO events (id, namespace, event_type, payload_json, created_at, root_event_id, "
                   "chain_depth, created_commit_id, available_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
                   "ON CONFLICT (id) DO NOTHING", [(*event, commit_id, now_text()) for event in events])
    new = db.total_changes() - before
    if new < len(events):
        count_new(db, events)
    return new


def count_new(db: apsw.Connection, events: Iterable[QueuedEvent]) -> int:
    """How many of these are not queued. Raises `Invalid` if another event is, under the id of one of them."""
    new = 0
    for event in events:
        same = db.execute("SELECT (namespace, event_type, payload_json) = (?, ?, ?) FROM events WHERE id = ?",
                          (*event[1:4], event.id)).get
        if same == 0:
            raise id_taken(event)
        new += same is None
    return new


def holds(db: apsw.Connection, claim: Claim, at: str | None = None) -> bool:
    """Whether a claim is good, now or at a moment of this transaction."""
    return db.execute("SELECT 1 FROM event_claims WHERE event_id = ? AND claim_id = ? AND expires_at > ?",
                      (claim.event.id, claim.claim_id, at or now_text())).get is not None


def check_claim(db: apsw.Connection, claim: Claim, at: str | None = None) -> None:
    if not holds(db, claim, at):
        raise claim_lost(claim)


def _condition(selection: EventSelection) -> tuple[str, dict[str, Any]]:
    given: dict[str, Any] = {"now": now_text()}
    parts = ["1"]
    for column, value in (("namespace", selection.namespace), ("event_type", selection.event_type),
                          ("id", selection.id)):  # fmt: skip
        if value is not None:
            parts.append(f"e.{column} = :{column}")
            given[column] = value
    if selection.before is not None:
        parts.append("e.created_at < :before")
        given["before"] = selection.before.astimezone(UTC).isoformat(timespec="microseconds")
    if selection.status is not None:
        parts.append(f"{_STATUS} = :status")
        given["status"] = selection.status
    return " AND ".join(parts), given


def _stored(row: Any) -> StoredEvent:
    event = QueuedEvent(*row[:7])
    status, commit_id, attempts, available, handled, error, done, by, until = row[7:]
    return StoredEvent(
        event.id, event.namespace, event.event_type, json.loads(event.payload_json), status,
        parse_time(event.created_at), commit_id, event.root_id, event.depth, attempts, parse_time(available),
        tuple(json.loads(handled)), error, None if done is None else parse_time(done), by,
        None if until is None else parse_time(until))
