"""`onto query`: entities, relations and the ways between them, now or at any commit, by the stored schemas."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ontolake.cli.common.options import AsOf, Branch, Db, Models, StorageUri, TypeName, open_typed, place
from ontolake.cli.common.output import Json, Out

if TYPE_CHECKING:
    from ontolake.model.types import Kind, TypeInfo
    from ontolake.ontology.query.builder import Query
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
        past = QueryMoment(store, as_of, schema)
        query = _query(past, type, "entity", where, order_by, limit, offset, history)
        _answer(past, type, query, _format(format, json), count, output)


@app.command()
def relations(
    type: TypeName, where: Where = None, order_by: OrderBy = None, limit: Limit = None, offset: Offset = None,
    as_of: AsOf = None, schema: By = Schema.STORED, history: History = False, count: Count = False,
    format: Shape = None, output: Output = None,
    db: Db = None, storage_uri: StorageUri = None, models: Models = None, branch: Branch = "main", json: Json = False,
) -> None:  # fmt: skip
    """Relations of a type. Filters reach its ends: [dim]--where left.tier=gold[/]"""
    with open_typed(place(db, storage_uri), models, branch=branch) as store:
        past = QueryMoment(store, as_of, schema)
        query = _query(past, type, "relation", where, order_by, limit, offset, history)
        _answer(past, type, query, _format(format, json), count, output)


class QueryMoment:
    """The moment that a command asks about, and the types as it reads them. Raises `UnknownCommitError`."""

    def __init__(self, store: TypedStore, as_of: int | None, schema: Schema) -> None:
        from ontolake.ontology.query.bounds import check_commits

        check_commits(store.repository, as_of)
        self.store = store
        self.as_of = as_of
        self._schema = schema
        self._types: Mapping[tuple[Kind, str], TypeInfo] = {}
        if as_of is not None and schema is Schema.STORED:
            from ontolake.ontology.migration.past import types_at

            self._types = types_at(store.repository, store.types, as_of)

    def find(self, name: str, kind: Kind) -> TypeInfo:
        """The type of a name, as the commit has it if rows are read by the schema of their time."""
        found = self.store.find(name, kind)
        return self._types.get((kind, found.name), found)

    def start(self, info: TypeInfo) -> Query[Any]:
        """A query of a type at the moment."""
        start, cls = self.store.query(), cast("Any", info.cls)
        query: Query[Any] = start.entities(cls) if info.kind == "entity" else start.relations(cls)
        return query if self.as_of is None else query.as_of(self.as_of, schema=self._schema.value)

    def diagnostics(self, query: Query[Any]) -> dict[str, Any]:
        """What to warn of: a moment before the current schema of a type, and a history that lacks earlier states."""
        from ontolake.model.types import type_info
        from ontolake.ontology.migration.past import outdated

        repository, found = self.store.repository.holding(self.as_of or 0), dict[str, Any]()
        infos = [type_info(cls) for cls in query.types]
        since = max([*(repository.activation(info) for info in infos),
                     *(era.since for era in outdated(repository, infos, self.as_of or 0))], default=0)
        if self.as_of is not None and self.as_of < since:
            found = {"reason": "commit_before_activation", "activation_commit_id": since}
        begun = self._begun(infos[0])
        return {**found, "history_begins_at": begun} if query.has_history and begun else found

    def _begun(self, info: TypeInfo) -> int:
        """The commit with which the history of a type begins, if there are states before it that it leaves out."""
        from ontolake.ontology.migration.past import era_at

        repository = self.store.repository
        if self._schema is Schema.CURRENT and self.as_of is not None:
            return 0
        if self.as_of is None and not repository.activation(info):
            return 0  # states of all versions are shown
        era = era_at(repository, info.kind, info.name, repository.head() if self.as_of is None else self.as_of)
        return 0 if era is None else era.since

    def warn(self, diagnostics: dict[str, Any]) -> None:
        """Say so to people."""
        if "activation_commit_id" in diagnostics:
            how = "by the schema of their time" if self._schema is Schema.STORED else "as the current schema has them"
            typer.echo(f"warning: commit {self.as_of} lies before commit {diagnostics['activation_commit_id']}, which "
                       f"began the current schema; rows are shown {how}", err=True)
        if "history_begins_at" in diagnostics:
            begun = diagnostics["history_begins_at"]
            typer.echo(f"warning: states from before commit {begun} have another schema and are left out; "
                       f"--as-of {begun - 1} shows them", err=True)


def _query(
    past: QueryMoment, name: str, kind: Kind, where: list[str] | None, order_by: list[str] | None, limit: int | None,
    offset: int | None, history: bool,
) -> Query[Any]:  # fmt: skip
    from ontolake.ontology.query.text import parse_order, parse_where

    info = past.find(name, kind)
    query = past.start(info).where(*(parse_where(text, info) for text in where or ()))
    query = query.order_by(*(parse_order(text, info) for text in order_by or ()))
    if limit is not None:
        query = query.limit(limit)
    if offset is not None:
        query = query.offset(offset)
    return query.with_history() if history else query


def _format(format: Format | None, json: bool) -> Format:
    if json and format not in (None, Format.JSON):
        raise typer.BadParameter("--json is --format json", param_hint="--format")
    return Format.JSON if json else format or Format.TABLE


def _answer(
    past: QueryMoment, name: str, query: Query[Any], format: Format, count: bool, output: str | None
) -> None:  # fmt: skip
    from ontolake.cli.common.rows import write_rows

    diagnostics = past.diagnostics(query)
    if count:
        number = query.count()
        if format is Format.JSON:
            Out(True).document({"type": name, "count": number, **({"diagnostics": diagnostics} if diagnostics else {})})
        else:
            Out(False).say(str(number))
    else:
        with query.question() as question:
            write_rows(question, format, output, diagnostics)
    past.warn(diagnostics)


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
    from ontolake.errors import NotFound
    from ontolake.model.filters import FieldRef, ValueRef
    from ontolake.model.types import type_info
    from ontolake.ontology.query.text import parse_where, read_value

    with open_typed(place(db, storage_uri), models, branch=branch) as store:
        past = QueryMoment(store, as_of, schema)
        info = past.find(type, "entity")
        key_is = FieldRef[Any](ValueRef(info.cls, info.keys[0].name)) == read_value(info.keys[0], key)
        query = past.start(info).where(key_is)
        if query.first() is None:
            raise NotFound(f"there is no {info.name} {key!r}" + (f" as of commit {as_of}" if as_of is not None else ""),
                           hint=f"see onto query entities {info.name}")
        for step in via:
            name, _, way = step.partition(":")
            if way not in ("", "forward", "reverse"):
                raise typer.BadParameter(f"{step!r}: a relation is taken forward or in reverse", param_hint="--via")
            direction: Any = way or None
            relation: Any = past.find(name, "relation").cls
            query = query.via(relation, direction=direction)
        end = type_info(query.types[-1])
        query = query.where(*(parse_where(text, end) for text in where or ()))
        if limit is not None:
            query = query.limit(limit)
        diagnostics = past.diagnostics(query)
        if count:
            number = query.count()
            told = {"count": number, **({"diagnostics": diagnostics} if diagnostics else {})}
            Out(json).document(told) if json else Out(json).say(str(number))
        else:
            with query.question() as question:
                write_paths(Out(json), question, diagnostics)
        past.warn(diagnostics)
