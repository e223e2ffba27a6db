"""Writing rows: what a request sends becomes rows (`bodies`), requests that wait together become one commit (`queues`),
and a retry gets the first answer (`retries`). `requests` has the words; `typed`, `documents`, `graph` and `sql` commit
groups of them to their model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ontolake import stores
from ontolake.server.writes.requests import RowWrite, WriteNote

Committer = Callable[[Any, str, Sequence[RowWrite], WriteNote], Any]
"""Commits writes to a branch as one commit. Returns its id; None if nothing differs.

Raises `WriteFailure` for the first write that cannot be done, `StaleHeadError`; nothing was written then.
"""


def committer_of(model: stores.Model) -> Committer:
    """What commits groups of writes to stores of a model."""
    if model is stores.TYPED:
        from ontolake.server.writes import typed

        return typed.commit_rows
    if model is stores.SQL:
        from ontolake.server.writes import sql

        return sql.commit_rows
    if model is stores.GRAPH:
        from ontolake.server.writes import graph

        return graph.commit_rows
    from ontolake.server.writes import documents

    return documents.commit_rows
