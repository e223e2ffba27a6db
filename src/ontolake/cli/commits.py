"""`onto commits`: what was committed to a typed store, and what a commit did."""

from __future__ import annotations

import json as jsons
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontolake.cli.common.groups import ListByDefault
from ontolake.cli.common.options import Branch, Db, StorageUri, open_typed, place
from ontolake.cli.common.output import Heading, Json, Out

if TYPE_CHECKING:
    from ontolake.history import Commit
    from ontolake.ontology.typed_store import TypedStore


app = typer.Typer(cls=ListByDefault, help="List commits, and see what one did.", rich_markup_mode="rich",
                  subcommand_metavar="[list|examine ID] [OPTIONS]")


def commit_facts(commit: Commit[Any]) -> dict[str, Any]:
    """A commit under the names that `--json` prints."""
    return {"id": commit.id, "parents": list(commit.parents), "time": commit.time.isoformat() if commit.time else None,
            "author": commit.author, "message": commit.message, "metadata": dict(commit.metadata)}  # fmt: skip


@app.command("list")
def list_commits(
    db: Db = None, storage_uri: StorageUri = None,
    since: Annotated[int, typer.Option("--since", metavar="COMMIT", min=0, help="Only what came after it.")] = 0,
    until: Annotated[int | None, typer.Option("--until", metavar="COMMIT", min=0, help="Nothing newer.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=0, help="Stop after so many.")] = None,
    branch: Branch = "main", json: Json = False,
) -> None:  # fmt: skip
    """Commits, newest first, with their metadata. [dim]onto commits[/] does the same."""
    url, out = place(db, storage_uri), Out(json)
    with open_typed(url, branch=branch) as store:
        commits = store.repository.commits(since=since, until=until, limit=limit)
        if json:
            out.records({"url": url}, "commits", map(commit_facts, commits))
        else:
            columns = (Heading("commit", 8, right=True), Heading("time", 20), Heading("metadata"))
            out.stream(columns, ((commit.id, f"{commit.time:%Y-%m-%d %H:%M:%S}" if commit.time else None,
                                  jsons.dumps(dict(commit.metadata), ensure_ascii=False) if commit.metadata else None)
                                 for commit in commits))  # fmt: skip


@app.command()
def examine(
    id: Annotated[int, typer.Argument(metavar="ID", min=1, help="The commit.")],
    db: Db = None, storage_uri: StorageUri = None,
    type: Annotated[list[str] | None, typer.Option("--type", metavar="TYPE", help="Only this type.")] = None,
    branch: Branch = "main", json: Json = False,
) -> None:  # fmt: skip
    """What a commit did, by type and key: which rows are new, and which fields changed."""

    url, out = place(db, storage_uri), Out(json)
    with open_typed(url, branch=branch) as store, store.repository.reading():
        commit = store.repository.commit(id)
        types = [store.find(name) for name in type] if type else store.types
        changes = _changes(store, id, types)
        if json:
            out.records({"url": url, **commit_facts(commit)}, "changes", changes)
            return
        out.facts({"commit": commit.id, "time": commit.time,
                   "metadata": jsons.dumps(dict(commit.metadata), ensure_ascii=False) if commit.metadata else None})
        out.say()
        columns = (Heading("kind", 6), Heading("type", 16), Heading("key", 20), Heading("fields"))
        out.stream(columns, ((one["change"], one["type"], _shown_key(one["key"]), _shown(one)) for one in changes))


def _changes(store: TypedStore, commit: int, types: Any) -> Any:
    """What a commit did, by the schemas of its time; of a migration, how rows were and what they became."""
    from ontolake.cli.common.values import plain
    from ontolake.ontology.moving.json_values import plain_key, record
    from ontolake.ontology.versioned import table_of

    parents = store.repository.commit(commit).parents
    before, after = store.snapshot(parents[0] if parents else 0), store.snapshot(commit)
    for known in types:
        if not before.same_schema(after, table_of(known)):
            for change in store.commit_changes(commit, [known]):
                yield {"kind": known.kind, "type": known.name, "key": plain(change.key), "change": change.kind.value,
                       "before": plain(change.before), "after": plain(change.after)}  # fmt: skip
            continue
        info = after.type_of(table_of(known))
        for one in store.repository.commit_changes(commit, info):
            old, new = (None if row is None else record(info, row) for row in (one.before, one.after))
            yield {"kind": info.kind, "type": info.name, "key": plain_key(info, one.after or one.before or ()),
                   "change": "insert" if old is None else "delete" if new is None else "update", "before": old,
                   "after": new}  # fmt: skip


def _shown_key(key: Any) -> str:
    return " ".join(map(str, key)) if isinstance(key, list) else str(key)


def _shown(change: dict[str, Any]) -> str:
    """The fields of a new row; of an old one those that changed, as they were and as they are."""
    before, after = change["before"], change["after"]
    if before is None or after is None:
        return jsons.dumps(after if before is None else before, ensure_ascii=False)
    names = [name for name in {**after, **before} if name not in after or name not in before
             or after[name] != before[name]]  # fmt: skip
    return ", ".join(f"{name}: {_told(before, name)} → {_told(after, name)}" for name in names)


def _told(row: dict[str, Any], name: str) -> str:
    return jsons.dumps(row[name], ensure_ascii=False) if name in row else "(no such field)"
