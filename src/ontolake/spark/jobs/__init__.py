"""The batch work of stores that are too big for one process: each job is cut into parts, which Spark's workers do.

    from ontolake.spark import jobs, session
    jobs.verify("s3://lake/shop", spark=session(master="spark://…"))

Whatever changes a store does so by the store's own commit, once, on the driver. Without `spark=` the same is done in
this process. `onto spark` has them as commands.

A module each: `compaction`, `conversion`, `exports`, `indexes`, `migration`, `verification`; `graphs` has those of
graphs. `places` finds the store of a job, `workers` runs its parts, `errors` is what can be wrong with asking for one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ontolake.ontology.repository.jobs import Verified
    from ontolake.spark.jobs.compaction import compact
    from ontolake.spark.jobs.conversion import convert
    from ontolake.spark.jobs.exports import Exported, export
    from ontolake.spark.jobs.indexes import reindex
    from ontolake.spark.jobs.migration import migrate, preview_migration
    from ontolake.spark.jobs.verification import verify

_WHERE = {
    "compact": "compaction", "convert": "conversion", "Exported": "exports", "export": "exports",
    "migrate": "migration", "preview_migration": "migration", "reindex": "indexes", "Verified": "verification",
    "verify": "verification",
}  # fmt: skip

__all__ = ["Exported", "Verified", "compact", "convert", "export", "migrate", "preview_migration", "reindex", "verify"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
