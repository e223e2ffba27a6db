"""Could each test fail? The oracle passes the whole suite, and each way of breaking it is caught where it should be."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest
from marking import slow_after

from ontolake import faults
from ontolake.errors import Fenced, Invalid, StorageError
from ontolake.storage.conformance import StorageConformance
from ontolake.storage.conformance.oracle import Oracle, OracleBranch, OracleState
from ontolake.storage.conformance.run import run_class
from ontolake.storage.options import StorageOptions
from ontolake.storage.protocol import Storage
from ontolake.storage.types import MAIN, BranchId, FenceToken, Lsn, Page, PageId, WalRecord, WriterId
from ontolake.suites import CaseResult

MODELS: dict[str, tuple[OracleState, threading.RLock]] = {}


def check_place(where: str, page_size: int, knobs: dict[str, Any]) -> float:
    """What opening has to refuse; returns the lease."""
    if not where.startswith("oracle://") or where == "oracle://":
        raise Invalid(f"{where!r} is no place for an oracle")
    if not isinstance(page_size, int) or page_size < 512 or page_size & (page_size - 1):
        raise Invalid(f"{page_size!r} is no page size")
    return StorageOptions.of(knobs).fence_lease_ms


class OnOracle(StorageConformance):
    """The suite on an oracle in memory; `oracle` is the one to test."""

    processes = False
    shrink_histories = False
    oracle: ClassVar[type[Oracle]] = Oracle

    @pytest.fixture
    def fresh(self) -> Callable[[], str]:
        return lambda: f"oracle://{secrets.token_hex(8)}"

    @classmethod
    def open(cls, where: str, *, page_size: int = 4096, **knobs: Any) -> Storage:
        lease = check_place(where, page_size, knobs)
        model, lock = MODELS.setdefault(where, (OracleState(page_size), threading.RLock()))
        if model.page_size != page_size:
            raise Invalid(f"{where} has pages of {model.page_size} bytes, not {page_size}")
        return cls.oracle(model, lock, lease_ms=lease)


@pytest.mark.slow
class TestOracle(OnOracle):
    """An independent implementation passes: the suite asks for nothing but the contract."""


# Ways to be wrong


class Forgetful(Oracle):
    """Acknowledges before it is durable: a reopen loses the last record."""

    def close(self) -> None:
        self.model.branches[MAIN].own = self.model.branches[MAIN].own[:-1]
        self.model.lsn = max((lsn for b in self.model.branches.values() for lsn, _ in b.own), default=0)


class Unfenced(Oracle):
    """Takes any token."""

    def check_token(self, token: FenceToken) -> None:
        pass


class Forgiving(Oracle):
    """Takes an old token again once the new writer has left."""

    def check_token(self, token: FenceToken) -> None:
        if self.model.fence is not None:
            super().check_token(token)


class CheckThenAct(Oracle):
    """Checks the token first and writes later, though another may have taken over in between."""

    checked = False

    def append_wal(self, token: FenceToken, records: Sequence[WalRecord], **options: Any) -> Lsn:
        with self.lock:
            super().check_token(token)
        faults.reach("append: checked, not yet written")
        self.checked = True
        return super().append_wal(token, records, **options)

    def check_token(self, token: FenceToken) -> None:
        if not self.checked:
            super().check_token(token)
        self.checked = False


class Immortal(Oracle):
    """Tokens never expire."""

    def check_token(self, token: FenceToken) -> None:
        if self.model.fence is None or token.epoch != self.model.fence.epoch:
            raise Fenced(token.epoch, self.model.epoch)


class SameEpoch(Oracle):
    """Issues an epoch again."""

    def acquire_fence(self, owner: WriterId) -> FenceToken:
        self.model.epoch = 0
        return super().acquire_fence(owner)


class Reusing(Oracle):
    """Counts the records that are there, so that LSNs of a deleted branch are used again."""

    def delete_branch(self, branch: BranchId | str) -> None:
        super().delete_branch(branch)
        self.model.lsn = max((lsn for b in self.model.branches.values() for lsn, _ in b.own), default=0)


class Unlocked(Oracle):
    """Appends of several threads overlap."""

    def append_wal(self, token: FenceToken, records: Sequence[WalRecord], **options: Any) -> Lsn:
        before = self.model.lsn
        threading.Event().wait(0.001)
        self.model.lsn = before
        return super().append_wal(token, records, **options)


class Newest(Oracle):
    """Reads the newest version, whatever LSN is asked for."""

    def get_page(self, page_id: PageId, lsn: Lsn, *, branch: BranchId | str = MAIN) -> Page:
        super().get_page(page_id, lsn, branch=branch)
        return super().get_page(page_id, self.durable_lsn(), branch=branch)


class Sorted(Oracle):
    """Gives pages in the order of their ids."""

    def get_pages(self, ids: Sequence[PageId], lsn: Lsn, **options: Any) -> list[Page | StorageError]:
        return super().get_pages(sorted(ids), lsn, **options)


class Leaking(Oracle):
    """A branch sees what its parent writes after the fork."""

    def seen(self, branch: BranchId | str, until: int) -> list[tuple[int, WalRecord]]:
        found = self.branch(branch)
        before = [] if found.parent is None else self.seen(BranchId(found.parent), until)
        return sorted(before + [(lsn, record) for lsn, record in found.own if lsn <= until], key=lambda entry: entry[0])


class Shared(Oracle):
    """Siblings see each other."""

    def seen(self, branch: BranchId | str, until: int) -> list[tuple[int, WalRecord]]:
        found = super().seen(branch, until)
        parent = self.branch(branch).parent
        for other in self.model.branches.values():
            if parent is not None and other.parent == parent and other is not self.branch(branch):
                found = found + [entry for entry in other.own if entry[0] <= until]
        return sorted(found, key=lambda entry: entry[0])


class Reclaiming(Oracle):
    """Raises the floor past the base of a branch."""

    def pitr_floor(self) -> Lsn:
        return Lsn(self.model.declared)


class Compacting(Oracle):
    """Compaction keeps the newest version of a page only, though older ones are above the floor."""

    def compact(self) -> None:
        own = self.model.branches[MAIN].own
        newest = {record.page_id: lsn for lsn, record in own}
        kept = [(lsn, record) for lsn, record in own if record.page_id is None or newest[record.page_id] == lsn]
        self.model.branches[MAIN].own = kept


class Repeating(Oracle):
    """Forgets request ids."""

    def append_wal(self, token: FenceToken, records: Sequence[WalRecord], **options: Any) -> Lsn:
        self.model.requests.clear()
        return super().append_wal(token, records, **options)


class Trusting(Oracle):
    """Believes that the same request id means the same records."""

    def append_wal(self, token: FenceToken, records: Sequence[WalRecord], **options: Any) -> Lsn:
        known = self.model.requests.get(options.get("request_id") or "")
        return Lsn(known.lsn) if known else super().append_wal(token, records, **options)


class Borrowing(Oracle):
    """Keeps the caller's buffer."""

    def _kept(self, record: WalRecord) -> WalRecord:
        super()._kept(record)
        return record


class Hasty(Oracle):
    """Writes the good records of a batch before it finds the bad one."""

    def append_wal(self, token: FenceToken, records: Sequence[WalRecord], **options: Any) -> Lsn:
        try:
            return super().append_wal(token, records, **options)
        except Invalid:
            if len(records) > 1:
                super().append_wal(token, records[:1], **options)
            raise


class Deaf(Oracle):
    """Makes branches in the memory of one handle."""

    def create_branch(self, name: str, base_lsn: Lsn, *, parent: BranchId | str = MAIN) -> BranchId:
        made = super().create_branch(name, base_lsn, parent=parent)
        self._mine: dict[int, OracleBranch] = {made: self.model.branches.pop(made)}
        return made


class Sluggish(Oracle):
    """A handle looks at the log once, and then knows only of its own appends."""

    known: int | None = None

    def append_wal(self, token: FenceToken, records: Sequence[WalRecord], **options: Any) -> Lsn:
        self.known = super().append_wal(token, records, **options)
        return Lsn(self.known)

    def durable_lsn(self) -> Lsn:
        self.known = super().durable_lsn() if self.known is None else self.known
        return Lsn(self.known)


def _suite(oracle: type[Oracle]) -> type[StorageConformance]:
    """The suite for a broken oracle, where a runner of its own finds it: at the top of this module."""
    name = f"Broken{oracle.__name__}"
    globals()[name] = made = type(name, (OnOracle,), {"oracle": oracle, "__module__": __name__})
    return made


CAUGHT_BY: dict[type[Oracle], Sequence[str]] = {
    Forgetful: ["test_acknowledged_records_are_there_after_every_reopen"],
    Unfenced: [
        "test_a_new_writer_fences_the_old_one",
        "test_two_processes_take_the_place_from_each_other",
        "test_a_writer_paused_in_the_middle_of_its_write_is_overtaken",
        "test_a_released_token_is_refused",
        "test_two_processes_that_take_turns_share_one_order",
    ],
    Forgiving: ["test_a_fenced_writer_stays_fenced_when_the_new_one_has_left"],
    CheckThenAct: ["test_a_writer_paused_in_the_middle_of_its_write_is_overtaken"],
    Immortal: ["test_an_expired_token_is_refused"],
    SameEpoch: ["test_epochs_increase_over_reopens_and_releases", "test_racing_for_the_fence"],
    Reusing: ["test_lsns_of_a_deleted_branch_are_not_used_again", "test_random_histories_match_the_oracle"],
    Unlocked: ["test_sixteen_threads_append_without_gap_or_repeat"],
    Newest: ["test_a_page_is_read_as_it_was_at_an_lsn", "test_lsns_inside_a_batch_can_be_read"],
    Sorted: ["test_a_batch_of_reads_equals_single_reads", "test_one_missing_page_does_not_spoil_a_batch"],
    Leaking: [
        "test_writes_are_seen_on_their_own_branch_only",
        "test_the_log_of_a_branch_is_its_ancestors_up_to_the_base_then_its_own",
        "test_random_histories_match_the_oracle",
    ],
    Shared: ["test_three_levels_with_siblings", "test_writes_are_seen_on_their_own_branch_only"],
    Reclaiming: ["test_a_branch_holds_the_floor_back", "test_the_lowest_of_several_bases_counts"],
    Compacting: [
        "test_random_versions_against_the_oracle",
        "test_everything_is_kept_until_told_otherwise",
        "test_reads_are_right_while_another_writes_and_compacts",
        "test_the_log_is_read_right_while_another_writes_and_compacts",
    ],
    Repeating: ["test_the_same_request_is_applied_once", "test_a_lost_response_at_every_step"],
    Trusting: ["test_the_same_id_with_something_else_is_invalid"],
    Borrowing: ["test_any_kind_of_bytes_is_taken_and_copied"],
    Hasty: ["test_a_mistake_is_named_and_changes_nothing"],
    Sluggish: [
        "test_an_open_handle_follows_what_others_write",
        "test_reads_are_right_while_another_writes_and_compacts",
    ],
    Deaf: ["test_branches_need_no_token_and_are_seen_by_all", "test_a_name_is_used_once_at_a_time"],
}
SUITES = {oracle: _suite(oracle) for oracle in CAUGHT_BY}


@pytest.mark.parametrize("oracle", slow_after(1, CAUGHT_BY), ids=lambda oracle: oracle.__name__)
def test_a_broken_oracle_is_caught(oracle: type[Oracle]) -> None:
    """Each test that is meant to notice fails, with a message that is more than a stack trace."""
    expected = CAUGHT_BY[oracle]
    results = run_class(SUITES[oracle], only=" or ".join(expected))
    for test in expected:
        failed = [result for result in results if result.test.startswith(test) and result.outcome == "failed"]
        assert failed, f"{test} does not notice: {[_brief(result) for result in results]}"
        assert all(result.message for result in failed)


def _brief(result: CaseResult) -> str:
    return f"{result.test}: {result.outcome}"
