"""C4: one writer at a time. A token that was superseded, released or has expired writes nothing."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ontolake.errors import Contended, Fenced
from ontolake.storage.conformance.base import Base, Opener, until_clock
from ontolake.storage.protocol import Storage
from ontolake.storage.types import FenceToken, Lsn, WalRecord


class FencingCases(Base):
    """C4, in one process."""

    title = "C4 fencing"

    racers = 4

    def test_a_new_writer_fences_the_old_one(self, opener: Opener) -> None:
        """Through one handle or two, the old token is refused, saying which epoch rules now."""
        first, second = opener(), opener()
        old = first.acquire_fence("a")
        first.append_wal(old, [WalRecord(b"a")])
        new = second.acquire_fence("b")
        assert new.epoch > old.epoch
        for handle in (first, second):
            with pytest.raises(Fenced) as refused:
                handle.append_wal(old, [WalRecord(b"stale")])
            assert (refused.value.held, refused.value.current) == (old.epoch, new.epoch)
            assert str(old.epoch) in str(refused.value)
        assert second.append_wal(new, [WalRecord(b"b")]) == 2
        for handle in (first, second):
            assert [record.bytes for _, record in handle.scan_wal(Lsn(0))] == [b"a", b"b"]

    def test_a_fenced_writer_stays_fenced_when_the_new_one_has_left(self, opener: Opener) -> None:
        """And the refusal tells a takeover, by a newer epoch, from a token that was only released."""
        first, second = opener(), opener()
        old = first.acquire_fence("a")
        new = second.acquire_fence("b")
        second.append_wal(new, [WalRecord(b"b")])
        second.release_fence(new)
        for handle in (first, second, opener()):
            with pytest.raises(Fenced) as refused:
                handle.append_wal(old, [WalRecord(b"stale")])
            assert (refused.value.held, refused.value.current) == (old.epoch, new.epoch)
            with pytest.raises(Fenced) as refused:
                handle.renew_fence(old)
            assert (refused.value.held, refused.value.current) == (old.epoch, new.epoch)
            with pytest.raises(Fenced) as refused:
                handle.append_wal(new, [WalRecord(b"stale")])
            assert (refused.value.held, refused.value.current) == (new.epoch, new.epoch)
        assert [record.bytes for _, record in opener().scan_wal(Lsn(0))] == [b"b"]

    def test_a_fenced_append_to_a_branch_leaves_no_trace(self, opener: Opener) -> None:
        """One token covers every branch."""
        storage = opener()
        old = storage.acquire_fence("a")
        side = storage.create_branch("side", Lsn(0))
        storage.append_wal(old, [self.write(1)], branch=side)
        new = opener().acquire_fence("b")
        before = self.observe(storage)
        with pytest.raises(Fenced):
            storage.append_wal(old, [self.write(2)], branch=side, request_id="stale")
        assert self.observe(storage) == before
        assert storage.append_wal(new, [self.write(3)], branch=side, request_id="stale") == 2

    def test_a_token_works_through_every_handle(self, opener: Opener) -> None:
        """The right to write is in the token, not in the handle that got it."""
        first, second = opener(), opener()
        token = first.acquire_fence("writer")
        for turn in range(3):
            assert first.append_wal(token, [WalRecord(b"1")]) == 2 * turn + 1
            assert second.append_wal(token, [WalRecord(b"2")]) == 2 * turn + 2

    def test_acquiring_again_fences_oneself(self, storage: Storage) -> None:
        old = storage.acquire_fence("writer")
        new = storage.acquire_fence("writer")
        assert new.epoch > old.epoch
        with pytest.raises(Fenced):
            storage.append_wal(old, [WalRecord(b"stale")])
        assert storage.append_wal(new, [WalRecord(b"fresh")]) == 1

    def test_epochs_increase_over_reopens_and_releases(self, opener: Opener) -> None:
        last = 0
        for turn in range(6):
            with opener() as storage:
                token = storage.acquire_fence(turn)
                assert token.epoch > last
                assert storage.current_fence() == token
                last = token.epoch
                if turn % 2:
                    storage.release_fence(token)
                    assert storage.current_fence() is None
            with opener() as storage:
                assert storage.current_fence() == (None if turn % 2 else token)

    @pytest.mark.parametrize("owner", ["ada", "ünïcode ✓", 0, 2**128 - 1])
    def test_a_token_names_its_owner(self, opener: Opener, owner: int | str) -> None:
        token = opener().acquire_fence(owner)
        assert token.owner == owner
        assert type(token.owner) is type(owner)
        assert opener().current_fence() == token

    def test_a_released_token_is_refused(self, storage: Storage) -> None:
        """Though nobody has taken over; and releasing again, or late, does nothing."""
        token = storage.acquire_fence("writer")
        storage.append_wal(token, [WalRecord(b"a")])
        storage.release_fence(token)
        storage.release_fence(token)
        with pytest.raises(Fenced):
            storage.append_wal(token, [WalRecord(b"b")])
        with pytest.raises(Fenced):
            storage.renew_fence(token)
        new = storage.acquire_fence("writer")
        storage.release_fence(token)
        assert storage.append_wal(new, [WalRecord(b"c")]) == 2

    def test_an_expired_token_is_refused(self, opener: Opener) -> None:
        """Though nobody has taken over: neither append nor renewal brings it back."""
        storage = opener(fence_lease_ms=100, fence_renew_ms=20)
        token = storage.acquire_fence("writer")
        assert token.lease_until <= time.time() + 0.1
        until_clock(token.lease_until)
        for handle in (storage, opener()):
            with pytest.raises(Fenced):
                handle.append_wal(token, [WalRecord(b"late")])
            with pytest.raises(Fenced):
                handle.renew_fence(token)
        assert storage.durable_lsn() == 0
        assert opener().acquire_fence("writer").epoch > token.epoch

    def test_renewing_extends_the_lease(self, opener: Opener) -> None:
        """The epoch stays; the token is good beyond the time it was first given, also for other handles."""
        # A lease that is shorter than one answer takes, now and then, cannot be kept.
        assert any(self._renews(opener(fence_lease_ms=lease, fence_renew_ms=200)) for lease in (1500, 6000, 30_000))

    def _renews(self, storage: Storage) -> bool:
        """Renew a token until it has outlived its first lease; False if an answer came after the lease was over."""
        token = held = storage.acquire_fence("writer")
        try:
            while time.time() <= token.lease_until:
                until_clock(time.time() + 0.1)
                renewed = storage.renew_fence(held)
                assert (renewed.epoch, renewed.owner) == (token.epoch, token.owner)
                assert renewed.lease_until > held.lease_until
                assert storage.current_fence() == renewed
                held = renewed
            return storage.append_wal(held, [WalRecord(b"a")]) == 1
        except Fenced:
            if time.time() <= held.lease_until:
                raise
            return False

    def test_renewing_a_superseded_token_is_refused(self, opener: Opener) -> None:
        first, second = opener(), opener()
        old = first.acquire_fence("a")
        new = second.acquire_fence("b")
        with pytest.raises(Fenced) as refused:
            first.renew_fence(old)
        assert (refused.value.held, refused.value.current) == (old.epoch, new.epoch)
        assert second.current_fence() == new

    def test_a_token_that_was_never_issued_is_refused(self, storage: Storage) -> None:
        token = storage.acquire_fence("writer")
        for made_up in (token._replace(epoch=token.epoch + 1), token._replace(epoch=0)):
            with pytest.raises(Fenced):
                storage.append_wal(made_up, [WalRecord(b"x")])
        assert storage.durable_lsn() == 0

    def test_racing_for_the_fence(self, opener: Opener) -> None:
        """Winners get epochs of their own, losers are told so, and in the end one token at most is good."""
        handles = [opener() for _ in range(self.racers)]
        for turn in range(3):
            together = threading.Barrier(self.racers)

            def race(racer: int, together: threading.Barrier = together) -> FenceToken | None:
                together.wait()
                try:
                    return handles[racer].acquire_fence(f"racer {racer}")
                except Contended:
                    return None

            with ThreadPoolExecutor(self.racers) as pool:
                tokens = [token for token in pool.map(race, range(self.racers)) if token]
            epochs = [token.epoch for token in tokens]
            assert tokens, "somebody wins"
            assert len(set(epochs)) == len(epochs)
            good = []
            for token in tokens:
                try:
                    handles[0].append_wal(token, [WalRecord(str(token.epoch).encode())])
                    good.append(token.epoch)
                except Fenced:
                    pass
            assert good == [max(epochs)]
            assert handles[-1].durable_lsn() == turn + 1
