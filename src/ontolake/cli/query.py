"""`onto query`: entities, relations and the ways between them, now or at any commit, by the stored schemas."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontolake.cli.common.options import AsOf, Branch, Db, Models, StorageUri, TypeName, open_typed, place
from ontolake.cli.common.output import Json, Out

if TYPE_CHECKING:
    from ontolake.ontology.query.builder import Query
    from ontolake.ontology.query.requests import QueryMoment, QueryText
    from ontolake.ontology.typed_store import TypedStore

app = typer.Typer(no_args_is_help=True, help="Ask a typed store.", rich_markup_mode="rich")


class Schema(StrEnum):
    """How rows from before a migration are read."""

    STORED = "stored"
    CURRENT = "current"


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
By = Annotated[Schema, typer.Option(
    "--schema", help="Rows from before a migration: as they were stored, or by the current schema, through the "
                     "upgraders of --models.")]
Count = Annotated[bool, typer.Option("--count", help="Only how many there are.")]
Shape = Annotated[Format | None, typer.Option("--format", help="A table, if left out; arrow is an IPC stream.")]
Output = Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Write to a file.")]


@app.command()
def entities(
    type: TypeName, where: Where = None, order_by: OrderBy = None, limit: Limit = None, offset: Offset = None,
    as_of: AsOf = None, schema: By = Schema.STORED, history: History = False, count: Count = False,
    format: Shape = None, output: Output = None,
    db: Db = None, storage_uri: StorageUri = None, models: Models = None, branch: Branch = "main", json: Json = False,
) -> None:  # fmt: skip
    """Entities of a type."""
    with open_typed(place(db, storage_uri), models, branch=branch) as store:
        past = _moment(store, as_of, schema)
        query = past.select(type, "entity", _text(where, order_by, limit, offset, history))
        diagnostics = past.diagnostics(query)
        _answer(type, query, _format(format, json), count, output, diagnostics)
        _warn(as_of, schema, diagnostics)


@app.command()
def relations(
    type: TypeName, where: Where = None, order_by: OrderBy = None, limit: Limit = None, offset: Offset = None,
    as_of: AsOf = None, schema: By = Schema.STORED, history: History = False, count: Count = False,
    format: Shape = None, output: Output = None,
    db: Db = None, storage_uri: StorageUri = None, models: Models = None, branch: Branch = "main", json: Json = False,
) -> None:  # fmt: skip
    """Relations of a type. Filters reach its ends: [dim]--where left.tier=gold[/]"""
    with open_typed(place(db, storage_uri), models, branch=branch) as store:
        past = _moment(store, as_of, schema)
        query = past.select(type, "relation", _text(where, order_by, limit, offset, history))
        diagnostics = past.diagnostics(query)
        _answer(type, query, _format(format, json), count, output, diagnostics)
        _warn(as_of, schema, diagnostics)


def _moment(store: TypedStore, as_of: int | None, schema: Schema) -> QueryMoment:
    from ontolake.ontology.query.requests import QueryMoment

    return QueryMoment(store, as_of, schema.value)


def _text(
    where: list[str] | None, order_by: list[str] | None, limit: int | None, offset: int | None, history: bool
) -> QueryText:
    from ontolake.ontology.query.requests import QueryText

    return QueryText(where or (), order_by or (), limit, offset, history)


def _warn(as_of: int | None, schema: Schema, diagnostics: dict[str, Any]) -> None:
    """Say to people what diagnostics say."""
    if "activation_commit_id" in diagnostics:
        how = "by the schema of their time" if schema is Schema.STORED else "as the current schema has them"
        typer.echo(f"warning: commit {as_of} lies before commit {diagnostics['activation_commit_id']}, which "
                   f"began the current schema; rows are shown {how}", err=True)
    if "history_begins_at" in diagnostics:
        begun = diagnostics["history_begins_at"]
        typer.echo(f"warning: states from before commit {begun} have another schema and are left out; "
                   f"--as-of {begun - 1} shows them", err=True)


def _format(format: Format | None, json: bool) -> Format:
    if json and format not in (None, Format.JSON):
        raise typer.BadParameter("--json is --format json", param_hint="--format")
    return Format.JSON if json else format or Format.TABLE


def _answer(
    name: str, query: Query[Any], format: Format, count: bool, output: str | None, diagnostics: dict[str, Any]
) -> None:  # fmt: skip
    from ontolake.cli.common.rows import write_rows

    if count:
        number = query.count()
        if format is Format.JSON:
            Out(True).document({"type": name, "count": number, **({"diagnostics": diagnostics} if diagnostics else {})})
        else:
            Out(False).say(str(number))
    else:
        with query.question() as question:
            write_rows(question, format, output, diagnostics)


@app.command()
def traverse(
    type: TypeName,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key of the entity to start from.")],
    via: Annotated[list[str], typer.Option(
        "--via", metavar="RELATION", help="Go over this relation; several are several steps. R:reverse turns it.")],
    where: Annotated[list[str] | None, typer.Option("--where", "-w", metavar="FILTER",
                                                    help="What the entities at the end must fulfil.")] = None,
    as_of: AsOf = None, schema: By = Schema.STORED, limit: Limit = None, count: Count = False,
    db: Db = None, storage_uri: StorageUri = None, models: Models = None, branch: Branch = "main", json: Json = False,
) -> None:  # fmt: skip
    """Ways that lead from one entity over relations."""
    from ontolake.cli.common.rows import write_paths

    with open_typed(place(db, storage_uri), models, branch=branch) as store:
        past = _moment(store, as_of, schema)
        query = past.traverse(type, key, via, _text(where, None, limit, None, False))
        diagnostics = past.diagnostics(query)
        if count:
            number = query.count()
            told = {"count": number, **({"diagnostics": diagnostics} if diagnostics else {})}
            Out(json).document(told) if json else Out(json).say(str(number))
        else:
            with query.question() as question:
                write_paths(Out(json), question, diagnostics)
        _warn(as_of, schema, diagnostics)
