"""Damage: one flipped byte anywhere is `Corruption` or harmless, never a wrong answer and never fewer records."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest

from ontolake.errors import Corruption
from ontolake.storage.conformance.base import Base, Fresh
from ontolake.storage.conformance.observe import Observation, difference
from ontolake.storage.conformance.workload import Op, Player, compact, oracle_player, spell
from ontolake.storage.types import WalRecord

DETECTED, HARMLESS = "detected", "harmless"


class Stored(NamedTuple):
    """A store at rest: its place, its blobs, and what it answers."""

    where: str
    blobs: Mapping[str, bytes]
    seen: Observation


class DamageCases(Base):
    """Needs `raw_blobs` and `raw_write`; the mixins `RawFile` and `RawObjects` give them."""

    title = "Damage"

    @pytest.fixture
    def stored(self, fresh: Fresh) -> Iterator[Stored]:
        """Pages and records on three branches, part of them indexed and compacted, part in the tail of the log.

        A test that damages it repairs it as well: to look at a damaged store changes nothing.
        """
        where = fresh()
        player = Player(lambda: self.connect(where, **self.sweep_knobs))
        oracle = oracle_player(self.page_size)
        for op in self.story():
            assert player.do(op) == oracle.do(op)
        seen = self.observe(player.storage)
        assert difference(seen, self.observe(oracle.storage)) is None
        player.storage.close()
        blobs = self.raw_blobs(where)
        if blobs is None:
            pytest.skip("this backend gives no access to its raw bytes")
        yield Stored(where, blobs, seen)
        assert self.raw_blobs(where) == blobs

    def story(self) -> list[Op]:
        """The steps that make the store: every kind that leaves something, the last ones after the compaction."""
        kinds = ["acquire", *["append"] * 2, "branch", *["append"] * 4, "branch", *["append"] * 3, "floor", "compact"]
        kinds += ["append", "append", "renew", "append", "reopen", "append"]
        chance = random.Random(11)
        return spell([(kind, chance.randbytes(20)) for kind in kinds], self.page_size)

    def test_one_flipped_byte_anywhere_is_noticed_or_harmless(self, stored: Stored) -> None:
        """Positions spread over every blob: whatever is read is right, or `Corruption` says that it cannot be read."""
        outcomes = {
            (name, position): self._flip(stored, name, position, bit)
            for name, position, bit in spread_positions(stored.blobs, self.flips)
        }
        assert len(outcomes) >= min(self.flips, sum(len(blob) for blob in stored.blobs.values()))
        assert DETECTED in outcomes.values(), "not one of so many flips was noticed"

    def test_a_flipped_byte_in_a_live_record_is_corruption(self, stored: Stored) -> None:
        """Wherever a record's bytes lie, at least one of the places is looked at when everything is read."""
        records = live_records(stored.seen)
        records = records[:: 1 + 10 * len(records) // self.flips]
        places = {record: list(occurrences(stored.blobs, record.bytes)) for record in records}
        if not any(places.values()):
            pytest.skip("this backend does not store records as they are")
        detected = flipped = 0
        for i, (record, found) in enumerate(places.items()):
            assert found, "some records are stored as they are, this one is not"
            within = [(name, start + (37 * i) % len(record.bytes)) for name, start in found]
            outcomes = [self._flip(stored, name, position, 1 << i % 8) for name, position in within]
            assert DETECTED in outcomes, f"a flipped byte in record {record.bytes[:8].hex()}… goes unnoticed"
            detected += outcomes.count(DETECTED)
            flipped += len(outcomes)
        assert detected >= flipped / 2

    def test_writing_on_a_damaged_store_loses_nothing(self, fresh: Fresh, stored: Stored) -> None:
        """Damage in the newest records is not taken for the remains of a crash and written over."""
        newest = live_records(stored.seen)[-3:]
        for record in newest:
            for name, start in occurrences(stored.blobs, record.bytes):
                where = fresh()
                damaged = _flipped(stored.blobs[name], start + len(record.bytes) // 2, 0x40)
                self.raw_write(where, {**stored.blobs, name: damaged})
                try:
                    with self.connect(where) as storage:
                        storage.append_wal(storage.acquire_fence("writer"), [WalRecord(b"more")])
                        compact(storage)
                except Corruption:
                    pass
                assert self._judge(where, stored.seen, appended=b"more") in (DETECTED, HARMLESS)

    def _flip(self, stored: Stored, name: str, position: int, bit: int) -> str:
        """What becomes of one flipped bit, which is flipped back in the end."""
        whole = stored.blobs[name]
        self.raw_write(stored.where, {name: _flipped(whole, position, bit)})
        try:
            return self._judge(stored.where, stored.seen)
        except BaseException as error:
            error.add_note(f"with bit {bit:#x} of byte {position} of {name or 'the file'} flipped")
            raise
        finally:
            self.raw_write(stored.where, {name: whole})

    def _judge(self, where: str, seen: Observation, appended: bytes | None = None) -> str:
        """Read everything. Anything but `Corruption` or the same answers fails the test."""
        try:
            with self.connect(where) as storage:
                found = self.observe(storage)
        except Corruption:
            return DETECTED
        if appended is not None and found.durable == seen.durable + 1:
            assert found.logs["main"][-1] == (found.durable, WalRecord(appended))
            found.logs["main"].pop()
            pages = {key: versions for key, versions in found.pages.items() if key[1] in range(seen.durable + 1)}
            expected = {key: versions for key, versions in seen.pages.items() if key in pages}
            assert (pages, found.logs) == (expected, seen.logs)
            return HARMLESS
        wrong = difference(found, seen)
        assert wrong is None, f"a wrong answer: {wrong}"
        return HARMLESS


def _flipped(blob: bytes, position: int, bit: int) -> bytes:
    changed = bytearray(blob)
    changed[position] ^= bit
    return bytes(changed)


def live_records(seen: Observation) -> list[WalRecord]:
    """The records that the branches see, in the order of the log, those too short to be told apart left out."""
    found = {lsn: record for log in seen.logs.values() for lsn, record in log}
    return [record for _, record in sorted(found.items()) if len(record.bytes) >= 16]


def occurrences(blobs: Mapping[str, bytes], wanted: bytes) -> Iterator[tuple[str, int]]:
    """Every blob and position where these bytes lie."""
    for name, blob in blobs.items():
        at = blob.find(wanted)
        while at >= 0:
            yield name, at
            at = blob.find(wanted, at + 1)


def spread_positions(blobs: Mapping[str, bytes], count: int, seed: int = 5) -> list[tuple[str, int, int]]:
    """About `count` bytes to flip, with the bit: some of every blob, more of big ones, small ones whole if it fits."""
    chance = random.Random(seed)
    filled = {name: blob for name, blob in blobs.items() if blob}
    total = sum(len(blob) for blob in filled.values())
    chosen: list[tuple[str, int, int]] = []
    for name, blob in sorted(filled.items(), key=lambda item: len(item[1])):
        share = max(count // (2 * len(filled)), count * len(blob) // total) + 1
        positions = range(len(blob)) if len(blob) <= share else sorted(chance.sample(range(len(blob)), share))
        chosen += [(name, position, 1 << chance.randrange(8)) for position in positions]
    return chosen
