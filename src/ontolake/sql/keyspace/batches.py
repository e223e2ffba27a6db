"""Batches of a scan, as SQLite strings them together, and their values as the rest of the code takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np

from ontolake.sql.keyspace.rows import TOMBSTONE
from ontolake.sql.keyspace.vectors import Strings, offsets_of

T = TypeVar("T")


class Batch(NamedTuple):
    """Values of a scan, and their keys if they were asked for."""

    values: Strings
    keys: Strings | None


def fetched_ahead(batches: Iterator[Batch], size: int) -> Iterator[Batch]:
    """The same batches; while the caller works on one that is full, of `size`, the next one is fetched."""
    for first in batches:
        if len(first.values) >= size:
            break
        yield first
    else:
        return
    with ThreadPoolExecutor(1, "sql-ahead") as pool:
        waiting = pool.submit(next, batches, None)
        yield first
        while (batch := waiting.result()) is not None:
            waiting = pool.submit(next, batches, None)
            yield batch


def ahead(actions: Iterable[Callable[[], T]]) -> Iterator[T]:
    """What actions return, in their order; while the caller works on one, the next is run."""
    waiting = iter(actions)
    first, second = next(waiting, None), next(waiting, None)
    if first is None:
        return
    if second is None:
        yield first()
        return
    with ThreadPoolExecutor(1, "sql-ahead") as pool:
        found = pool.submit(first)
        for action in chain([second], waiting):
            found, before = pool.submit(action), found
            yield before.result()
        yield found.result()


def living(batch: Batch) -> Batch:
    """A batch without its tombstones."""
    values, keys = batch
    short = np.flatnonzero(np.diff(values.offsets) == len(TOMBSTONE))
    dead = short[values.data[values.offsets[short] + 1] == TOMBSTONE[1]]
    if not len(dead):
        return batch
    kept = np.ones(len(values), np.bool_)
    kept[dead] = False
    return Batch(values.filtered(kept), None if keys is None else keys.filtered(kept))


def strings(data: bytes | None, lengths: str | None) -> Strings:
    """Values that were strung together, given their lengths."""
    sizes = np.fromstring(lengths or "", np.int64, sep=",")
    data = data or b""
    return Strings(np.frombuffer(data, np.uint8), offsets_of(sizes))
