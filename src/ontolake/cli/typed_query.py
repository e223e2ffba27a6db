"""`onto query`: entities, relations and the ways between them, now or at any commit, by the stored schemas."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontolake.cli.output import Json, Out
from ontolake.cli.typed_options import AsOf, Branch, Db, Models, StorageUri, TypeName, open_typed, place

if TYPE_CHECKING:
    from ontolake.model.types import Kind
    from ontolake.ontology.query import Query
    from ontolake.ontology.typed_store import TypedStore

app = typer.Typer(no_args_is_help=True, help="Ask a typed store.", rich_markup_mode="rich")


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"


Where = Annotated[list[str] | None, typer.Option(
    "--where", "-w", metavar="FILTER", help="tier=gold, total>=10, name~Ada, 'born is null', …; all must hold.")]
OrderBy = Annotated[list[str] | None, typer.Option("--order-by", metavar="FIELD", help="FIELD or FIELD:desc.")]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=0, help="Stop after so many.")]
Offset = Annotated[int | None, typer.Option("--offset", metavar="N", min=0, help="Leave so many out first.")]
History = Annotated[bool, typer.Option("--history", help="Every state that ever was, not only the latest.")]
Count = Annotated[bool, typer.Option("--count", help="Only how many there are.")]
Shape = Annotated[Format | None, typer.Option("--format", help="A table, if left out; arrow is an IPC stream.")]
Output = Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Write to a file.")]


@app.command()
def entities(
    type: TypeName, where: Where = None, order_by: OrderBy = None, limit: Limit = None, offset: Offset = None,
    as_of: AsOf = None, history: History = False, count: Count = False, format: Shape = None, output: Output = None,
    db: Db = None, storage_uri: StorageUri = None, models: Models = None, branch: Branch = "main", json: Json = False,
) -> None:  # fmt: skip
    """Entities of a type."""
    with open_typed(place(db, storage_uri), models, branch=branch) as store:
        query = _query(store, type, "entity", where, order_by, limit, offset, as_of, history)
        _answer(store, type, query, _format(format, json), count, output)


@app.command()
def relations(
    type: TypeName, where: Where = None, order_by: OrderBy = None, limit: Limit = None, offset: Offset = None,
    as_of: AsOf = None, history: History = False, count: Count = False, format: Shape = None, output: Output = None,
    db: Db = None, storage_uri: StorageUri = None, models: Models = None, branch: Branch = "main", json: Json = False,
) -> None:  # fmt: skip
    """Relations of a type. Filters reach its ends: [dim]--where left.tier=gold[/]"""
    with open_typed(place(db, storage_uri), models, branch=branch) as store:
        query = _query(store, type, "relation", where, order_by, limit, offset, as_of, history)
        _answer(store, type, query, _format(format, json), count, output)


def _query(
    store: TypedStore, name: str, kind: Kind, where: list[str] | None, order_by: list[str] | None, limit: int | None,
    offset: int | None, as_of: int | None, history: bool,
) -> Query[Any]:  # fmt: skip
    from ontolake.ontology.wheretext import parse_order, parse_where

    info, start = store.find(name, kind), store.query()
    cls: Any = info.cls
    query: Query[Any] = start.entities(cls) if kind == "entity" else start.relations(cls)
    query = query.where(*(parse_where(text, info) for text in where or ()))
    query = query.order_by(*(parse_order(text, info) for text in order_by or ()))
    if limit is not None:
        query = query.limit(limit)
    if offset is not None:
        query = query.offset(offset)
    if history:
        query = query.with_history()
    return _bounded(store, query, as_of)


def _bounded(store: TypedStore, query: Query[Any], as_of: int | None) -> Query[Any]:
    from ontolake.ontology.bounds import check_commits

    if as_of is None:
        return query
    check_commits(store.repository, as_of)
    return query.as_of(as_of)


def _format(format: Format | None, json: bool) -> Format:
    if json and format not in (None, Format.JSON):
        raise typer.BadParameter("--json is --format json", param_hint="--format")
    return Format.JSON if json else format or Format.TABLE


def _diagnostics(store: TypedStore, query: Query[Any]) -> dict[str, Any]:
    """Why there may be less than expected: the moment lies before the current schema."""
    from ontolake.ontology.query import diagnostics

    return diagnostics(store.repository, *query.asked)


def _answer(
    store: TypedStore, name: str, query: Query[Any], format: Format, count: bool, output: str | None
) -> None:  # fmt: skip
    from ontolake.cli.typed_rows import write_rows
    from ontolake.model.types import type_info

    plan, values = query.asked
    diagnostics = _diagnostics(store, query)
    if count:
        number = query.count()
        if format is Format.JSON:
            Out(True).document({"type": name, "count": number, **({"diagnostics": diagnostics} if diagnostics else {})})
        else:
            Out(False).say(str(number))
    else:
        write_rows(store.repository, type_info(plan.root), plan, values, format, output, diagnostics)
    if format is not Format.JSON:
        _note(diagnostics)


def _note(diagnostics: dict[str, Any]) -> None:
    if diagnostics:
        typer.echo(f"note: the current schema is that of commit {diagnostics['activation_commit_id']} and later; "
                   "what was before cannot be asked by it", err=True)


@app.command()
def traverse(
    type: TypeName,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key of the entity to start from.")],
    via: Annotated[list[str], typer.Option(
        "--via", metavar="RELATION", help="Go over this relation; several are several steps. R:reverse turns it.")],
    where: Annotated[list[str] | None, typer.Option("--where", "-w", metavar="FILTER",
                                                    help="What the entities at the end must fulfil.")] = None,
    as_of: AsOf = None, limit: Limit = None, count: Count = False,
    db: Db = None, storage_uri: StorageUri = None, models: Models = None, branch: Branch = "main", json: Json = False,
) -> None:  # fmt: skip
    """Ways that lead from one entity over relations."""
    from ontolake.cli.typed_rows import write_paths
    from ontolake.errors import NotFound
    from ontolake.model.filters import FieldRef, Ref
    from ontolake.model.types import type_info
    from ontolake.ontology.wheretext import parse_where, read_value

    with open_typed(place(db, storage_uri), models, branch=branch) as store:
        info = store.find(type, "entity")
        cls: Any = info.cls
        key_is = FieldRef[Any](Ref(cls, info.keys[0].name)) == read_value(info.keys[0], key)
        query: Query[Any] = _bounded(store, store.query().entities(cls).where(key_is), as_of)
        if query.first() is None:
            raise NotFound(f"there is no {info.name} {key!r}" + (f" as of commit {as_of}" if as_of is not None else ""),
                           hint=f"see onto query entities {info.name}")
        for step in via:
            name, _, way = step.partition(":")
            if way not in ("", "forward", "reverse"):
                raise typer.BadParameter(f"{step!r}: a relation is taken forward or in reverse", param_hint="--via")
            direction: Any = way or None
            relation: Any = store.find(name, "relation").cls
            query = query.via(relation, direction=direction)
        end = type_info(query.asked[0].types[-1])
        query = query.where(*(parse_where(text, end) for text in where or ()))
        if limit is not None:
            query = query.limit(limit)
        diagnostics = _diagnostics(store, query)
        if count:
            number = query.count()
            Out(json).document({"count": number}) if json else Out(json).say(str(number))
        else:
            write_paths(Out(json), store.repository, *query.asked, diagnostics)
        if not json:
            _note(diagnostics)
