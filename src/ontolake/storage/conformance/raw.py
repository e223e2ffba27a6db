"""Mixins that give the suite the raw bytes of a store: of one file, or of the objects under a prefix.

They bring tests of their own, for what can only happen there: a torn tail, a foreign file, a lost object.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import unquote, urlsplit

import pytest

from ontolake.errors import Corruption, Invalid, NotFound
from ontolake.storage.conformance.base import Fresh
from ontolake.storage.conformance.damage import DETECTED, DamageCases, Stored
from ontolake.storage.conformance.observe import Observation, difference
from ontolake.storage.conformance.workload import Op, Player, oracle_player
from ontolake.storage.types import Lsn, WalRecord

if TYPE_CHECKING:
    from ontolake.objects import ObjectStore

FOREIGN = {
    "text": b"Dear diary,\n" * 500,
    "one byte": b"x",
    "a SQLite file": b"SQLite format 3\x00" + bytes(4080),
    "random bytes": random.Random(1).randbytes(20000),
}


class RawFile(DamageCases):
    """For a store in one local file, at a URL that ends in its path. `class TestMine(RawFile, StorageConformance)`."""

    title = "Torn tails, foreign files"

    @classmethod
    def path(cls, where: str) -> Path:
        """The file of the store at `where`."""
        return Path(unquote(urlsplit(where).path))

    @classmethod
    def raw_blobs(cls, where: str) -> Mapping[str, bytes] | None:
        return {"": cls.path(where).read_bytes()}

    @classmethod
    def raw_write(cls, where: str, blobs: Mapping[str, bytes]) -> None:
        cls.path(where).write_bytes(blobs[""])

    def test_the_store_is_one_file(self, fresh: Fresh) -> None:
        """At rest nothing lies beside it."""
        where = fresh()
        before = set(self.path(where).parent.iterdir())
        with self.connect(where) as storage:
            storage.append_wal(storage.acquire_fence("writer"), [self.write(1)])
        assert set(self.path(where).parent.iterdir()) - before == {self.path(where)}

    def test_a_flipped_byte_where_the_file_begins_is_noticed(self, stored: Stored) -> None:
        """What says that the file is ours, and of which version and page size, is not believed when it is damaged."""
        for position in range(64):
            self._flip(stored, "", position, 1 << position % 8)

    def test_garbage_after_the_end_is_recovered_from(self, fresh: Fresh) -> None:
        """What a torn write leaves behind the log, of any length and content, is not taken for a part of it."""
        data, seen = self._at_rest(fresh(), self.story())
        for size in (1, 7, 8, 100, 4096, 50_000):
            for garbage in (bytes(size), b"\xff" * size, random.Random(size).randbytes(size)):
                where = fresh()
                self.raw_write(where, {"": data + garbage})
                with self.connect(where) as storage:
                    assert difference(self.observe(storage), seen) is None
                    lsn = storage.append_wal(storage.acquire_fence("writer"), [WalRecord(b"more")])
                    assert lsn == seen.durable + 1
                with self.connect(where) as storage:
                    assert list(storage.scan_wal(Lsn(seen.durable))) == [(lsn, WalRecord(b"more"))]

    def test_a_part_of_the_log_once_more_after_the_end_is_not_applied(self, fresh: Fresh) -> None:
        """Stale bytes of the log itself, as a reused disk block may hold them."""
        data, seen = self._at_rest(fresh(), self.story())
        for size in (50, 500, 5000, 20_000, len(data) - 4096):
            where = fresh()
            self.raw_write(where, {"": data + data[-size:]})
            assert self._judge(where, seen)

    def test_a_file_cut_short_never_gives_wrong_data(self, fresh: Fresh) -> None:
        """Cut into what was acknowledged last, or further back: `Corruption`, or the store as it once was."""
        ops = [*self.story(), Op("append", records=(self.write(70), WalRecord(b"note")))]
        states = self._states(ops)
        data, _ = self._at_rest(fresh(), ops)
        back = [*range(1, 64, 3), *range(64, 3 * self.page_size, 331), *range(3 * self.page_size, len(data), 9973)]
        for cut in back:
            where = fresh()
            self.raw_write(where, {"": data[:-cut]})
            try:
                with self.connect(where) as storage:
                    found = self.observe(storage)
            except Corruption:
                continue
            differences = [difference(found, state) for state in states]
            assert None in differences, f"{cut} bytes cut off: {differences[-1]}"

    def _at_rest(self, where: str, ops: list[Op]) -> tuple[bytes, Observation]:
        player = Player(lambda: self.connect(where, **self.sweep_knobs))
        for op in ops:
            player.do(op)
        seen = self.observe(player.storage)
        player.storage.close()
        return self.path(where).read_bytes(), seen

    def _states(self, ops: list[Op]) -> list[Observation]:
        """What the store held after each of the steps, and at the beginning."""
        oracle = oracle_player(self.page_size)
        states = [self.observe(oracle.storage)]
        for op in ops:
            oracle.do(op)
            states.append(self.observe(oracle.storage))
        return states

    @pytest.mark.parametrize("kind", FOREIGN)
    def test_a_file_that_is_not_ours_is_refused(self, fresh: Fresh, kind: str) -> None:
        where = fresh()
        self.raw_write(where, {"": FOREIGN[kind]})
        with pytest.raises(Invalid) as refused:
            self.connect(where)
        assert self.path(where).name in str(refused.value)
        assert self.path(where).read_bytes() == FOREIGN[kind]

    def test_a_directory_or_a_missing_folder_is_refused(self, fresh: Fresh) -> None:
        where = fresh()
        self.path(where).mkdir()
        with pytest.raises(Invalid) as refused:
            self.connect(where)
        assert self.path(where).name in str(refused.value)
        missing = fresh().replace(self.path(where).parent.name, "not-there")
        with pytest.raises(Invalid) as refused:
            self.connect(missing)
        assert "not-there" in str(refused.value)

    def test_an_empty_file_becomes_a_store(self, fresh: Fresh) -> None:
        where = fresh()
        self.path(where).touch()
        with self.connect(where) as storage:
            assert storage.durable_lsn() == 0


class RawObjects(DamageCases):
    """For a store of objects, at a URL that `ontolake.objects.open_store` takes."""

    title = "Lost and foreign objects"
    root: ClassVar[str] = "root.json"
    """The object that is read first."""

    @classmethod
    def objects(cls, where: str) -> ObjectStore:
        """The objects of the store at `where`."""
        from ontolake.objects import open_store

        return open_store(where)

    @classmethod
    def raw_blobs(cls, where: str) -> Mapping[str, bytes] | None:
        objects = cls.objects(where)
        blobs = {info.key: objects.get(info.key).data for info in objects.list()}
        objects.close()
        return blobs

    @classmethod
    def raw_write(cls, where: str, blobs: Mapping[str, bytes]) -> None:
        objects = cls.objects(where)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(objects.put, blobs.keys(), blobs.values()))
        objects.close()

    def test_a_flipped_byte_in_the_root_is_corruption(self, stored: Stored) -> None:
        """All over the object that is read first, where one digit makes another version or another page size."""
        places = [(position, bit) for position in range(len(stored.blobs[self.root])) for bit in (1, 2, 4)]
        for position, bit in random.Random(3).sample(places, min(len(places), self.flips)):
            assert self._flip(stored, self.root, position, bit) == DETECTED

    def test_a_lost_object_never_gives_wrong_data(self, fresh: Fresh) -> None:
        """With any one object gone an error says so, or every answer is right; only what was written last may be
        missing, since nobody can know of it."""
        ops, oracle, where = self.story(), oracle_player(self.page_size), fresh()
        player = Player(lambda: self.connect(where, **self.sweep_knobs))
        states = []
        for op in ops:
            player.do(op)
            oracle.do(op)
            states.append(self.observe(oracle.storage))
        player.storage.close()
        blobs = self.raw_blobs(where)
        assert blobs is not None
        for lost in blobs:
            place = fresh()
            self.raw_write(place, {name: data for name, data in blobs.items() if name != lost})
            try:
                with self.connect(place) as storage:
                    found = self.observe(storage)
            except (Corruption, NotFound, Invalid):
                continue
            differences = [difference(found, state) for state in states[-3:]]
            assert None in differences, f"without {lost}: {differences[-1]}"

    @pytest.mark.parametrize("name", ["root.json", "notes.txt"])
    def test_a_prefix_that_is_not_ours_is_refused(self, fresh: Fresh, name: str) -> None:
        """Something else lies there: it is named, and left alone."""
        where = fresh()
        self.raw_write(where, {name: b'{"dear": "diary"}'})
        with pytest.raises((Invalid, Corruption)) as refused:
            self.connect(where)
        assert where.rpartition("/")[2] in str(refused.value)
        assert self.raw_blobs(where) == {name: b'{"dear": "diary"}'}
