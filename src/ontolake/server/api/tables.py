"""Tables of any model at any reference: which there are, their columns, and their rows."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from anyio import to_thread

from ontolake import stores
from ontolake.server import cursors
from ontolake.server.answers import branch_name, entity_tag
from ontolake.server.api.commits import pinned
from ontolake.server.formats import ARROW, CSV, JSON, LINES, chosen
from ontolake.server.problems import RefusedError
from ontolake.server.routes import Call, Reply, looks_up_ref, reads_ref, route
from ontolake.server.streams import streamed
from ontolake.server.tables import filters, formats, open_table, ordering
from ontolake.server.tables.pages import TableReader, read_page

if TYPE_CHECKING:
    import pyarrow as pa

PAGE = 1000
"""How many rows a page of JSON has, unless the request says another number."""
_TREES = ("document",)
"""Columns of documents that hold JSON."""


class RefQuery(msgspec.Struct):
    """A state of the store; by default the head of the first branch."""

    ref: str | None = None


class TableQuery(msgspec.Struct):
    """A table at a state of the store."""

    table: str
    ref: str | None = None


class RowsQuery(msgspec.Struct):
    """Which rows of a table. `columns` and `order` are names with commas between them, `-` before one sorts downwards;
    `filter` is a JSON list of `[column, operator, value]`."""

    table: str
    ref: str | None = None
    columns: str | None = None
    filter: str | None = None
    order: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100_000)] | None = None
    cursor: str | None = None


class TableNames(msgspec.Struct):
    """The tables at a commit, sorted."""

    branch: str
    commit: int | str
    tables: list[str]


class ColumnOut(msgspec.Struct):
    """A column, with its type in Arrow's words."""

    name: str
    type: str
    key: bool


class SchemaOut(msgspec.Struct):
    """The columns of a table at a commit. `arrow` is the schema as an Arrow message, in base64."""

    table: str
    branch: str
    commit: int | str
    columns: list[ColumnOut]
    arrow: str


class RowsOut(msgspec.Struct):
    """A page of rows at a commit. `cursor` is None on the last page."""

    table: str
    branch: str
    commit: int | str
    rows: list[dict[str, Any]]
    cursor: str | None


def snapshot_at(call: Call, store: Any, ref: str | None) -> Any:
    """The store at a reference, or as the first branch is now."""
    if ref is None and call.store.model is not stores.DOCUMENTS:  # where that is the newest commit of any branch
        return store.snapshot()
    return store.at(call.store.first_branch if ref is None else ref)


@route("GET", "/stores/{store}/tables", touches=reads_ref, query=RefQuery, answers={200: TableNames}, tag="rows")
def list_tables(call: Call) -> Any:
    """The tables of a store."""
    with call.store.reading() as store:
        moment = snapshot_at(call, store, call.query.ref)
        return TableNames(branch_name(moment.branch), moment.commit, list(moment.tables()))


@route("GET", "/stores/{store}/schema", touches=reads_ref, query=TableQuery, answers={200: SchemaOut}, tag="rows")
def show_schema(call: Call) -> Any:
    """The columns of a table."""
    with call.store.reading() as store:
        reader = open_table(call.store.found, store, snapshot_at(call, store, call.query.ref), call.query.table)
        schema, keys = reader.schema, set(reader.keys)
        columns = [ColumnOut(field.name, str(field.type), field.name in keys) for field in schema]
        arrow = base64.b64encode(schema.serialize().to_pybytes()).decode()
        return SchemaOut(reader.table, branch_name(reader.branch), reader.commit, columns, arrow)


def _read_inline(call: Call) -> Any:
    """A row by its key as JSON, if it can be read quickly."""
    query: RowsQuery = call.query
    served, accept = call.store, call.exchange.headers.get(b"accept", b"*/*")
    if query.filter is None or query.ref not in (None, served.first_branch) or query.cursor or query.order \
            or accept not in (b"*/*", b"application/json") or served.model is not stores.TYPED:
        return None
    from ontolake.server.tables.points import read_point

    found = served.read_inline(partial(read_point, table=query.table, columns=query.columns, text=query.filter))
    if found is None:
        return None
    value = RowsOut(query.table, served.first_branch, found.commit, found.rows, None)
    return Reply(value, headers=_state(found.commit, served.first_branch))


@route("GET", "/stores/{store}/rows", touches=reads_ref, looks_up=looks_up_ref, inline=_read_inline, query=RowsQuery,
       tag="rows",
       answers={200: {JSON: RowsOut, LINES: None, CSV: None, ARROW: None}},
       headers={"accept": "the format of the rows"})
async def read_rows(call: Call) -> Any:
    """Rows of a table: a page of them or, unless as JSON, all of them as a stream."""
    kind = chosen(call.request.headers.get("accept"))
    if kind == JSON or call.query.limit is not None or call.query.cursor is not None or call.query.order:
        return await to_thread.run_sync(_page, call, kind)
    return await _whole(call, kind)


class _Request:
    """What a request says of the rows of a table, checked against its columns."""

    def __init__(self, call: Call, reader: TableReader) -> None:
        query: RowsQuery = call.query
        schema = reader.schema
        self.columns = list(schema.names) if query.columns is None else _columns(query.columns, schema)
        self.filters = [] if query.filter is None else filters.parse(query.filter, schema)
        self.order = None if not query.order else ordering.parse(query.order, schema, reader.keys)
        self.trees = _TREES if call.store.model is stores.DOCUMENTS else ()

    def schema(self, reader: TableReader) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([reader.schema.field(name) for name in self.columns])


def _columns(text: str, schema: pa.Schema) -> list[str]:
    found = [name.strip() for name in text.split(",")]
    for name in found:
        if name not in schema.names:
            raise RefusedError(422, f"there is no column {name!r}", hint=f"there are {', '.join(schema.names)}")
    if len(set(found)) != len(found):
        raise RefusedError(422, f"columns has {text!r}, which names a column twice")
    return found


def _page(call: Call, kind: str) -> Any:
    """A page, in whichever format."""
    query: RowsQuery = call.query
    name = cursors.listing("rows", call.store.name, query.table, query.ref, query.columns, query.filter, query.order)
    limit = call.page_size(query.limit or PAGE)
    with call.store.reading() as store:
        ref, after = (query.ref, None) if query.cursor is None else cursors.read(query.cursor, name)
        moment = snapshot_at(call, store, ref)
        reader = open_table(call.store.found, store, moment, query.table)
        request = _Request(call, reader)
        if request.order is None:
            rows, position = read_page(reader, request.columns, request.filters, after, limit)
        else:
            rows, position = _ordered(reader, request, after, limit)
        cursor = None
        if position is not None:
            cursor = cursors.write(name, (pinned(store, ref, moment) if query.cursor is None else ref, position))
    head = _headers(reader) | ({} if cursor is None else {"ontolake-cursor": cursor})
    call.store.open_inline()
    if kind == JSON:
        objects = formats.row_objects(rows, request.trees)
        return Reply(RowsOut(reader.table, branch_name(reader.branch), reader.commit, objects, cursor), headers=head)
    body = b"".join(formats.stream_of(kind, rows.schema, request.trees)(rows.to_batches()))
    return Reply(body, 200, head, kind)


def _ordered(reader: TableReader, request: _Request, after: Any, limit: int) -> tuple[pa.Table, Any]:
    import pyarrow as pa

    assert request.order is not None
    sorted_by = [one.column for one in request.order]
    needed = list(dict.fromkeys([*request.columns, *sorted_by]))
    schema = pa.schema([reader.schema.field(one) for one in needed])
    batches = reader.stream(needed, request.filters)
    rows = ordering.first_rows(batches, request.order, after, limit + 1, schema)
    position = None
    if rows.num_rows > limit:
        position = tuple(rows.column(one)[limit - 1].as_py() for one in sorted_by)
    return rows.slice(0, limit).select(request.columns), position


async def _whole(call: Call, kind: str) -> Any:
    """All rows, as a stream."""
    reader, request = await to_thread.run_sync(_opened, call)

    def produce() -> Iterator[formats.Chunk]:
        with call.store.reading() as store:
            fresh = open_table(call.store.found, store, store.at(reader.ref), call.query.table)
            write = formats.stream_of(kind, request.schema(fresh), request.trees)
            yield from write(fresh.stream(request.columns, request.filters))

    return await streamed(produce, kind, _headers(reader))


def _opened(call: Call) -> tuple[Any, _Request]:
    with call.store.reading() as store:
        moment = snapshot_at(call, store, call.query.ref)
        reader = open_table(call.store.found, store, moment, call.query.table)
        reader.ref = pinned(store, call.query.ref, moment)
        return reader, _Request(call, reader)


def _headers(reader: TableReader) -> dict[str, str]:
    return _state(reader.commit, branch_name(reader.branch))


def _state(commit: Any, branch: str) -> dict[str, str]:
    return {"etag": entity_tag(commit), "ontolake-commit": str(commit), "ontolake-branch": branch, "vary": "accept"}


