"""The routes of the HTTP API, one module a subject.

`blobs`, `branches`, `commits`, `documents`, `health`, `merges`, `rows_past`, `sql`, `stores`.
"""

from ontolake.server.api import (
    blobs,
    branches,
    commits,
    documents,
    health,
    merges,
    rows_past,
    sql,
    stores,
)

__all__ = [
    "blobs",
    "branches",
    "commits",
    "documents",
    "health",
    "merges",
    "rows_past",
    "sql",
    "stores",
]
