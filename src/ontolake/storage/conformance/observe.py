"""Everything a store answers, in one comparable value: two stores are alike when their observations are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ontolake.errors import NotFound, StorageError
from ontolake.storage.protocol import Storage
from ontolake.storage.types import Lsn, Page, PageId, WalRecord

Version = tuple[int, bytes] | None
"""A page as it was seen: the LSN that wrote it and its image, None where it was not found."""


class Observation(NamedTuple):
    """What a store says. Branches go by name, since a backend numbers them as it likes."""

    durable: int
    commit: int
    floor: int
    branches: dict[str, tuple[int, int, str | None]]
    logs: dict[str, list[tuple[int, WalRecord]]]
    pages: dict[tuple[str, int], dict[int, Version]]


def observe(storage: Storage, ids: Iterable[PageId], *, reads: int | None = None) -> Observation:
    """Read everything: every branch's log, and the pages `ids` at every LSN on every branch.

    With `reads`, at most about that many LSNs of a branch are read, evenly spread, and of a log what lies above
    the branch's base. Raises what the store raises, and an error that stands for a page unless it is `NotFound`.
    """
    asked, seen = list(ids), glance(storage)
    for name, (base, _, _) in seen.branches.items():
        after = seen.floor if reads is None else max(seen.floor, base)
        seen.logs[name] = list(storage.scan_wal(Lsn(after), branch=name))
        beyond = [seen.durable + 1000] if reads is None else []
        for lsn in [*spread(seen.floor, seen.durable, reads), *beyond]:
            found = storage.get_pages(asked, Lsn(lsn), branch=name)
            seen.pages[name, lsn] = {page_id: version(page) for page_id, page in zip(asked, found, strict=True)}
    return seen


def glance(storage: Storage) -> Observation:
    """What a store says without reading pages, and of the logs only that of `main`."""
    refs = storage.list_branches()
    names = {ref.id: ref.name for ref in refs}
    floor = storage.pitr_floor()
    return Observation(
        durable=storage.durable_lsn(),
        commit=storage.get_commit_lsn(),
        floor=floor,
        branches={
            ref.name: (ref.base_lsn, ref.head_lsn, None if ref.parent is None else names[ref.parent]) for ref in refs
        },
        logs={"main": list(storage.scan_wal(floor))},
        pages={},
    )


def version(page: Page | StorageError) -> Version:
    """A page of a batch as an observation keeps it. Raises any error but `NotFound`."""
    if isinstance(page, NotFound):
        return None
    if isinstance(page, StorageError):
        raise page
    return page.lsn, page.bytes


def spread(first: int, last: int, most: int | None) -> Sequence[int]:
    """`first` … `last`, or about `most` of them evenly spread with both ends kept."""
    count = last - first + 1
    if most is None or count <= most:
        return range(first, last + 1)
    return sorted({first + i * (count - 1) // (most - 1) for i in range(most)})


def difference(found: Observation, expected: Observation) -> str | None:
    """The first thing in which two observations differ, in words; None if they are alike."""
    for name in ("durable", "commit", "floor", "branches"):
        here, there = getattr(found, name), getattr(expected, name)
        if here != there:
            return f"{name}: found {here}, expected {there}"
    for branch, log in expected.logs.items():
        if found.logs[branch] != log:
            return f"log of {branch}: found {_brief(found.logs[branch])}, expected {_brief(log)}"
    for (branch, lsn), versions in expected.pages.items():
        here = found.pages[branch, lsn]
        for page_id, wanted in versions.items():
            if here[page_id] != wanted:
                return f"page {page_id} of {branch} at LSN {lsn}: found {_stamp(here[page_id])}, expected " + _stamp(
                    wanted
                )
    return None


def _brief(log: list[tuple[int, WalRecord]]) -> str:
    shown = (f"{lsn}:{'-' if r.page_id is None else r.page_id}:{r.bytes[:4].hex()}" for lsn, r in log)
    return f"[{', '.join(shown)}]"


def _stamp(found: Version) -> str:
    return "nothing" if found is None else f"version {found[0]} ({found[1][:4].hex()}…)"
