"""Housekeeping: index the tail, merge runs, drop versions that nobody can read any more, free their space.

None of it decides anything: the log is the truth, and a failure at any step leaves it as it was. Work of
two processes meets at the root, which is compared and swapped; the loser throws its own away.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Sequence

import numpy as np
from xxhash import xxh3_64_intdigest

from ontolake import faults
from ontolake.errors import Corruption, PreconditionFailed, StorageError
from ontolake.storage.index import (
    FRAMES,
    REQUESTS,
    IndexColumns,
    PartRef,
    RunRef,
    Tail,
    encode_part,
    part_ref,
    runs_to_merge,
    split,
)
from ontolake.storage.log import Log
from ontolake.storage.medium import Layer, Root, SegmentSpan
from ontolake.storage.options import StorageOptions
from ontolake.storage.state import LogState

_logger = logging.getLogger("ontolake.storage")
_LAYER_PAGES = 4096


class Maintenance:
    """Runs `index` and `compact` for a `Log`, by itself when they are due or when it is asked to."""

    def __init__(self, log: Log, options: StorageOptions) -> None:
        self._log = log
        self._medium = log.medium
        self._lookup = log.lookup
        self._options = options
        self._lock = threading.Lock()
        self._due = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._appended = False

    def after_append(self) -> None:
        """Do, or have done, what has become due."""
        self._appended = True
        if self._options.maintenance == "off" or not self._index_due():
            return
        if self._options.maintenance == "inline":
            self._quietly()
            return
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._closing:
                    self._thread = threading.Thread(target=self._work, name="ontolake-maintenance", daemon=True)
                    self._thread.start()
        self._due.set()

    def _index_due(self) -> bool:
        tail = self._log.moment.view.active
        return tail.frames >= self._options.index_every or tail.bytes >= self._options.index_bytes

    def _work(self) -> None:
        while not self._closing:
            self._due.wait()
            self._due.clear()
            if not self._closing and self._index_due():
                self._quietly()

    def _quietly(self) -> None:
        """Housekeeping must not fail an append that is durable; it is tried again after the next one."""
        try:
            self.index()
            root = self._log.root
            stored = sum(run.entries for run in root.runs) * self._medium.page_size
            if root.since_compaction >= max(self._options.compact_bytes, stored // 2):
                self.compact()
        except Exception as error:
            _logger.warning("housekeeping of %s did not finish: %s", self._medium.name, error)

    def close(self) -> None:
        """Stop, and leave no long tail behind for those who open the database next."""
        self._closing = True
        self._due.set()
        if self._thread is not None:
            self._thread.join()
        if self._options.maintenance != "off" and self._appended and (
                4 * self._log.moment.view.frames >= self._options.index_every):
            self._quietly()

    # indexing
    def index(self) -> None:
        """Move the tail into a run, so that opening need not read it, and merge runs that have grown alike."""
        with self._lock:
            self._log.again(self._index)

    def _index(self) -> None:
        tails, state, root, tag = self._log.freeze()
        if not any(tail.frames for tail in tails):
            return
        columns = IndexColumns.joined([tail.columns() for tail in tails])
        runs, replaced = self._with_run(root.runs, columns)
        faults.reach("index: parts written, root not swapped")
        new = self._successor(root, state, runs=runs)
        new.since_compaction = root.since_compaction + sum(tail.bytes for tail in tails)
        if self._swap(new, tag, tails):
            self._medium.reclaim(new, [(part.segment, part.length) for part in replaced], sweep=False)

    def _with_run(
        self, runs: tuple[RunRef, ...], columns: IndexColumns
    ) -> tuple[tuple[RunRef, ...], Sequence[PartRef]]:
        """The runs with one more, merged where due, and the parts that are no longer needed."""
        if not len(columns.lsn):
            return runs, ()
        count = runs_to_merge([*(run.entries for run in runs), len(columns.lsn)]) - 1
        merged = runs[len(runs) - count :]
        if merged:
            columns = IndexColumns.joined([*self._lookup.columns(merged), columns])
        return (*runs[: len(runs) - count], self._put_run(columns)), [p for run in merged for p in run.parts]

    def _put_run(self, columns: IndexColumns) -> RunRef:
        parts = []
        for piece in split(columns):
            data = encode_part(piece)
            parts.append(part_ref(piece, self._medium.put_blob(data), len(data)))
        return RunRef(len(columns.lsn), tuple(parts))

    def _successor(
        self, root: Root, state: LogState, *, runs: tuple[RunRef, ...], layers: tuple[Layer, ...] | None = None,
        log_start: int | None = None,
    ) -> Root:
        return Root(
            version=root.version, kind=root.kind, page_size=root.page_size, log_id=root.log_id, state=state,
            log_start=root.log_start if log_start is None else log_start, runs=runs,
            layers=root.layers if layers is None else layers, generation=root.generation + 1,
            grace_ms=max(root.grace_ms, math.ceil(self._options.gc_grace_ms)))

    def _swap(self, root: Root, tag: str, tails: tuple[Tail, ...]) -> bool:
        """Publish a root; False if another process was first, whose work is then taken over."""
        try:
            tag = self._medium.swap_root(root, tag)
        except PreconditionFailed:
            self._log.reload()
            return False
        self._log.published(root, tag, tails)
        return True

    # compaction
    def compact(self, *, thorough: bool = False) -> int:
        """Drop what lies below the floor. Returns the bytes freed now; objects in their grace go later.

        With `thorough` no byte of what is dropped stays: layers go unless all their images are needed, and objects in
        their grace are emptied.
        """
        with self._lock:
            self._log.refresh()
            self._log.again(self._index)
            return self._log.again(lambda: self._compact(thorough))

    def _compact(self, thorough: bool) -> int:
        # The floor first: from then on no branch can appear below it, so what is frozen next knows them all.
        self._advance_floor()
        tails, state, root, tag = self._log.freeze()
        columns = IndexColumns.joined([*self._lookup.columns(root.runs), *(tail.columns() for tail in tails)])
        kept = columns.take(self._needed(columns, state))
        frames_kept = kept.take(kept.space == FRAMES)
        log_start = int(frames_kept.segment[0]) if len(frames_kept.lsn) else state.cursor
        kept, layers = self._move_images(kept, root, log_start, thorough)
        replaced = [part for run in root.runs for part in run.parts]
        runs = (self._put_run(kept),) if len(kept.lsn) else ()
        faults.reach("compact: layers written, root not swapped")
        dropped = [layer for layer in root.layers if layer not in layers]
        new = self._successor(root, state, runs=runs, layers=layers, log_start=log_start)
        if not self._swap(new, tag, tails):
            return 0
        dead = [*((part.segment, part.length) for part in replaced), *((x.segment, x.length) for x in dropped)]
        return self._medium.reclaim(new, dead, sweep=True, wipe=thorough)

    def _advance_floor(self) -> None:
        """Let the floor follow the window: what is older than it need not stay readable."""
        columns = IndexColumns.joined(self._lookup.columns(self._log.root.runs))
        frames = columns.take(columns.space == FRAMES)
        inside = np.flatnonzero(frames.sum >= np.uint64(self._window_start()))
        if not len(inside) or not inside[0]:
            return
        # What the frames before the first one in the window made is the oldest state in it.
        lsn = int(frames.lsn[inside[0]]) - 1
        with self._log.lock:
            self._log.refresh()
            if lsn > self._log.state.declared_floor:
                self._log.append_change(lambda state: state.set_floor(max(lsn, state.declared_floor)))

    def _window_start(self) -> int:
        return max(int((time.time() - self._options.pitr_window) * 1e6), 0)

    def _needed(self, columns: IndexColumns, state: LogState) -> np.typing.NDArray[np.bool_]:
        """Which entries a read at or above the floor, on a branch that lives, can still come upon."""
        pages = (columns.space != FRAMES) & (columns.space != REQUESTS)
        live = np.isin(columns.space, np.array(list(state.branches), dtype=np.uint64))
        visible = columns.next_lsn() > np.uint64(state.floor)
        # A frame is needed by scans that start at the floor: if the one after it starts above the floor + 1.
        frames = (columns.space == FRAMES) & (columns.next_lsn() > np.uint64(state.floor + 1))
        requests = (columns.space == REQUESTS) & (columns.sum >= np.uint64(self._window_start()))
        wanted: np.typing.NDArray[np.bool_] = (pages & live & visible) | frames | requests
        return wanted

    def _move_images(
        self, kept: IndexColumns, root: Root, log_start: int, thorough: bool
    ) -> tuple[IndexColumns, tuple[Layer, ...]]:
        """Copy images out of frames that go, and out of layers that are mostly dead, into new layers.

        With `thorough` one dead image is enough.
        """
        pages = (kept.space != FRAMES) & (kept.space != REQUESTS)
        segments = np.array([layer.segment for layer in root.layers], dtype=np.uint64)
        used, counts = np.unique(kept.segment[pages], return_counts=True)
        sizes = dict(zip(used.tolist(), counts.tolist(), strict=True))
        sparse = [layer for layer in root.layers
                  if (1 if thorough else 2) * sizes.get(layer.segment, 0) * self._medium.page_size < layer.length]
        in_layer = np.isin(kept.segment, segments)
        going = np.isin(kept.segment, np.array([layer.segment for layer in sparse], dtype=np.uint64))
        which = np.flatnonzero(pages & (going | (~in_layer & (kept.segment < np.uint64(log_start)))))
        layers = [layer for layer in root.layers if layer not in sparse]
        segment, offset = kept.segment.copy(), kept.offset.copy()
        for start in range(0, len(which), _LAYER_PAGES):
            chunk = which[start : start + _LAYER_PAGES]
            images = self._images(kept, chunk)
            blob = self._medium.put_blob(b"".join(images))
            layers.append(Layer(blob, len(images) * self._medium.page_size))
            segment[chunk] = blob
            offset[chunk] = np.arange(len(chunk), dtype=np.uint64) * np.uint64(self._medium.page_size)
        return kept._replace(segment=segment, offset=offset), tuple(layers)

    def _images(self, kept: IndexColumns, chunk: np.typing.NDArray[np.intp]) -> list[bytes]:
        """Images to be copied, each checked, so that damage is never carried on under a fresh checksum."""
        spans = [SegmentSpan(int(kept.segment[i]), int(kept.offset[i]), self._medium.page_size) for i in chunk]
        images = []
        for span, image, checksum in zip(spans, self._medium.read(spans), kept.sum[chunk].tolist(), strict=True):
            if isinstance(image, StorageError):
                raise image
            if len(image) != span.length or xxh3_64_intdigest(image) != checksum:
                raise Corruption(f"an image at {span.segment:#x}+{span.offset} of {self._medium.name} does not match "
                                 "its checksum")
            images.append(image)
        return images
