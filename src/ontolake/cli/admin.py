"""`onto init` and `onto migrate`: start a typed store, and bring it to the types of today."""

from __future__ import annotations

from contextlib import closing
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontolake.cli.common.options import Branch, Db, Engine, Models, StorageUri, named, place
from ontolake.cli.common.output import Heading, Json, Out
from ontolake.cli.common.safety import Token

if TYPE_CHECKING:
    from ontolake.ontology.migration.rewrite import MigrationPreview, MigrationResult, TypeMigration


def init(
    engine_version: Annotated[Engine | None, typer.Option(
        "--engine-version", help="The layout; the latest, if left out. A store keeps it.")] = None,
    db: Db = None, storage_uri: StorageUri = None, models: Models = None, json: Json = False,
) -> None:  # fmt: skip
    """Start a typed store. With [bold]--models[/] it knows these types from the start."""
    from ontolake.errors import AlreadyExists
    from ontolake.model.imports import load
    from ontolake.ontology.errors import UninitializedStorageError
    from ontolake.ontology.repository import open_repository
    from ontolake.ontology.repository.sqlite.failures import ours

    url = place(db, storage_uri)
    classes = () if models is None else load(models)
    with ours(url):
        try:
            with closing(open_repository(url, config={"readonly": True, "create": False})) as known:
                version = known.engine_version
            raise AlreadyExists(f"there is a typed store at {url!r} already, with the engine {version}",
                                hint="see onto info")
        except UninitializedStorageError:
            pass
        engine = None if engine_version is None else engine_version.value
        with closing(open_repository(url, engine_version=engine)) as repository:
            commit = _register(repository, classes) if classes else None
            facts: dict[str, Any] = {
                "url": url, "backend": repository.backend, "engine_version": repository.engine_version,
                "types": sorted(cls.__name__ for cls in classes), "commit_id": commit,
            }  # fmt: skip
    out = Out(json)
    if json:
        out.document(facts)
        return
    out.say(f"started a typed store at {url} with the engine {facts['backend']}/{facts['engine_version']}")
    if commit is not None:
        out.say(f"commit {commit} makes its types known: {', '.join(facts['types'])}")


def _register(repository: Any, classes: Any) -> int:
    from ontolake.history.metadata import KIND
    from ontolake.model.types import type_info

    with repository.transaction("onto init") as transaction:
        for cls in classes:
            transaction.reconcile(type_info(cls), [])
        return int(transaction.finish({KIND: "init"}))


def migrate(
    models: Annotated[str, typer.Option("--models", metavar="MODULE", help="Your classes, as they are now.")],
    db: Db = None, storage_uri: StorageUri = None, token: Token = None,
    force: Annotated[bool, typer.Option("--force", help="Do it without a token.")] = False,
    branch: Branch = "main", json: Json = False,
) -> None:  # fmt: skip
    """Rewrite the latest state for changed types, as one commit. Without a token this only shows what would be done.

    Functions marked with [bold]@upgrader[/] in the module say how rows become rows of the next version.
    """
    from ontolake.model.imports import load
    from ontolake.model.types import type_info
    from ontolake.ontology.errors import MissingUpgraderError
    from ontolake.ontology.migration.rewrite import Migration
    from ontolake.ontology.repository import open_repository
    from ontolake.ontology.repository.sqlite.failures import ours

    url, out = place(db, storage_uri), Out(json)
    types = [type_info(cls) for cls in load(models)]
    apply = token is not None or force
    config = {"create": False, "readonly": not apply, "branch": branch}
    with ours(url), closing(open_repository(url, config=config)) as repository:
        migration = Migration(repository, types)
        if apply:
            tell(out, url, migration.apply("onto migrate", token, force=force))
            return
        with repository.reading():
            preview = migration.preview()
    where = named(db, storage_uri) + (f" --branch {quote(branch)}" if branch != "main" else "")
    show_preview(out, url, preview, f"onto migrate --models {quote(models)}{where}")
    if preview.missing:
        raise MissingUpgraderError(preview.missing, preview.reasons)


def tell(out: Out, url: str, done: MigrationResult) -> None:
    """What a migration did."""
    if out.json:
        out.document({"url": url, "commit_id": done.commit_id, "types": [_told(one) for one in done.types]})
    elif done.commit_id is None:
        out.say("nothing is to be migrated")
    else:
        _show(out, done.types)
        out.say(f"migrated as commit {done.commit_id}")


def show_preview(out: Out, url: str, preview: MigrationPreview, command: str) -> None:
    """What a migration would do, and the command that does it."""
    if out.json:
        out.document({"url": url, "needed": preview.needed, "types": [_told(one) for one in preview.types],
                      "missing": [{"type_name": name, "from_schema_version_id": version}
                                  for name, version in preview.missing],
                      "token": preview.token if preview.needed and not preview.missing else None})  # fmt: skip
    elif not preview.needed:
        out.say("nothing is to be migrated")
    else:
        _show(out, preview.types)
        if not preview.missing:
            out.preview(f"{command} --token {preview.token}")


def _show(out: Out, types: tuple[TypeMigration, ...]) -> None:
    columns = (Heading("type"), Heading("from", right=True), Heading("to", right=True), Heading("rows", right=True),
               Heading("changes"), Heading("upgraders"))
    out.table(columns, [(one.type_name, one.from_schema_version_id, one.to_schema_version_id, one.rows,
                         _changes(one), ", ".join(one.upgraders) or None) for one in types])


def _changes(one: TypeMigration) -> str:
    """What becomes of the fields that do not stay, in words."""
    changed = "; ".join(str(field) for field in one.fields if field.what != "kept")
    return changed or str(one.diff).partition(": ")[2]


def _told(one: TypeMigration) -> dict[str, Any]:
    return {
        "type_kind": one.type_kind, "type_name": one.type_name, "from_schema_version_id": one.from_schema_version_id,
        "to_schema_version_id": one.to_schema_version_id, "rows": one.rows,
        "changes": [{"field": change.field, "what": change.what} for change in one.diff.fields],
        "upgraders": list(one.upgraders), "fields": [field._asdict() for field in one.fields],
    }  # fmt: skip
