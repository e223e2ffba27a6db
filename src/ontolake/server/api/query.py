"""Typed queries over HTTP: entities, relations and ways between them, with the filters of `onto query`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from starlette.responses import StreamingResponse

from ontolake.server import formats
from ontolake.server.api.branches import ref_text
from ontolake.server.models import check_model
from ontolake.server.problems import RefusedError
from ontolake.server.rights import TokenScope, Touch
from ontolake.server.routes import Call, route
from ontolake.server.values import plain
from ontolake.stores import TYPED

if TYPE_CHECKING:
    from ontolake.model.types import TypeInfo
    from ontolake.ontology.query.builder import Query
    from ontolake.ontology.query.requests import QueryMoment

ROWS, MOST_ROWS = 1000, 1_000_000
"""How many rows an answer has at most, unless the request says otherwise, and what it may say."""


class AggregateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What to work out of a field; `count` needs none, `count_where` a filter."""

    op: Literal["count", "sum", "avg", "min", "max", "avg_len", "count_where"]
    field: str | None = None
    where: str | None = None


class TypedQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Entities or relations of a type. Filters and orders are those of `onto query`: `tier=gold`, `name:desc`.

    `via` goes from the entity `key` over relations. `aggregates` are by name, for groups of `group_by` or for all.
    """

    type: str
    kind: Literal["entity", "relation"] = "entity"
    where: list[str] = []
    order_by: list[str] = []
    limit: int = ROWS
    offset: int | None = None
    branch: str | None = None
    as_of: int | str | None = None
    schema: Literal["stored", "current"] = "stored"
    history: bool = False
    key: str | None = None
    via: list[str] = []
    aggregates: dict[str, AggregateRequest] = {}
    group_by: list[str] = []


class TypedRow(msgspec.Struct):
    """A state of an entity or relation, and the commit that wrote it."""

    key: Any
    fields: dict[str, Any]
    commit_id: int
    type: str | None = None


class TypedPath(msgspec.Struct):
    """A way over relations: the entities that it goes through, and what leads from each to the next."""

    entities: list[TypedRow]
    relations: list[TypedRow]


class TypedAnswer(msgspec.Struct, omit_defaults=True):
    """Rows, paths or groups, whichever was asked for."""

    type: str
    kind: str
    rows: list[TypedRow] | None = None
    paths: list[TypedPath] | None = None
    groups: list[dict[str, Any]] | None = None
    diagnostics: dict[str, Any] = {}
    truncated: bool = False


def _reads(call: Call) -> Iterable[Touch]:
    check_model(call.store, TYPED)
    body: TypedQuery = call.body
    touches = [Touch(TokenScope.READ, body.branch or call.store.first_branch)]
    if body.as_of is not None:  # the commit may be one of another branch
        touches.append(Touch(TokenScope.READ, call.store.branch_of(ref_text(body.as_of), call.principal)))
    return touches


@route("POST", "/stores/{store}/query", body=TypedQuery, touches=_reads, changes=False, tag="typed",
       answers={200: TypedAnswer})
def run_query(call: Call) -> Any:
    """Ask a typed store for entities, relations, ways over relations, or aggregates."""
    from ontolake.ontology.query.requests import QueryMoment, QueryText

    body: TypedQuery = call.body
    if not 0 <= body.limit <= MOST_ROWS:
        raise RefusedError(422, f"limit is from 0 to {MOST_ROWS}, not {body.limit}")
    if (body.key is None) != (not body.via):
        raise RefusedError(422, "via needs the key of the entity to start from, and a key needs via")
    if body.group_by and not body.aggregates:
        raise RefusedError(422, "group_by needs aggregates")
    tables = not body.via and not body.aggregates
    media_type = formats.chosen(call.request.headers.get("accept"), formats.FORMATS if tables else (formats.JSON,))
    with call.store.reading(body.branch) as store:
        as_of = store.repository.resolve(body.as_of) if isinstance(body.as_of, str) else body.as_of
        moment = QueryMoment(store, as_of, body.schema)
        limit = None if body.aggregates else body.limit + 1
        text = QueryText(body.where, body.order_by, limit, body.offset, body.history)
        if body.via:
            query = moment.traverse(body.type, str(body.key), body.via, text)
            return _paths(moment, query, body)
        query = moment.select(body.type, body.kind, text)
        if body.aggregates:
            info = moment.find(body.type, body.kind)
            return TypedAnswer(info.name, info.kind, groups=_groups(query, info, body),
                               diagnostics=moment.diagnostics(query))
        if media_type == formats.ARROW:
            return formats.table_reply(query.to_arrow(), media_type, body.limit)
        return _rows(moment, query, body, media_type)


def _rows(moment: QueryMoment, query: Query[Any], body: TypedQuery, media_type: str) -> Any:
    from ontolake.model.types import type_info
    from ontolake.ontology.moving.json_values import plain as encoded

    with query.question() as question:
        info = type_info(question.plan.root)
        rows = list(question.source.run(question.plan, question.values))
        truncated, rows = len(rows) > body.limit, rows[: body.limit]
        if media_type == formats.CSV:
            names = [*(column.stored for column in info.all_columns), "commit_id"]
            cells = ([*(encoded(column, value) for column, value in zip(info.all_columns, row, strict=False)),
                      _commit(info, row)] for row in rows)  # fmt: skip
            return StreamingResponse(formats.csv_of(names, cells), media_type=media_type)
        found = [_row(info, row) for row in rows]
    if media_type == formats.LINES:
        values = ((one.key, one.fields, one.commit_id) for one in found)
        return StreamingResponse(formats.lines_of(("key", "fields", "commit_id"), values), media_type=media_type)
    return TypedAnswer(info.name, info.kind, rows=found, diagnostics=moment.diagnostics(query), truncated=truncated)


def _commit(info: TypeInfo, row: Any) -> int:
    return int(row[len(info.all_columns)])


def _row(info: TypeInfo, row: Any, *, named: bool = False) -> TypedRow:
    from ontolake.ontology.moving.json_values import plain_key, record

    return TypedRow(plain(plain_key(info, row)), plain(record(info, row)), _commit(info, row),
                    info.name if named else None)  # fmt: skip


def _paths(moment: QueryMoment, query: Query[Any], body: TypedQuery) -> TypedAnswer:
    from ontolake.model.types import type_info

    paths: list[TypedPath] = []
    with query.question() as question:
        types = [type_info(cls) for cls in question.plan.types]
        for row in question.source.run(question.plan, question.values):
            parts, start = [], 0
            for info in types:
                width = len(info.all_columns) + 1
                parts.append(_row(info, row[start : start + width], named=True))
                start += width
            paths.append(TypedPath(parts[::2], parts[1::2]))
    return TypedAnswer(body.type, "path", paths=paths[: body.limit], diagnostics=moment.diagnostics(query),
                       truncated=len(paths) > body.limit)  # fmt: skip


def _groups(query: Query[Any], info: TypeInfo, body: TypedQuery) -> list[dict[str, Any]]:
    from ontolake.ontology.query import aggregates
    from ontolake.ontology.query.text import parse_field, parse_where

    of_field = {"sum": aggregates.sum_, "avg": aggregates.avg, "min": aggregates.min_, "max": aggregates.max_,
                "avg_len": aggregates.avg_len}  # fmt: skip
    measures = {}
    for name, asked in body.aggregates.items():
        if (asked.field is None) == (asked.op in of_field) or (asked.where is None) == (asked.op == "count_where"):
            needs = "a field" if asked.op in of_field else "a filter" if asked.op == "count_where" else "neither"
            raise RefusedError(422, f"aggregates.{name}: {asked.op} takes {needs}")
        field = None if asked.field is None else parse_field(asked.field, info)
        if asked.op == "count_where":
            measures[name] = aggregates.count_where(parse_where(str(asked.where), info))
        elif asked.op == "count":
            measures[name] = aggregates.count()
        else:
            assert field is not None
            measures[name] = of_field[asked.op](field)
    if body.group_by:
        grouped = query.group_by(*(parse_field(one, info) for one in body.group_by))
        return [{name: plain(value) for name, value in group.items()} for group in grouped.agg(**measures)]
    found = {}
    for name, asked in body.aggregates.items():
        if asked.op == "count":
            found[name] = query.count()
        elif asked.op == "count_where":
            found[name] = query.count_where(parse_where(str(asked.where), info))
        else:
            found[name] = plain(getattr(query, asked.op)(parse_field(str(asked.field), info)))
    return [found]
