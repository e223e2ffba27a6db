"""What can be wrong with asking for a job."""

from __future__ import annotations

from ontolake.errors import UsageFailure


class JobError(UsageFailure, ValueError):
    """A job is asked of a store that has no use for it. The hint says which do."""

