"""Splits of typed stores in SQLite: ranges of keys, cut at keys that are looked at."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ontolake.model.types import TypeInfo
from ontolake.ontology.query.compiler.latest import quoted
from ontolake.ontology.repository.ranges import KeyRange
from ontolake.parallel import View, worth

if TYPE_CHECKING:
    from ontolake.ontology.repository.sqlite.base import SqliteRepository

_SAMPLES = 64
"""So many keys are looked at for each split."""
_FEW = 100_000
"""Up to so many changed rows are one split."""


def key_splits(
    repository: SqliteRepository, info: TypeInfo, whole: KeyRange, parts: int | None
) -> Sequence[KeyRange]:  # fmt: skip
    """The rows of a type in about `parts` ranges of keys."""
    count, cuts = _cuts(repository, info, whole.view, parts)
    edges = [None, *cuts, None]
    rows = count // max(1, len(edges) - 1)
    return [replace(whole, rows=rows, low=low, high=high) for low, high in itertools.pairwise(edges)]


def _cuts(
    repository: SqliteRepository, info: TypeInfo, view: View, parts: int | None
) -> tuple[int, list[Any]]:  # fmt: skip
    """About how many rows there are, and the keys at which to cut them: quantiles of keys that are looked at.

    Costs a lookup for each key, however many rows there are.
    """
    repository.refresh()
    source, db = repository.source(info), repository.db
    if view.mode == "changes":
        count = db.execute(f"SELECT count(*) FROM {source} AS t WHERE t.commit_id > ? AND t.commit_id <= ?",
                           (view.since, view.commit)).get or 0
        if count <= _FEW:
            return int(count), []
    ends: Any = db.execute(f"SELECT min(t.rowid), max(t.rowid) FROM {source} AS t").fetchone()
    first, last = ends
    count = 0 if first is None else last - first + 1
    parts = worth(count, parts)
    if parts < 2:
        return count, []
    step = max(1, count // (parts * _SAMPLES))
    key = f"t.{quoted(info.keys[0].column)}"
    find = f"SELECT {key} FROM {source} AS t WHERE t.rowid >= ? ORDER BY t.rowid LIMIT 1"
    found: list[Any] = sorted({db.execute(find, (at,)).get for at in range(first, last + 1, step)} - {None})
    each = max(1, len(found) // parts)
    return count, found[each::each][: parts - 1]
