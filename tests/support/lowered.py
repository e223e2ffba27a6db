"""Thresholds of graphs, SQL tables, the engine and the page seam, so low that few rows and pages pass all of them."""

from __future__ import annotations

from importlib import import_module

import pytest

SQL = {
    "write.rows.FEW": 2, "plan.queries.FEW": 2, "keyspace.versions.BATCH": 5, "keyspace.versions._MANY": 3,
    "plan.access.MAX_SPANS": 3, "plan.access.INDEX_LIMIT": 6, "plan.joins.FEW_KEYS": 4, "plan.joins._MANY_ROWS": 2,
    "write.index_builds.PAGE": 3, "history.commits._PAGE": 2, "history.differences._PAGE": 3,
    "transactions._CATALOGS": 2,
}  # fmt: skip
"""Rows encoded one by one, rows and keys of a batch, keys of an access, rows of a page of an index, catalogs kept."""
ENGINE = {"ahead._FIRST": 2, "ahead._MOST": 4, "ahead._STREAMS": 2, "ahead._PLACES": 12, "pages._FETCHED": 3,
          "connection._CACHE_KIB": 20}  # fmt: skip
"""Pages fetched ahead, places in trees that are remembered, pages that are kept."""
STORAGE = {"index.PART_ENTRIES": 4, "index.MERGE_RATIO": 2, "maintenance._LAYER_PAGES": 3}
"""Entries of a part of an index, how runs grow, pages of a layer."""
GRAPH = {
    "tables.tiers.FRAGMENT_ROWS": 6, "tables.tiers.FEW": 1, "tables.appends.STEP_ROWS": 12,
    "tables.appends.STAGED_ROWS": 4, "tables.indexes.INDEX_ROWS": 3, "tables.indexes.PARTITION_ROWS": 4,
    "upkeep.table_upkeep.SEGMENT_ROWS": 4, "upkeep.table_upkeep.AT_ONCE_ROWS": 5, "upkeep.background.EVERY": 2,
    "upkeep.background._MANIFEST_FRAGMENTS": 2, "commit.manifest.COMPACT_AFTER": 3, "tables.datasets.FEW_KEYS": 3,
    "tables.datasets._BATCH": 4, "tables.datasets._CACHED": 4, "tables.positions._FIRST": 1,
    "tables.positions.KEPT_BYTES": 4096, "tables.positions._KEPT": 1, "tables.known_keys.READ_ROWS": 4,
    "tables.known_keys._FIRST": 1, "tables.known_keys.SINGLE_ROWS": 32, "tables.known_keys.KEPT_ROWS": 16,
    "tables.known_keys._KEPT_LINES": 3, "merge.differences.FEW_IDS": 2, "merge.differences._NEAR": 3,
    "tables.traces.MOST_ROWS": 3, "tables.traces.KEPT_ROWS": 8,
}  # fmt: skip
"""Rows of files and parts of indexes, fragments before upkeep, keys that are looked up and kept, rows of a batch."""
KNOBS = {"index_every": 3, "index_bytes": 20_000, "compact_bytes": 40_000, "batch_read_max": 3, "cached_parts": 2,
         "cache_bytes": 20_000, "gc_grace_ms": 0, "maintenance": "inline"}  # fmt: skip
"""The same by options of `open_storage`: when a tail is indexed and compacted, what is read and kept at once."""
PACKAGES = {"graph": GRAPH, "sql": SQL, "engine": ENGINE, "storage": STORAGE}


def lower(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Set the thresholds of these packages low until the test ends."""
    for package in packages:
        for name, value in PACKAGES[package].items():
            module, _, constant = name.rpartition(".")
            found = import_module(f"ontolake.{package}.{module}")
            assert getattr(found, constant) > value, f"{package}.{name} is not lowered"
            monkeypatch.setattr(found, constant, value)
