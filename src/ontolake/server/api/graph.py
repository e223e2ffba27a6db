"""Graphs over HTTP: walks along edges, search by words and vectors, and SQL, at any reference."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from ontolake.history import wire
from ontolake.server import formats
from ontolake.server.answers import form_of, sent_value
from ontolake.server.models import check_model
from ontolake.server.problems import RefusedError
from ontolake.server.rights import TokenScope, Touch
from ontolake.server.routes import Call, route
from ontolake.stores import GRAPH

ROWS, MOST_ROWS = 10_000, 1_000_000
MOST_FOUND = 10_000
"""How many rows a search returns at most."""


class HopRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One step of a walk: along which edges, which way, how often. Filters are expressions of SQL."""

    edge: str
    direction: Literal["out", "in", "both"] = "out"
    min_depth: int = 1
    max_depth: int = 1
    where: str | None = None
    to: str | None = None


class TraverseRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A walk from nodes of a table, all of them if no roots are named."""

    table: str
    hops: list[HopRequest]
    roots: list[Any] | None = None
    ref: str | None = None
    limit: int = ROWS


class SearchRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The rows of a table that fit words, a vector, or both best."""

    table: str
    text: str | None = None
    vector: list[float] | None = None
    column: str | None = None
    filter: str | None = None
    ref: str | None = None
    limit: int = 10


class GraphSqlRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A query whose tables are called as types are."""

    sql: str
    ref: str | None = None
    limit: int = ROWS


def _reads(call: Call) -> Iterable[Touch]:
    check_model(call.store, GRAPH)
    return [Touch(TokenScope.READ, call.store.branch_of(call.body.ref, call.principal))]


def _answer(call: Call, most: int, run: Any) -> Any:
    """A table that a snapshot gives, as the request accepts it."""
    if not 1 <= call.body.limit <= most:
        raise RefusedError(422, f"limit is from 1 to {most}, not {call.body.limit}")
    media_type = formats.chosen(call.request.headers.get("accept"), (*formats.FORMATS, wire.MEDIA_TYPE))
    with call.store.reading() as graph:
        table = run(graph.snapshot() if call.body.ref is None else graph.at(call.body.ref))
    return formats.table_reply(table, media_type, call.body.limit, form_of(call))


@route("POST", "/stores/{store}/graph/traverse", body=TraverseRequest, touches=_reads, changes=False, tag="graph",
       answers={200: formats.TableAnswer})
def traverse_graph(call: Call) -> Any:
    """Walk along edges: the keys of the nodes that a walk ends at, and how far away they are."""
    from ontolake.graph import Hop

    body: TraverseRequest = call.body
    hops = [Hop(one.edge, one.direction, one.min_depth, one.max_depth, one.where, one.to) for one in body.hops]
    return _answer(call, MOST_ROWS, lambda snapshot: snapshot.traverse(body.table, sent_value(call, body.roots), hops))


@route("POST", "/stores/{store}/graph/search", body=SearchRequest, touches=_reads, changes=False, tag="graph",
       answers={200: formats.TableAnswer})
def search_graph(call: Call) -> Any:
    """Search by words, by a vector, or by both; the best rows come first."""
    body: SearchRequest = call.body
    return _answer(call, MOST_FOUND, lambda snapshot: snapshot.search(
        body.table, text=body.text, vector=body.vector, column=body.column, limit=body.limit, filter=body.filter))


@route("POST", "/stores/{store}/graph/sql", body=GraphSqlRequest, touches=_reads, changes=False, tag="graph",
       answers={200: formats.TableAnswer})
def query_graph(call: Call) -> Any:
    """Ask a snapshot in SQL. Nothing can be changed, and no files are read."""
    return _answer(call, MOST_ROWS, lambda snapshot: snapshot.sql(call.body.sql))
