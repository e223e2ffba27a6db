"""The routes of the HTTP API, one module a subject.

`administration`, `blobs`, `branches`, `changes`, `commits`, `documentation`, `documents`, `events`, `graph`,
`graph_commits`, `health`, `merges`, `query`, `rows`, `rows_past`, `sessions`, `snapshots`, `sql`, `stores`, `tables`,
`upkeep`.
"""

from ontolake.server.api import (
    administration,
    blobs,
    branches,
    changes,
    commits,
    documentation,
    documents,
    events,
    graph,
    graph_commits,
    health,
    merges,
    query,
    rows,
    rows_past,
    sessions,
    snapshots,
    sql,
    stores,
    tables,
    upkeep,
)

__all__ = [
    "administration",
    "blobs",
    "branches",
    "changes",
    "commits",
    "documentation",
    "documents",
    "events",
    "graph",
    "graph_commits",
    "health",
    "merges",
    "query",
    "rows",
    "rows_past",
    "sessions",
    "snapshots",
    "sql",
    "stores",
    "tables",
    "upkeep",
]
