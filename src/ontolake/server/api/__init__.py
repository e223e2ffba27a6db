"""The routes of the HTTP API, one module a subject.

`administration`, `blobs`, `branches`, `commits`, `documents`, `health`, `merges`, `rows_past`, `sql`, `stores`,
`tables`.
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
    tables,
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
    "tables",
]
