"""The routes of the HTTP API, one module a subject.

`administration`, `blobs`, `branches`, `commits`, `documents`, `health`, `merges`, `rows_past`, `sql`, `stores`.
"""

from ontolake.server.api import (
    administration,
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
    "administration",
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
