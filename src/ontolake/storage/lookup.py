"""Looking entries up: the tail in memory first, then the runs, newest first, whose parts are fetched once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ontolake.errors import StorageError
from ontolake.storage.cache import Cache
from ontolake.storage.index import Entry, IndexColumns, IndexRun, PartRef, RunPart, RunRef, Tail
from ontolake.storage.medium import Medium, SegmentSpan


class IndexView(NamedTuple):
    """The index at one moment: the tail that grows, tails on their way into a run, and the runs, oldest first."""

    active: Tail
    frozen: tuple[Tail, ...]
    runs: tuple[IndexRun, ...]

    def with_runs(self, runs: Sequence[RunRef]) -> IndexView:
        return self._replace(runs=tuple(IndexRun(ref) for ref in runs))

    @property
    def frames(self) -> int:
        """How many frames are in no run yet."""
        return self.active.frames + sum(tail.frames for tail in self.frozen)


class Lookup:
    """Finds entries in a view, and keeps the parts that it had to fetch."""

    def __init__(self, medium: Medium, cached_parts: int) -> None:
        self._medium = medium
        self._parts: Cache[RunPart] = Cache(cached_parts)

    def find(self, view: IndexView, space: int, key: int, lsn: int) -> Entry | None:
        """The entry of `key` with the greatest LSN ≤ `lsn`."""
        active, frozen, runs = view
        if (space, key) in active.entries:
            found = active.find(space, key, lsn)
            if found is not None:
                return found
        for tail in reversed(frozen):
            found = tail.find(space, key, lsn)
            if found is not None:
                return found
        parts = self._parts.young
        for run in reversed(runs):
            ref = run.part_for(space, key, lsn)
            if ref is not None:
                part = parts.get(ref.segment) or self.parts((ref,))[0]
                found = part.find(space, key, lsn)
                if found is not None:
                    return found
        return None

    def prefetch(self, view: IndexView, space: int, keys: Sequence[int], lsn: int) -> None:
        """Fetch, in one go, the parts that looking these keys up will need."""
        wanted = {}
        for run in view.runs:
            for key in keys:
                ref = run.part_for(space, key, lsn)
                if ref is not None and ref.segment not in wanted and self._parts.get(ref.segment) is None:
                    wanted[ref.segment] = ref
        if len(wanted) > 1:
            self.parts(list(wanted.values()))

    def parts(self, refs: Sequence[PartRef]) -> list[RunPart]:
        """The parts, fetched together where they are not at hand."""
        found: dict[int, RunPart | None] = {ref.segment: self._parts.get(ref.segment) for ref in refs}
        missing = [ref for ref in refs if found[ref.segment] is None]
        if missing:
            spans = [SegmentSpan(ref.segment, 0, ref.length) for ref in missing]
            for ref, data in zip(missing, self._medium.read(spans), strict=True):
                if isinstance(data, StorageError):
                    raise data
                part = RunPart(data, f"index part {ref.segment:#x} of {self._medium.name}")
                found[ref.segment] = part
                self._parts.put(ref.segment, part)
        return [known for ref in refs if (known := found[ref.segment]) is not None]

    def columns(self, runs: Sequence[RunRef]) -> list[IndexColumns]:
        """Every entry of the runs, a piece for each part."""
        return [part.columns() for run in runs for part in self.parts(run.parts)]
