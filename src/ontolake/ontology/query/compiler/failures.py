"""Errors of SQLite that are the fault of a query."""

from __future__ import annotations

from ontolake.ontology.errors import QueryError

_TOO_MUCH = ("too many", "Expression tree is too large", "variable number must be", "parser stack", "string or blob")


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
