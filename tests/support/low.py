"""Thresholds so low that few rows and a short history go through all that many rows and a long one do."""

from __future__ import annotations

from ontolake.ontology.sizes import Sizes

LOW = Sizes(
    fan=2, most_runs=4, level_rows=4, merged_rows=96, part_rows=5, group_rows=2, small_rows=3, kept_groups=2,
    kept_bytes=4096, kept_manifests=3, planned_rows=0, batch_rows=3, single_rows=1, looked_up_keys=2, window_commits=3,
    column_rows=1,
    queue_items=4, queue_bytes=4096, queue_staying=2, page_items=4, page_bytes=4096, queue_lag=1,
)  # fmt: skip
