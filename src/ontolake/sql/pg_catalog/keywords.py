"""The words of SQL that have a meaning of their own, as `pg_get_keywords()` lists them."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from ontolake.sql.pg_catalog import data

_KINDS = {"U": "unreserved", "C": "unreserved (cannot be function or type name)",
          "T": "reserved (can be function or type name)", "R": "reserved"}  # fmt: skip


@lru_cache(maxsize=1)
def keyword_table() -> pa.Table:
    """All words, with whether they are reserved."""
    found = data.lines("keywords")
    return pa.table({
        "word": pa.array([word for word, _, _ in found], pa.string()),
        "catcode": pa.array([kind for _, kind, _ in found], pa.string()),
        "barelabel": pa.array([bare for _, _, bare in found], pa.bool_()),
        "catdesc": pa.array([_KINDS[kind] for _, kind, _ in found], pa.string()),
        "baredesc": pa.array(["can be bare label" if bare else "requires AS" for _, _, bare in found], pa.string()),
    })  # fmt: skip
