"""C1 and C5: what was acknowledged survives every crash, and opening what a crash left is deterministic."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from ontolake.storage.conformance import crashes
from ontolake.storage.conformance.base import Base, Fresh, Opener, Start
from ontolake.storage.conformance.observe import difference
from ontolake.storage.conformance.tasks import play
from ontolake.storage.conformance.workload import Op, Player, compact, oracle_player, program
from ontolake.storage.protocol import Storage
from ontolake.storage.types import Lsn, PageId, WalRecord

SEEDS = 8


class DurabilityCases(Base):
    """C1 and C5."""

    title = "C1, C5 durability"

    def test_acknowledged_records_are_there_after_every_reopen(self, opener: Opener) -> None:
        """Each append is read back by a handle that did not make it, in the log and as a page."""
        for turn in range(8):
            with opener() as writer:
                token = writer.acquire_fence("writer")
                lsn = writer.append_wal(token, [WalRecord(b"note"), self.write(turn, turn % 3)])
            with opener() as reader:
                assert reader.durable_lsn() == reader.get_commit_lsn() == lsn == 2 * (turn + 1)
                assert reader.get_page(PageId(turn % 3), lsn).bytes == self.image(turn)
                assert list(reader.scan_wal(Lsn(lsn - 2))) == [
                    (lsn - 1, WalRecord(b"note")),
                    (lsn, self.write(turn, turn % 3)),
                ]

    def test_acknowledged_records_are_there_without_a_close(self, opener: Opener) -> None:
        """A second handle sees an append as soon as it is acknowledged, whatever becomes of the first."""
        writer = opener()
        token = writer.acquire_fence("writer")
        for turn in range(5):
            lsn = writer.append_wal(token, [self.write(turn)])
            with opener() as reader:
                assert reader.durable_lsn() == lsn
                assert reader.get_page(PageId(1), lsn).bytes == self.image(turn)

    def test_an_open_handle_follows_what_others_write(self, opener: Opener) -> None:
        reader, writer = opener(), opener()
        token = writer.acquire_fence("writer")
        for turn in range(5):
            lsn = writer.append_wal(token, [self.write(turn)])
            assert reader.durable_lsn() == lsn
            assert reader.get_page(PageId(1), lsn).bytes == self.image(turn)
            assert next(iter(reader.scan_wal(Lsn(lsn - 1)))) == (lsn, self.write(turn))

    def test_flush_settles_and_changes_nothing(self, storage: Storage) -> None:
        token = storage.acquire_fence("writer")
        storage.flush()
        storage.append_wal(token, [self.write(1)])
        before = self.observe(storage)
        storage.flush()
        storage.flush()
        assert self.observe(storage) == before

    @pytest.mark.parametrize("seed", range(SEEDS))
    def test_killed_at_every_write_step(self, seed: int, fresh: Fresh, start: Start) -> None:
        """The writer is ended at every step of its writes in turn: nothing acknowledged is lost, nothing is torn.

        A first run counts the fault points of a seeded workload; each further run, on a new store, ends at one
        of them. Every distinct step of the workload is among them.
        """
        ops = program(seed, self.crash_steps, self.page_size)
        counted = crashes.run(start, fresh(), ops, -1)
        assert counted.steps is not None
        appends = sum(op.kind == "append" for op in ops)
        assert len(counted.steps) > appends > 0, "a backend has a fault point at every step of an append"
        points = crashes.choose_points(counted.steps, -(-self.crash_runs // SEEDS), seed)
        steps = counted.steps
        kinds = {crashes.kind_of(step) for step in steps}
        assert {crashes.kind_of(steps[n]) for n in points} == kinds

        def attempt(n: int, where: str) -> None:
            try:
                crashes.check_recovered(self, where, ops, crashes.run(start, where, ops, n))
            except BaseException as error:
                error.add_note(f"seed {seed}, ended at fault point {n} ({steps[n]}), in {ops}")
                raise

        self._all(attempt, points, [fresh() for _ in points])

    def _all(self, attempt: Callable[..., None], *arguments: Iterable[object]) -> None:
        """Make all attempts, two at a time if each has a process of its own."""
        if self.processes:
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(attempt, *arguments))
        else:
            list(map(attempt, *arguments))

    def test_killed_while_recovering(self, fresh: Fresh, start: Start) -> None:
        """A crash while the store is opened after a crash harms nothing: the next open finishes the work."""
        ops = [Op("acquire"), *program(99, 8, self.page_size)]
        steps = crashes.run(start, fresh(), ops, -1).steps
        assert steps is not None
        firsts = crashes.choose_points(steps, self.recovery_runs, seed=1)[: self.recovery_runs]
        points = [(n, i % 4) for i, n in enumerate(firsts)]

        def attempt(point: tuple[int, int], where: str) -> None:
            ended = crashes.run(start, where, ops, point[0])
            crashes.run(start, where, [Op("reopen"), Op("compact")], point[1])
            crashes.check_recovered(self, where, ops, ended)

        self._all(attempt, points, [fresh() for _ in points])

    def test_killed_at_any_moment(self, fresh: Fresh, start: Start) -> None:
        """Ended from outside, at whatever it does, its own background work included."""
        if not self.processes:
            pytest.skip("the store ends with its process")

        def attempt(seed: int, where: str) -> None:
            ops = program(1000 + seed, 30, self.page_size)
            ended = crashes.listen(start(play, where, ops, -1, False), ops, kill_after=3 + 2 * seed)
            crashes.check_recovered(self, where, ops, ended)

        self._all(attempt, range(10), [fresh() for _ in range(10)])

    def test_replay_gives_the_same_answer_every_time(self, opener: Opener) -> None:
        """Opening and reading is a function of what is stored: it changes nothing, whichever handle does it."""
        player = Player(lambda: opener(**self.sweep_knobs))
        oracle = oracle_player(self.page_size)
        for op in program(7, 30, self.page_size):
            assert player.do(op) == oracle.do(op)
        expected = self.observe(oracle.storage)
        for _ in range(3):
            with opener() as storage:
                assert difference(self.observe(storage), expected) is None
        with opener() as storage:
            compact(storage)
            assert difference(self.observe(storage), expected) is None
