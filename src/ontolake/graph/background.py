"""Optimizing in the background: an open graph stays quick however often it is written to, and nobody waits for it.

The files are rewritten beside the writers. Only the moment in which they take the place of the old ones is one in
which writers of this process stand by; those of others, and transactions that began before, go on from there.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from ontolake.errors import OntolakeError
from ontolake.graph.maintenance import optimize
from ontolake.graph.manifest import Pin
from ontolake.graph.staging import FRAGMENT_ROWS
from ontolake.graph.types import GraphType

if TYPE_CHECKING:
    from lance import LanceDataset

    from ontolake.graph.graph import Graph

ACTOR = "ontolake:background"
_FEW = 4
"""Fragments of a table that are not worth rewriting."""
_INDEXED_ROWS = 250_000
"""Bigger tables have their indexes brought up to date only when somebody asks for it: writers would have to wait."""

_PATIENCE = 10.0
"""Seconds to wait for a moment in which nobody writes; without one it is done after the next commits."""

log = logging.getLogger(__name__)


class Background:
    """The thread of one open graph. It never raises: what it cannot do now it does after the next commits."""

    def __init__(self, graph: Graph, every: int) -> None:
        self._graph = graph
        self._every = every
        self._commits: Counter[str] = Counter()
        self._told = threading.Condition()
        self._stopped = False
        self._busy = False
        self._thread = threading.Thread(target=self._run, name="ontolake-graph-optimize", daemon=True)
        self._thread.start()

    def committed(self, branch: str) -> None:
        """Count a commit of a branch."""
        with self._told:
            self._commits[branch] += 1
            if self._commits[branch] >= self._every:
                self._told.notify_all()

    def stop(self) -> None:
        """Wait for what is being done, and end."""
        with self._told:
            self._stopped = True
            self._told.notify_all()
        self._thread.join()

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until there is nothing to do; False if that takes too long."""
        with self._told:
            return self._told.wait_for(lambda: not self._busy and self._due() is None, timeout)

    def _due(self) -> str | None:
        return next((branch for branch, count in self._commits.items() if count >= self._every), None)

    def _run(self) -> None:
        while True:
            with self._told:
                self._told.wait_for(lambda: self._stopped or self._due() is not None)
                branch = self._due()
                if self._stopped or branch is None:
                    return
                self._commits[branch] = 0
                self._busy = True
            try:
                self._optimize(branch)
            except (OntolakeError, OSError, ValueError, RuntimeError) as error:
                log.warning("branch %r of %s could not be optimized: %s", branch, self._graph.url, error)
            finally:
                with self._told:
                    self._busy = False
                    self._told.notify_all()

    def _optimize(self, branch: str) -> None:
        graph = self._graph
        state = graph._manifest_state(branch)
        found = {kind: _rewritten(graph, kind, state.pins[key]) for key, kind in state.types.items()
                 if state.pins[key].branch == state.line}  # fmt: skip
        ready = {kind: rewritten for kind, rewritten in found.items() if rewritten.files}

        def compacting(dataset: LanceDataset) -> None:
            for kind, rewritten in ready.items():
                if f"/{kind.location}" in dataset.uri:
                    rewritten.take_over(dataset)

        with graph._turns.alone(branch, _PATIENCE) as mine:
            if mine:
                optimize(graph, branch, ACTOR, compacting=compacting, tables=[kind.table for kind in ready],
                         index_rows=_INDEXED_ROWS)


class _Rewritten:
    """New files for the small fragments of a table."""

    def __init__(self, dataset: LanceDataset, target: int | None) -> None:
        self.files: list[Any] = []
        self._target = target
        if target is None:
            return
        from lance.optimize import Compaction

        tasks = Compaction.plan(dataset, {"target_rows_per_fragment": target}).tasks
        replaced = {fragment.id for task in tasks for fragment in task.fragments}
        self._replaced = {id: rows for id, rows in _fragments(dataset).items() if id in replaced}
        self.files = [task.execute(dataset) for task in tasks]

    def take_over(self, dataset: LanceDataset) -> None:
        """Put the files in the place of the old ones. If those have changed meanwhile, it is done anew."""
        from lance.optimize import Compaction

        if self._replaced.items() <= _fragments(dataset).items():
            Compaction.commit(dataset, self.files)
        else:
            dataset.optimize.compact_files(target_rows_per_fragment=self._target or FRAGMENT_ROWS)


def _fragments(dataset: LanceDataset) -> dict[int, tuple[str, ...]]:
    """What each fragment of a dataset is made of: its files, and which of its rows are deleted."""
    return {fragment.fragment_id: (*(file.path for file in fragment.metadata.files), _deleted(fragment.metadata))
            for fragment in dataset.get_fragments()}  # fmt: skip


def _deleted(fragment: Any) -> str:
    return str(fragment.deletion_file.path(fragment.id)) if fragment.deletion_file is not None else ""


def _rewritten(graph: Graph, kind: GraphType, pin: Pin) -> _Rewritten:
    dataset = graph._tables.at(kind, pin)
    return _Rewritten(dataset, rows_to_merge([fragment.count_rows() for fragment in dataset.get_fragments()]))


def rows_to_merge(sizes: list[int]) -> int | None:
    """The size of fragments to merge those below it into; None if there are few.

    A fragment much bigger than all smaller ones together is left alone, so that a row is rewritten each time that the
    table has doubled, and not each time that anything is written.
    """
    total, count, found = 0, 0, None
    for size in sorted(size for size in sizes if size < FRAGMENT_ROWS):
        if count >= _FEW and size >= 2 * total:
            break
        total += size
        count += 1
        found = total + 1
    return min(found, FRAGMENT_ROWS) if count > _FEW and found is not None else None
