"""Bad input: each mistake is a typed error that names the thing, and the store is as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import pytest

from ontolake.errors import AlreadyExists, Fenced, Invalid, NotFound, StorageError
from ontolake.storage.conformance.base import Base, Opener
from ontolake.storage.protocol import STORAGE_TRAIT_VERSION, Storage, check_trait_version
from ontolake.storage.types import MAIN, BranchId, FenceToken, Lsn, Page, PageId, WalRecord

FLOOR, DURABLE = 3, 6
ONE = PageId(1)


class Mistake(NamedTuple):
    """Something that is refused: with which error, and what its text has to name."""

    what: str
    error: type[StorageError]
    names: str
    do: Callable[[Storage, FenceToken], object]


def _append(record: WalRecord) -> Callable[[Storage, FenceToken], object]:
    return lambda storage, token: storage.append_wal(token, [WalRecord(b"good"), record])


def _raised(pages: list[Page | StorageError]) -> None:
    """Raise the error that stands for a page in a batch."""
    for page in pages:
        if isinstance(page, StorageError):
            raise page


def _on(branch: BranchId | str) -> list[Mistake]:
    uses: dict[str, Callable[[Storage, FenceToken], object]] = {
        "append to": lambda s, t: s.append_wal(t, [WalRecord(b"x")], branch=branch),
        "get_page of": lambda s, _: s.get_page(ONE, Lsn(DURABLE), branch=branch),
        "get_pages of": lambda s, _: _raised(s.get_pages([ONE], Lsn(DURABLE), branch=branch)),
        "scan": lambda s, _: list(s.scan_wal(Lsn(FLOOR), branch=branch)),
        "resolve": lambda s, _: s.resolve_branch(branch),
        "delete": lambda s, _: s.delete_branch(branch),
        "branch off": lambda s, _: s.create_branch("new", Lsn(DURABLE), parent=branch),
    }
    return [Mistake(f"{use} unknown branch {branch!r}", NotFound, str(branch), do) for use, do in uses.items()]


MISTAKES: dict[str, list[Mistake]] = {
    "a batch": [
        Mistake("empty batch", Invalid, "empty", lambda s, t: s.append_wal(t, [])),
        Mistake("image too short", Invalid, "page 4", _append(WalRecord(b"short", PageId(4)))),
        Mistake("image empty", Invalid, "page 4", _append(WalRecord(b"", PageId(4)))),
        Mistake("image too long", Invalid, "page 4", _append(WalRecord(b"x" * 70000, PageId(4)))),
        Mistake("record not bytes", Invalid, "str", _append(WalRecord(cast(bytes, "text")))),
        Mistake("record is nothing", Invalid, "None", _append(WalRecord(cast(bytes, None)))),
        Mistake("page id negative", Invalid, "-1", _append(WalRecord(b"x" * 4096, PageId(-1)))),
        Mistake("page id too big", Invalid, str(2**64), _append(WalRecord(b"x" * 4096, PageId(2**64)))),
        Mistake("page id text", Invalid, "seven", _append(WalRecord(b"x" * 4096, cast(PageId, "seven")))),
        Mistake("stale token", Fenced, "epoch", lambda s, t: s.append_wal(t._replace(epoch=0), [WalRecord(b"x")])),
    ],
    "a read": [
        Mistake("unknown page", NotFound, "77", lambda s, _: s.get_page(PageId(77), Lsn(DURABLE))),
        Mistake("read below the floor", NotFound, "2", lambda s, _: s.get_page(ONE, Lsn(2))),
        Mistake("scan below the floor", NotFound, "2", lambda s, _: list(s.scan_wal(Lsn(2)))),
        Mistake("negative LSN", StorageError, "-1", lambda s, _: s.get_page(ONE, Lsn(-1))),
    ],
    "the floor": [
        Mistake("floor backwards", Invalid, "2", lambda s, _: s.set_retention_floor(Lsn(2))),
        Mistake("floor above the durable LSN", Invalid, "7", lambda s, _: s.set_retention_floor(Lsn(7))),
        Mistake("floor negative", Invalid, "-1", lambda s, _: s.set_retention_floor(Lsn(-1))),
    ],
    "a branch": [
        Mistake("branch name empty", Invalid, "''", lambda s, _: s.create_branch("", Lsn(DURABLE))),
        Mistake("branch name blank", Invalid, "' '", lambda s, _: s.create_branch(" ", Lsn(DURABLE))),
        Mistake("branch name no text", Invalid, "7", lambda s, _: s.create_branch(cast(str, 7), Lsn(DURABLE))),
        Mistake("branch name taken", AlreadyExists, "side", lambda s, _: s.create_branch("side", Lsn(DURABLE))),
        Mistake("branch named main", AlreadyExists, "main", lambda s, _: s.create_branch("main", Lsn(DURABLE))),
        Mistake("base below the floor", NotFound, "2", lambda s, _: s.create_branch("new", Lsn(2))),
        Mistake("base above the durable LSN", NotFound, "7", lambda s, _: s.create_branch("new", Lsn(7))),
        Mistake("delete main", Invalid, "main", lambda s, _: s.delete_branch(MAIN)),
        Mistake("delete a parent", Invalid, "side", lambda s, _: s.delete_branch("side")),
    ],
    "an owner": [
        Mistake("owner empty", Invalid, "''", lambda s, _: s.acquire_fence("")),
        Mistake("owner nothing", Invalid, "None", lambda s, _: s.acquire_fence(cast(str, None))),
        Mistake("owner too big", Invalid, str(2**128), lambda s, _: s.acquire_fence(2**128)),
    ],
    "an unknown branch": [*_on("nowhere"), *_on(BranchId(999))],
}
"""By what they are made with."""


class InputCases(Base):
    """Mistakes of the caller."""

    title = "Bad input"

    @pytest.mark.parametrize("about", MISTAKES)
    def test_a_mistake_is_named_and_changes_nothing(self, storage: Storage, about: str) -> None:
        token = storage.acquire_fence("writer")
        for seed in range(1, 6):
            storage.append_wal(token, [self.write(seed)])
        storage.create_branch("side", Lsn(4))
        storage.create_branch("twig", Lsn(4), parent="side")
        storage.append_wal(token, [self.write(6)], branch="side")
        storage.set_retention_floor(Lsn(FLOOR))
        before = self.observe(storage)
        for mistake in MISTAKES[about]:
            try:
                with pytest.raises(mistake.error) as refused:
                    mistake.do(storage, token)
                assert isinstance(refused.value, StorageError)
                assert mistake.names in str(refused.value)
                assert self.observe(storage) == before
                assert storage.current_fence() == token
            except BaseException as error:
                error.add_note(f"the mistake: {mistake.what}")
                raise
        assert storage.append_wal(token, [self.write(7)]) == DURABLE + 1, "and the writer can go on"


class OpeningCases(Base):
    """Opening a store: with the wrong settings, in the wrong place, twice."""

    title = "Opening"

    def test_another_page_size_is_refused(self, opener: Opener) -> None:
        with opener() as storage:
            assert storage.page_size == self.page_size
            storage.append_wal(storage.acquire_fence("writer"), [self.write(1)])
        with pytest.raises(Invalid) as refused:
            opener(page_size=2 * self.page_size)
        assert str(self.page_size) in str(refused.value)
        assert str(2 * self.page_size) in str(refused.value)
        assert opener().get_page(ONE, Lsn(1)).bytes == self.image(1)

    def test_an_empty_store_keeps_its_page_size(self, opener: Opener) -> None:
        opener().close()
        with pytest.raises(Invalid):
            opener(page_size=2 * self.page_size)

    @pytest.mark.parametrize("page_size", [0, -4096, 1000, "4096", None])
    def test_an_impossible_page_size_is_refused(self, opener: Opener, page_size: Any) -> None:
        with pytest.raises(Invalid) as refused:
            opener(page_size=page_size)
        assert str(page_size) in str(refused.value)
        opener().close()

    @pytest.mark.parametrize("knob", ["fence_lease_ms", "batch_read_max"])
    def test_an_impossible_setting_is_refused(self, opener: Opener, knob: str) -> None:
        for value in (0, -1, "soon"):
            with pytest.raises(Invalid) as refused:
                opener(**{knob: value})
            assert knob in str(refused.value)

    def test_an_unknown_setting_is_refused(self, opener: Opener) -> None:
        with pytest.raises(Invalid) as refused:
            opener(fence_leese_ms=10)
        assert "fence_leese_ms" in str(refused.value)

    @pytest.mark.parametrize("url", ["gopher://host/x", "", "no scheme at all", "://", "s3://", "file://"])
    def test_a_place_that_cannot_be_is_refused(self, url: str) -> None:
        """An unknown scheme, or no place after a known one."""
        with pytest.raises(Invalid) as refused:
            self.open(url)
        assert url in str(refused.value)

    def test_the_version_of_the_seam_is_checked(self, storage: Storage) -> None:
        assert isinstance(storage, Storage)
        assert check_trait_version(storage) is storage
        assert storage.trait_version == STORAGE_TRAIT_VERSION

    def test_closing_twice_is_fine(self, opener: Opener) -> None:
        storage = opener()
        storage.close()
        storage.close()
        with opener() as again:
            assert again.durable_lsn() == 0

    def test_many_handles_may_be_open(self, opener: Opener) -> None:
        handles = [opener() for _ in range(5)]
        token = handles[0].acquire_fence("writer")
        handles[1].append_wal(token, [self.write(1)])
        handles[1].close()
        assert [handle.durable_lsn() for handle in (handles[0], *handles[2:])] == [1, 1, 1, 1]
