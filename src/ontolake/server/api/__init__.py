"""The routes of the HTTP API, one module a subject.

`blobs`, `branches`, `commits`, `documents`, `health`, `merges`, `rows_past`, `stores`.
"""

from ontolake.server.api import (
    blobs,
    branches,
    commits,
    documents,
    health,
    merges,
    rows_past,
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
    "stores",
]
