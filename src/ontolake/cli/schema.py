"""`onto schema`: the types that a store knows, how they came to be, and letting one go."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from ontolake.cli.common.options import Branch, Db, StorageUri, TypeName, named, open_typed, place
from ontolake.cli.common.output import Heading, Json, Out
from ontolake.cli.common.safety import Token, check_token, token_of

app = typer.Typer(no_args_is_help=True, help="Types and their history.", rich_markup_mode="rich")


class Language(StrEnum):
    """What schemas are written in."""

    JSON = "json"
    PYTHON = "python"


@app.command()
def export(
    types: Annotated[list[str] | None, typer.Argument(metavar="[TYPE]…", help="Only these; all, if left out.")] = None,
    format: Annotated[Language, typer.Option("--format", help="json is canonical, python a module with classes.")]
    = Language.JSON,
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Write to a file.")] = None,
    db: Db = None, storage_uri: StorageUri = None, branch: Branch = "main", json: Json = False,
) -> None:  # fmt: skip
    """The current schemas as canonical JSON, or as a Python module whose classes have them."""
    from ontolake.cli.common.rows import redirected
    from ontolake.model.schema import canonical_json
    from ontolake.model.source import python_source

    if json and format is not Language.JSON:
        raise typer.BadParameter("--json is --format json", param_hint="--format")
    url = place(db, storage_uri)
    with open_typed(url, branch=branch) as store:
        known = store.repository.schemas()
        chosen = [store.find(name) for name in types] if types else store.types
        schemas = [known[info.kind, info.name].schema for info in chosen]
    with redirected(output):
        if format is Language.PYTHON:
            print(python_source(schemas, Path(url).name), end="")
        elif types and len(schemas) == 1:
            print(canonical_json(schemas[0]))
        else:
            print("[" + ",".join(f"\n{canonical_json(schema)}" for schema in schemas) + "\n]")


@app.command()
def history(
    type: TypeName, db: Db = None, storage_uri: StorageUri = None, branch: Branch = "main", json: Json = False,
) -> None:  # fmt: skip
    """The versions of a type: hash, reason and time of each, and what it changed. Dropped types too."""
    from ontolake.model.schema import diff
    from ontolake.ontology.errors import QueryError

    url, out = place(db, storage_uri), Out(json)
    with open_typed(url, branch=branch) as store:
        repository = store.repository
        dropped = {(kind, name) for kind, name in repository.dropped() if type in (name, f"{kind}/{name}")}
        try:
            info = store.find(type)
            kind, name = info.kind, info.name
        except QueryError:
            if len(dropped) != 1:
                raise
            kind, name = dropped.pop()
        since = repository.activations(kind, name)
        versions = sorted(repository.schema_versions(kind, name), key=lambda one: since.get(one.schema_version_id, 0))
        gone = (kind, name) not in repository.schemas()
    told: list[dict[str, Any]] = []
    for before, version in zip([None, *versions], versions, strict=False):
        changes = "" if before is None else str(diff(before.schema, version.schema)).partition(": ")[2]
        told.append({"schema_version_id": version.schema_version_id, "schema_hash": version.schema_hash,
                     "reason": version.reason, "created_at": version.created_at, "changes": changes,
                     "schema": version.schema})  # fmt: skip
    if json:
        out.document({"url": url, "type_kind": kind, "type_name": name, "dropped": gone, "versions": told})
        return
    columns = (Heading("version", right=True), Heading("hash"), Heading("reason"), Heading("time"), Heading("changes"))
    out.table(columns, [(one["schema_version_id"], one["schema_hash"][:12], one["reason"], one["created_at"][:19],
                         one["changes"] or None) for one in told])  # fmt: skip
    if gone:
        out.say(f"{name} was dropped")


@app.command()
def drop(type: TypeName, db: Db = None, storage_uri: StorageUri = None, token: Token = None, json: Json = False
         ) -> None:
    """Let a type go: it reads as empty and takes no writes, for good. What is stored stays.

    Without a token this only shows what would go.
    """
    from ontolake.cli.common.safety import Refused
    from ontolake.model.stored import StoredType
    from ontolake.ontology.errors import HeadMismatchError

    url, out = place(db, storage_uri), Out(json)
    with open_typed(url, write=token is not None) as store:
        info, repository = store.find(type), store.repository
        with repository.reading():
            version, head = repository.schemas()[info.kind, info.name], repository.head()
            rows = repository.count_stored(StoredType(version.schema))
        relations = [one.name for one in store.types if one.kind == "relation" and info.cls in (one.left, one.right)]
        facts = {"type_kind": info.kind, "type_name": info.name, "schema_version_id": version.schema_version_id,
                 "rows": rows, "relations": relations, "head": head}  # fmt: skip
        expected = token_of("drop type", *facts.values())
        if token is not None:
            check_token(token, expected)
            try:
                repository.drop_type(info.kind, info.name, at=head)
            except HeadMismatchError as error:
                raise Refused(f"{error.message}; nothing was changed",
                              hint="look at the preview again, and use its token") from error
    if token is not None:
        out.document({"url": url, "dropped": facts}) if json else out.say(f"dropped {info.kind} {info.name}")
    elif json:
        out.document({"url": url, "would_drop": facts, "token": expected})
    else:
        out.say(f"would drop {info.kind} {info.name}: {rows} row{'' if rows == 1 else 's'} could not be read any more")
        if relations:
            out.say(f"relations that lead to it: {', '.join(relations)}")
        out.preview(f"onto schema drop {quote(type)}{named(db, storage_uri)} --token {expected}")
