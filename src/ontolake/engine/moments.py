"""Which moments of a log are commits. Page 1 is the last record of every commit, so its versions tell."""

from __future__ import annotations

from collections.abc import Callable

from ontolake.errors import Invalid, NotFound
from ontolake.storage import BranchRef, Lsn, PageId, Storage

HEADER_PAGE = PageId(1)


def commit_at(storage: Storage, branch: BranchRef, at: int) -> Lsn:
    """The last commit on a branch at or before the LSN `at`; 0 if there is none. If that is older than what is kept,
    it is the oldest LSN that can be read, at which the branch is the same.

    Raises `NotFound` for an LSN that lies in the future or is no longer kept.
    """
    durable = storage.get_commit_lsn()
    if at > durable:
        raise NotFound(f"LSN {at} lies in the future: the newest commit is {durable}")
    floor = storage.pitr_floor()
    if branch.head_lsn <= at < floor:
        at = floor  # the branch is the same there
    if at < floor:
        raise NotFound(f"LSN {at} is no longer kept: the oldest that can be read is {floor}")
    return max(_commit_at(storage, branch, Lsn(at)), floor)


def _commit_at(storage: Storage, branch: BranchRef, at: Lsn) -> Lsn:
    try:
        return storage.get_page(HEADER_PAGE, at, branch=branch.id).lsn
    except NotFound:
        return Lsn(0)


def last_lsn(newest: int, holds: Callable[[int], bool]) -> int:
    """The last LSN below `newest` at which a condition holds that holds up to some LSN: found by halving.

    It counts as holding where `holds` raises `NotFound`: that is no longer kept, or before the first commit.
    """
    low, high = 0, newest
    while high - low > 1:
        middle = (low + high) // 2
        try:
            is_low = holds(middle)
        except NotFound:
            is_low = True
        low, high = (middle, high) if is_low else (low, middle)
    return low


def check_begins_at_commit(storage: Storage, branch: BranchRef) -> None:
    """Raise `Invalid` if the branch, or one it comes from, left its parent in the middle of a commit.

    Such a branch sees some pages of a transaction and not the others.
    """
    if branch.parent is None:
        return
    base, parent = branch.base_lsn, storage.resolve_branch(branch.parent)
    check_begins_at_commit(storage, parent)
    commit = _commit_at(storage, parent, base)
    if commit < base:
        # LSNs count over all branches, so there may be nothing of this one in between.
        try:
            following = next(storage.scan_wal(commit, branch=parent.id), None)
        except NotFound:
            return  # the log no longer tells
        if following is not None and following[0] <= base:
            raise Invalid(f"branch {branch.name!r} begins at LSN {base}, in the middle of a commit on {parent.name!r}",
                          hint=f"create it at LSN {commit}, where the commit before ended")
