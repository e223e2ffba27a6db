"""Snapshots: how often they are taken, how many are kept, and the background task that clears the others away.

A snapshot is the state of an entity at the end of its seq. It only saves work: all can be dropped and nothing is lost.
Commits add them; removing them is left to a task of its own, which never runs inside a commit.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import apsw
from msgspec import Struct

from ontolake.documents.database import SpaceDatabase, row, rows
from ontolake.documents.read import replay
from ontolake.documents.values import codec
from ontolake.documents.write.transactions import SNAPSHOT
from ontolake.errors import Invalid, OntolakeError
from ontolake.faults import reach

_log = logging.getLogger("ontolake.documents")

_NEWEST = "SELECT seq, length(value) FROM snapshot WHERE branch = ? AND id = ? ORDER BY seq DESC LIMIT ?"
_ALL = -1
_DISTANCE = "SELECT count(*) FROM revision WHERE branch = ? AND id = ? AND seq > ? AND seq <= ?"
_DELETE = "DELETE FROM snapshot WHERE branch = ? AND id = ? AND seq = ?"
_WITH_SNAPSHOTS = """\
SELECT branch, id FROM snapshot WHERE (branch, id) > (?, ?)
GROUP BY branch, id ORDER BY branch, id LIMIT ?"""
# The last column says how many of an entity's last revisions, as far as they matter, are patches behind its snapshot.
_HEADS = """\
SELECT h.branch, h.id, h.seq, (
  SELECT count(*) FROM (
    SELECT op FROM revision r
    WHERE r.branch = h.branch AND r.id = h.id
      AND r.seq > coalesce((SELECT max(seq) FROM snapshot WHERE branch = h.branch AND id = h.id), -1)
    ORDER BY r.seq DESC, r.op_index DESC LIMIT ?3)
  WHERE op = 'patch')
FROM head h WHERE (h.branch, h.id) > (?1, ?2) ORDER BY h.branch, h.id LIMIT ?4"""
_BATCH = 200

EntityPlace = tuple[str, str]
"""A branch and an id."""


class Policy(Struct, frozen=True):
    """`every` patches of an entity make a snapshot, 0 for never. `keep` newest ones stay.

    Of the older ones as many stay as are needed to keep any moment within `spacing` revisions of one, so that reading
    the past costs no more the longer the history gets; 0 lets all of them go.
    """

    every: int = 10
    keep: int = 2
    spacing: int = 50

    def __post_init__(self) -> None:
        for name, least in (("every", 0), ("keep", 1), ("spacing", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise Invalid(f"{name} must be an integer, {least} or more, not {value!r}")


class SnapshotCompaction(NamedTuple):
    """What a compaction did, or would do."""

    removed: int
    bytes: int
    added: int


def superfluous(seqs: Sequence[int], distances: Sequence[int], policy: Policy, *, anchored: bool) -> list[int]:
    """Which of an entity's snapshots can go. `distances` says how many revisions lie between each and the one before.

    The distance of the first one counts from the start of the history. With `anchored` something else lies before it,
    a parent branch or older snapshots, and it stays.
    """
    gone: list[int] = []
    since_kept = 0
    for number, seq in enumerate(seqs[: max(len(seqs) - policy.keep, 0)]):
        since_kept += distances[number]
        if policy.spacing and ((anchored and number == 0) or since_kept + distances[number + 1] > policy.spacing):
            since_kept = 0
        else:
            gone.append(seq)
    return gone


class Snapshots:
    """The snapshots of a space, as `space.snapshots`."""

    def __init__(self, database: SpaceDatabase) -> None:
        self.policy = Policy()
        """May be replaced at any time; holds for this process and from then on."""
        self.pause = 5.0
        """Seconds between two rounds of the background task: the longer, the less is read to remove the same."""
        self._database = database
        self._lock = threading.Lock()
        self._added: dict[EntityPlace, int] = {}
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def compact(self, *, dry_run: bool = False) -> SnapshotCompaction:
        """Bring all snapshots in line with the policy: remove what is not needed, and add what is missing.

        With `dry_run` nothing is changed. Works in many short transactions, between which others can write.
        """
        removed = freed = added = 0
        policy = self.policy
        for entities in self._pages(lambda connection, after: rows(connection, _WITH_SNAPSHOTS, (*after, _BATCH))):
            number, size = self._thin([(branch, id, _ALL) for branch, id in entities], policy, dry_run)
            removed, freed = removed + number, freed + size
        if policy.every:
            for heads in self._pages(
                lambda connection, after: rows(connection, _HEADS, (*after, policy.every, _BATCH))
            ):
                far = [(branch, id, seq) for branch, id, seq, patches in heads if patches >= policy.every]
                added += len(far) if dry_run or not far else self._add(far)
        return SnapshotCompaction(removed, freed, added)

    def _pages(
        self, select: Callable[[apsw.Connection, EntityPlace], list[Any]]
    ) -> Iterator[list[Any]]:
        """Rows that start with a branch and an id, in pages; `select` gives those behind an entity."""
        after: EntityPlace = ("", "")
        while True:
            with self._database.read as connection:
                page = select(connection, after)
            if not page:
                return
            yield page
            after = (page[-1][0], page[-1][1])

    def _thin(
        self, entities: Sequence[tuple[str, str, int]], policy: Policy, dry_run: bool = False
    ) -> tuple[int, int]:
        """Remove superfluous snapshots, for each branch and id among the newest so many. Returns number and bytes."""
        removed = freed = 0
        with self._database.read if dry_run else self._database.write as connection:
            for branch, id, newest in entities:
                sizes = dict(rows(connection, _NEWEST, (branch, id, newest))[::-1])
                if len(sizes) <= policy.keep:
                    continue
                seqs = list(sizes)
                distances = [
                    row(connection, _DISTANCE, (branch, id, since, seq))[0]
                    for since, seq in zip([-1, *seqs], seqs, strict=False)
                ]
                anchored = len(seqs) == newest or self._database.lineage(branch)[0] is not None
                gone = superfluous(seqs, distances, policy, anchored=anchored)
                removed += len(gone)
                freed += sum(sizes[seq] for seq in gone)
                if not dry_run:
                    connection.executemany(_DELETE, [(branch, id, seq) for seq in gone])
                    reach("documents: snapshots removed")
        return removed, freed

    def _add(self, heads: Sequence[tuple[str, str, int]]) -> int:
        """Write snapshots of some entities at the seqs of their heads."""
        added = 0
        with self._database.write as connection:
            for branch, id, seq in heads:
                found = replay.find(connection, self._database.view(branch, seq), id)
                if found.document is not None:
                    connection.execute(SNAPSHOT, (branch, id, seq, codec.encode(found.document)))
                    added += 1
            reach("documents: snapshots added")
        return added

    # in the background

    def note(self, entities: Sequence[EntityPlace]) -> None:
        """Entities have got snapshots: clear the older ones away some time soon."""
        with self._lock:
            for entity in entities:
                self._added[entity] = self._added.get(entity, 0) + 1
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="ontolake-snapshots", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self.pause):
            with self._lock:
                policy, added = self.policy, self._added
                self._added = {}
                if not added:
                    self._thread = None
                    return
            # What the last round left, and one more to measure from: the older ones need not be looked at again.
            entities = [(branch, id, count + policy.keep + 1) for (branch, id), count in added.items()]
            try:
                for start in range(0, len(entities), _BATCH):
                    if self._stop.is_set():
                        return
                    self._thin(entities[start : start + _BATCH], policy)
            except OntolakeError as error:
                # Nothing is lost: they are only not cleared away until the next snapshot or compact().
                _log.info("old snapshots of %s stay for now: %s", self._database.url, error)

    def stop(self) -> None:
        """End the background task, and wait for it."""
        self._stop.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()
