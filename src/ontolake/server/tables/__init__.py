"""Tables of any model as requests read them: a page at a time, or all rows as a stream.

`pages` has the protocol and the loop that fills a page; `typed`, `documents`, `graph` and `sql` read chunks of their
model. `points` reads one row by its key. `filters` and `ordering` are what requests say of rows, `formats` how rows are
written into answers.
"""

from __future__ import annotations

from typing import Any

from ontolake import stores
from ontolake.server.tables.pages import TableReader


def open_table(found: stores.Store, store: Any, snapshot: Any, table: str) -> TableReader:
    """A table of a snapshot. Raises `NotFound` if it is not there."""
    if found.model is stores.TYPED:
        from ontolake.server.tables.typed import TypedTable

        return TypedTable(found, store, snapshot, table)
    if found.model is stores.SQL:
        from ontolake.server.tables.sql import SqlTable

        return SqlTable(found, snapshot, table)
    if found.model is stores.GRAPH:
        from ontolake.server.tables.graph import GraphTable

        return GraphTable(found, snapshot, table)
    from ontolake.server.tables.documents import DocumentTable

    return DocumentTable(found, snapshot, table)
