"""The batch work of stores that are too big for one process: each job is cut into parts, which Spark's workers do.

    from ontolake.spark import jobs, session
    jobs.verify("s3://lake/shop", spark=session(master="spark://…"))

Whatever changes a store does so by the store's own commit, once, on the driver. Without `spark` the same is done in
this process. `onto spark` has them as commands.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ontolake.spark.jobs.compacting import compact
    from ontolake.spark.jobs.converting import convert
    from ontolake.spark.jobs.exporting import Exported, export
    from ontolake.spark.jobs.migrating import migrate, preview_migration
    from ontolake.spark.jobs.reindexing import reindex
    from ontolake.spark.jobs.verifying import Verified, verify

_WHERE = {
    "compact": "compacting", "convert": "converting", "Exported": "exporting", "export": "exporting",
    "migrate": "migrating", "preview_migration": "migrating", "reindex": "reindexing", "Verified": "verifying",
    "verify": "verifying",
}  # fmt: skip

__all__ = ["Exported", "Verified", "compact", "convert", "export", "migrate", "preview_migration", "reindex", "verify"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
