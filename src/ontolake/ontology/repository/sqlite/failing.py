"""What SQLite reports while a typed store is used, as an error of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from ontolake.engine.failing import told
from ontolake.errors import OntolakeError
from ontolake.ontology.errors import QueryError, StorageBackendError

_TOO_MUCH = ("too many", "Expression tree is too large", "variable number must be", "parser stack", "string or blob")


@contextmanager
def ours(uri: str) -> Iterator[None]:
    """Raise `StorageBackendError` for an error of SQLite in the block, with what to do about it."""
    try:
        yield
    except apsw.Error as error:
        if isinstance(error, OntolakeError):
            raise
        found = told(error, repr(uri))
        raise StorageBackendError(found.message, hint=found.hint) from error


def query_failure(error: Exception) -> Exception:
    """What to raise for an error in a query: `QueryError` if the question was the reason, else the error itself."""
    if isinstance(error, UnicodeEncodeError):
        return QueryError(f"a text in the query is not Unicode: {error.reason}")
    if "integer overflow" in str(error):
        return QueryError("the sum is a number that does not fit into 64 bits", hint="ask for avg(), or sum fewer rows")
    if str(error).startswith(_TOO_MUCH):
        return QueryError(f"the query is too large: {error}",
                          hint="ask for fewer conditions, fields or aggregates at once; lists go into in_()")
    return error
