"""Upkeep in the background: an open graph stays quick however often it is written to, and nobody waits for it.

What it does shows in no answer: commits keep their ids and their rows, there is no commit of its own, and a graph
without it answers the same. It never raises; what it cannot do now it does after the next commits.
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from typing import Any

from ontolake import faults
from ontolake.graph.commit.records import GraphState, Pin
from ontolake.graph.parts import GraphParts
from ontolake.graph.tables import indexes
from ontolake.graph.upkeep import table_upkeep
from ontolake.graph.upkeep.table_upkeep import Upkeep

EVERY = 32
"""Fragments that a table may gain before it is tended again."""
_MANIFEST_FRAGMENTS = 16
"""The same for the manifest, which a publish compacts itself if this has not been done in time."""
_PATIENCE = 10.0
"""Seconds to wait for a moment in which nobody writes."""

log = logging.getLogger(__name__)


class Background:
    """The thread of one open graph, started when there is something to do."""

    def __init__(self, parts: GraphParts, every: int | None = None) -> None:
        self._parts = parts
        self._every = every if every is not None else EVERY
        self._tended: dict[tuple[str, str | None], tuple[int, int]] = {}
        """Fragments and rows of tables by key and line, when they were tended last."""
        self._due: dict[str, None] = {}
        self._told = threading.Condition()
        self._stopped = False
        self._busy = False
        self._thread: threading.Thread | None = None

    def committed(self, state: GraphState, keys: Any) -> None:
        """Look at what a commit has made of its tables, and begin if there is something to do."""
        if faults.armed() or self._stopped or not self._wants(state, keys):
            return
        with self._told:
            self._due[state.branch] = None
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ontolake-graph-upkeep", daemon=True)
                self._thread.start()
                _running.add(self)
            self._told.notify_all()

    def _wants(self, state: GraphState, keys: Any) -> bool:
        for key in keys:
            pin = state.pins.get(key)
            if pin is not None and pin.branch == state.line:
                fragments, rows = self._tended.get((key, pin.branch), (0, 0))
                step = table_upkeep.SEGMENT_ROWS if rows >= indexes.INDEX_ROWS else indexes.INDEX_ROWS
                if self._count(state, key, pin) >= fragments + self._every or pin.rows >= rows + step:
                    return True
        return _pieces(state.dataset) > _MANIFEST_FRAGMENTS

    def _count(self, state: GraphState, key: str, pin: Pin) -> int:
        return _pieces(self._parts.tables.at(state.types[key], pin))

    def stop(self) -> None:
        """Finish what there is to do, and end."""
        with self._told:
            self._stopped = True
            self._told.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until there is nothing to do; False if that takes too long."""
        with self._told:
            return self._told.wait_for(lambda: not self._busy and not self._due, timeout)

    def _run(self) -> None:
        while True:
            with self._told:
                self._told.wait_for(lambda: self._stopped or bool(self._due))
                if not self._due:
                    return
                branch = next(iter(self._due))
                del self._due[branch]
                self._busy = True
            try:
                self._tend(branch)
            except Exception as error:  # a graph without upkeep is slower, and no worse
                log.warning("branch %r of %s could not be tended: %s", branch, self._parts.url, error)
            finally:
                with self._told:
                    self._busy = False
                    self._told.notify_all()

    def _tend(self, branch: str) -> None:
        parts = self._parts
        state = parts.line_state(branch)
        work: dict[str, Upkeep] = {}
        for key, kind in state.types.items():
            pin = state.pins[key]
            if pin.branch == state.line:
                self._tended[key, pin.branch] = (self._count(state, key, pin), pin.rows)
                work[key] = Upkeep(parts.tables, kind, pin)
        work = {key: one for key, one in work.items() if one.is_ready}
        with parts.turns.alone(branch, _PATIENCE) as mine:
            if not mine:
                return
            now = parts.line_state(branch)
            if now.identity == state.identity:
                self._take_over(now, {key: one for key, one in work.items() if now.types.get(key) == one.kind})
            parts.manifest.merge_small(branch)

    def _take_over(self, state: GraphState, work: dict[str, Upkeep]) -> None:
        pins: dict[str, Pin] = {}
        for key, one in work.items():
            if state.pins[key].branch == state.line:
                pin = one.take_over(state.pins[key], state.line)
                if pin is not None:
                    pins[key] = pin
        if pins:
            shown = self._parts.manifest.show(state, pins)
            for key, pin in pins.items() if shown is not None else ():
                self._tended[key, pin.branch] = (self._count(state, key, pin), pin.rows)


def _pieces(dataset: Any) -> int:
    return int(dataset.stats.dataset_stats()["num_fragments"])


_running: weakref.WeakSet[Background] = weakref.WeakSet()


def _end_all() -> None:
    """Finish what is being done when the process ends: afterwards no thread could be started for it any more."""
    for one in list(_running):
        one.stop()


getattr(threading, "_register_atexit", atexit.register)(_end_all)
