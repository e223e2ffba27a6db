"""What can go wrong on the way through Spark, in the words of whoever started it."""

from __future__ import annotations

from collections.abc import Sequence

from ontolake.errors import ExecutionFailure, OntolakeError, UsageFailure


class SparkError(OntolakeError):
    """Spark is missing or cannot start."""


class PipelineError(UsageFailure):
    """A pipeline is not well-formed, or its module cannot be used."""


class SourceError(ExecutionFailure):
    """A source is missing, or lacks what the pipeline asks of it. `source` is its name."""

    def __init__(self, source: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"source {source}: {message}", hint=hint)
        self.source = source


class TooManyRejectedError(ExecutionFailure):
    """More rows were bad than a run may have. Nothing was published; the rows are in the quarantine."""


class TooManyVanishedError(ExecutionFailure):
    """A source no longer has more rows of the store than a run may miss. Nothing was published.

    `vanished` of the `rows` of `table` are not in the source.
    """

    def __init__(self, table: str, source: str, vanished: int, rows: int, allowed: str) -> None:
        super().__init__(f"{vanished:,} of the {rows:,} rows of {table} have vanished from the source {source}, and "
                         f"{allowed} may",
                         hint="see whether the source is complete; if it is, give the run a higher limit: "
                              "--max-vanished, or max_vanished of the load")
        self.table = table
        self.vanished = vanished
        self.rows = rows


class ExpectationError(ExecutionFailure):
    """The staged state is not what the pipeline expects. Nothing was published. `failed` has all that failed.

    What was published to a branch for being looked at is still there; `branch` is its name.
    """

    def __init__(self, failed: Sequence[str], *, branch: str | None = None) -> None:
        hint = "onto pipeline status names the report with the details; correct the sources or the expectation"
        super().__init__("expectations failed, nothing was published: " + "; ".join(failed),
                         hint=hint if branch is None else f"what would have been is on the branch {branch}; {hint}")
        self.failed = list(failed)
        self.branch = branch
