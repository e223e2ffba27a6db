"""Random lives of a queue against a naive one: who may claim what, how often it was tried, and what becomes of it."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule
from low import LOW
from marking import examples
from msgspec.structs import replace

from ontolake.ontology import Config, EventSelection, LeaseExpiredError, open_repository
from ontolake.ontology.events import Claim, Handled, QueueChange, QueuedEvent
from ontolake.ontology.events.letters import dead_letter
from ontolake.ontology.events.rules import in_seconds
from ontolake.ontology.repository.objects.queue.view import QueueView
from ontolake.ontology.repository.objects.upkeep import maintenance
from ontolake.ontology.repository.times import now_text, parse_time
from ontolake.ontology.sizes import DEFAULT

NAMESPACES = ["", "n"]
TYPES = ["A", "B"]


class Naive:
    """An event as simple as it can be."""

    def __init__(self, event: QueuedEvent) -> None:
        self.event = event
        self.status = "ready"
        self.attempts = 0
        self.handled: list[str] = []
        self.claim: str | None = None


class QueueMachine(RuleBasedStateMachine):
    claims: Bundle[Claim] = Bundle("claims")

    repository: Any
    store: Any
    sizes = DEFAULT

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.url = self.place()
        self.open()
        self.naive: list[Naive] = []
        self.number = 0

    def place(self) -> str:
        return str(Path(self.folder.name) / "queue.db")

    def open(self) -> None:
        self.repository = open_repository(self.url, config=Config(lock_timeout=60, sizes=self.sizes))
        self.store = self.repository.events

    def expire(self, claim: Claim) -> None:
        self.repository.db.execute("UPDATE event_claims SET expires_at = ? WHERE claim_id = ?",
                                   (in_seconds(-1), claim.claim_id))

    def teardown(self) -> None:
        self.repository.close()
        self.folder.cleanup()

    def made(self, namespace: str, event_type: str) -> QueuedEvent:
        self.number += 1
        return QueuedEvent(f"e{self.number}", namespace, event_type, '{"n":1}', now_text(), "root", 0)

    def of(self, claim: Claim) -> Naive | None:
        """The event of a claim that is still good."""
        return next((one for one in self.naive if one.claim == claim.claim_id), None)

    @rule(namespace=st.sampled_from(NAMESPACES), event_type=st.sampled_from(TYPES), again=st.booleans())
    def enqueue(self, namespace: str, event_type: str, again: bool) -> None:
        event = self.naive[-1].event if again and self.naive else self.made(namespace, event_type)
        new = all(one.event.id != event.id for one in self.naive)
        assert self.store.enqueue([event]) == int(new)
        if new:
            self.naive.append(Naive(event))

    @rule(target=claims, namespace=st.sampled_from(NAMESPACES), types=st.sets(st.sampled_from(TYPES), min_size=1))
    def claim(self, namespace: str, types: set[str]) -> Any:
        found = self.store.claim(namespace, sorted(types), "me", 1000.0)
        due = [one for one in self.naive if one.status == "ready" and one.event.namespace == namespace
               and one.event.event_type in types]  # fmt: skip
        if not due:
            assert found is None
            return multiple()
        assert found is not None
        assert found.event == due[0].event, "the oldest first"
        due[0].status, due[0].claim = "claimed", found.claim_id
        due[0].attempts += 1
        assert (found.attempt, list(found.handled)) == (due[0].attempts, due[0].handled)
        return found

    @rule(claim=consumes(claims))
    def run_out(self, claim: Claim) -> None:
        """The runner is gone, and its claim with it."""
        one = self.of(claim)
        self.expire(claim)
        if one is not None:
            one.status, one.claim = "ready", None

    @rule(claim=claims)
    def run_out_unnoticed(self, claim: Claim) -> None:
        self.run_out(claim)

    @rule(claim=claims, last=st.booleans(), emits=st.integers(0, 2), rolled_back=st.booleans(), commits=st.booleans())
    def handle(self, claim: Claim, last: bool, emits: int, rolled_back: bool, commits: bool) -> None:
        one = self.of(claim)
        handler = f"h{len(one.handled) if one else 0}"
        emitted = tuple(self.made(claim.event.namespace, "B") for _ in range(emits))
        change = QueueChange(emitted, Handled(claim, handler, last))
        try:
            with self.repository.transaction("me") as transaction:
                if rolled_back:
                    raise ZeroDivisionError
                if commits:
                    transaction.finish({}, queue=change)
                else:
                    transaction.finish_queue(change)
        except ZeroDivisionError:
            return
        except LeaseExpiredError:
            assert one is None
            return
        assert one is not None
        one.handled.append(handler)
        if last:
            one.status, one.claim = "done", None
        self.naive += map(Naive, emitted)

    @rule(claim=claims)
    def renew(self, claim: Claim) -> None:
        keeper = self.store.keeper()
        assert keeper.renew(claim, 1000.0) == (self.of(claim) is not None)
        keeper.close()

    @rule(claim=claims, counted=st.booleans(), later=st.booleans())
    def release(self, claim: Claim, counted: bool, later: bool) -> None:
        one = self.of(claim)
        self.store.release(claim, delay=1000.0 if later else 0.0, counted=counted)
        if one is not None:
            one.status, one.claim = "waiting" if later else "ready", None
            one.attempts -= not counted

    @rule(claim=claims, buried=st.booleans())
    def fail(self, claim: Claim, buried: bool) -> None:
        one = self.of(claim)
        try:
            if buried:
                self.store.bury(claim, dead_letter(claim.event, "h", claim.attempt, "why", parse_time(now_text())))
            else:
                self.store.fail(claim, error="why", delay=0.0)
        except LeaseExpiredError:
            assert one is None
            return
        assert one is not None
        one.status, one.claim = "dead" if buried else "ready", None

    @rule()
    def requeue(self) -> None:
        dead = [one for one in self.naive if one.status == "dead"]
        self.store.requeue([one.event.id for one in dead])
        for one in dead:
            one.status, one.attempts = "ready", 0

    @rule(status=st.sampled_from(["done", "dead"]))
    def purge(self, status: Any) -> None:
        gone = [one for one in self.naive if one.status == status]
        assert self.store.purge(EventSelection(status=status)) == len(gone)
        self.naive = [one for one in self.naive if one not in gone]

    @rule()
    def copy(self) -> None:
        """The queue of a copy looks the same."""
        kept = self.store.kept()
        assert [(one.event.id, one.attempts, list(one.handled)) for one in kept.events] == [
            (one.event.id, one.attempts, one.handled) for one in self.naive]
        for url in (":memory:", f"memory://copy-{uuid.uuid4().hex}"):
            other = open_repository(url)
            other.events.restore(kept)
            other.events.restore(kept)
            assert other.events.kept() == kept
            assert not list(other.check())
            other.close()

    @rule()
    def reopen(self) -> None:
        assert not list(self.repository.check())
        self.repository.close()
        self.open()

    @invariant()
    def looks_the_same(self) -> None:
        found = self.store.select(EventSelection())
        assert [(e.id, e.status, e.attempts, list(e.handled)) for e in found] == [
            (one.event.id, one.status, one.attempts, one.handled) for one in self.naive]
        dead = [one.event.id for one in self.naive if one.status == "dead"]
        assert sorted(letter.failed_event_id for letter in self.store.dead_letters()) == sorted(dead)


class ObjectsMachine(QueueMachine):
    """The same on objects, with room for so little that events move into pages and out of them all the time."""

    sizes = LOW

    def place(self) -> str:
        return f"memory://queue-{uuid.uuid4().hex}"

    def expire(self, claim: Claim) -> None:
        def run_out(view: QueueView) -> None:
            item = view.find([claim.event.id]).get(claim.event.id)
            if item is not None and item.state.held is not None and item.state.held.claim_id == claim.claim_id:
                held = replace(item.state.held, expires_at=in_seconds(-1))
                view.put(item, replace(item.state, held=held))

        self.store.queue.change("claim run out", run_out)

    @rule()
    def collect_garbage(self) -> None:
        found = maintenance.garbage(self.repository, grace=-1.0)
        maintenance.collect(self.repository, found.token, grace=-1.0)


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)
TestQueueOnObjects = ObjectsMachine.TestCase
TestQueueOnObjects.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)
