"""The verbs of any store that need no more than a past and upkeep: `onto export|verify|gc`.

They ask for nothing but what `ontolake.history` describes, except where a model has more to say.
"""

from __future__ import annotations

import json as jsons
from collections.abc import Iterator
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontolake.cli.common.options import AnyUrl, Db, StorageUri, place
from ontolake.cli.common.output import Json, Out, progress
from ontolake.cli.common.safety import Token, check_token, token_of
from ontolake.cli.common.stored_commits import OnBranch, branch_argument, commit_in
from ontolake.cli.common.values import plain
from ontolake.cli.transfer import Form, export_typed
from ontolake.errors import ExitCode

if TYPE_CHECKING:
    from ontolake.history import Damage
    from ontolake.stores import Store

def export(
    url: AnyUrl = None,
    type: Annotated[list[str] | None, typer.Option("--type", metavar="TYPE", help="Only this type or table.")] = None,
    as_of: Annotated[str | None, typer.Option("--as-of", metavar="COMMIT", help="As it was after this commit.")] = None,
    format: Annotated[Form, typer.Option("--format", help="Lines of JSON, or a directory of Parquet files.")]
    = Form.JSONL,
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="PATH", help="Write to a file.")] = None,
    branch: OnBranch = None, db: Db = None, storage_uri: StorageUri = None, json: Json = False,
) -> None:  # fmt: skip
    """Every row of a store as a line of JSON, now or as of a commit. [bold]onto import[/] takes typed ones back."""
    from ontolake.cli.common.rows import redirected
    from ontolake.stores import find

    store, out = find(place(db, storage_uri, url)), Out(json)
    with store.opened(branch=branch) as versioned:
        assert store.model is not None
        if store.model.name == "typed" and not store.is_remote:
            export_typed(versioned, out, types=type or [], as_of=commit_in(store, as_of, "--as-of"), form=format,
                         output=output)
            return
        if format is not Form.JSONL:
            raise typer.BadParameter(f"{store.model.described} has no {format.value} form", param_hint="--format")
        snapshot, rows = versioned.snapshot(commit_in(store, as_of, "--as-of"), **branch_argument(branch)), 0
        with redirected(output):
            for table in type or snapshot.tables():
                for key, row in snapshot.rows(table):
                    print(jsons.dumps({"table": table, "key": plain(key), "row": plain(row)}, ensure_ascii=False))
                    rows += 1
    if output is not None:
        out.document({"url": store.url, "output": output, "rows": rows}) if json else \
            out.say(f"exported {rows} rows to {output}")


def verify(url: AnyUrl = None, db: Db = None, storage_uri: StorageUri = None, json: Json = False) -> None:
    """Read everything that a store holds, and report damage. Ends with 5 if there is any."""
    from ontolake.stores import find

    store, out = find(place(db, storage_uri, url)), Out(json)
    if store.model is None and store.site.on_pages:
        from ontolake.cli.storage import verify as verify_pages

        verify_pages(store.url, json=json)
        return
    damage: list[Damage] = []
    remarks: list[dict[str, Any]] = []
    with progress(json) as advance:
        if store.site.on_pages:
            from ontolake.cli.common.page_checks import check

            damage += check(store.site, advance).damage
        damage += _damage(store, advance, remarks)
    if json:
        out.document({"url": store.url, "ok": not damage, "kind": store.model.name if store.model else None,
                      "damage": [one._asdict() for one in damage], "dangling": remarks})  # fmt: skip
    else:
        for where, what in damage:
            out.say(f"DAMAGED {where}: {what}")
        for one in remarks:
            out.say(f"note: {one['rows']} {one['type_name']} lead to a {one['side']} end that is not there, "
                    f"such as {one['example']!r}")
        out.say("nothing is damaged" if not damage
                else f"{len(damage)} found; restore from a copy unless a line says otherwise")
    if damage:
        raise typer.Exit(ExitCode.STORAGE)


def _damage(store: Store, advance: Any, remarks: list[dict[str, Any]]) -> list[Damage]:
    """All damage of a store whose model is known; a store that cannot be opened is damaged as a whole."""
    from ontolake.errors import Corruption
    from ontolake.history import Damage

    found: list[Damage] = []
    try:
        if store.model is not None and store.model.name == "typed" and not store.is_remote:
            found += _typed_damage(store, advance, remarks)
        else:
            with store.opened() as maintained:
                found += maintained.verify()
    except Corruption as error:
        found.append(Damage("database", error.message))
    return found


def _typed_damage(store: Store, advance: Any, remarks: list[dict[str, Any]]) -> Iterator[Damage]:
    """Without classes from schemas, which may themselves be what is damaged."""
    import apsw

    from ontolake.history import Damage
    from ontolake.ontology.repository import open_repository
    from ontolake.ontology.verification import dangling
    from ontolake.ontology.verification import verify as verify_typed
    from ontolake.parallel import Here

    url = store.site.url
    repository = open_repository(url, config={"create": False, "readonly": True})
    whole = True
    try:
        jobs = repository.jobs
        for one in verify_typed(repository, advance) if jobs is None else jobs.verify(Here()).damage:
            whole = False
            yield one
        if whole:
            remarks += [one._asdict() for one in dangling(repository)]
    except apsw.Error as error:
        yield Damage("database", str(error))
    finally:
        repository.close()


def gc(
    url: AnyUrl = None, token: Token = None, db: Db = None, storage_uri: StorageUri = None, json: Json = False
) -> None:
    """Remove what nobody can reach any more, and what was staged beside a store and never published.

    Without a token this only says what would go; pages are compacted.
    """
    from ontolake.history import Garbage
    from ontolake.parallel import clean
    from ontolake.stores import find

    store, out = find(place(db, storage_uri, url)), Out(json)
    if store.model is None and store.site.on_pages:
        from ontolake.cli.storage import compact

        compact(store.url, None, token, json)
        return
    with store.opened() as maintained:
        garbage = maintained.gc(dry_run=True)
    staged = Garbage(0, 0) if store.is_remote else clean(store.url)
    expected = token_of("gc", *garbage, *staged)
    if token is not None:
        check_token(token, expected)
        if garbage.items:
            with store.opened(write=True) as maintained:
                garbage = maintained.gc(dry_run=False)
        staged = Garbage(0, 0) if store.is_remote else clean(store.url, dry_run=False)
    pages = _compacted(store) if store.site.on_pages and store.model is not None and store.model.name == "typed" else {}
    items, stored = garbage.items + staged.items, garbage.bytes + staged.bytes
    if json:
        done = "removed" if token is not None else "would_remove"
        out.document({"url": store.url, **pages, done: {"items": items, "bytes": stored, "staged": staged.items},
                      **({} if token else {"token": expected})})  # fmt: skip
        return
    if pages:
        from ontolake.cli.storage import show_compacted

        show_compacted(out, pages)
    told = f"{items} items, {stored} bytes" + (f"; {staged.items} were staged by jobs that are over"
                                               if staged.items else "")
    if token is not None:
        out.say(f"removed {told}")
    elif items:
        out.say(f"would remove {told}")
        out.preview(f"onto gc {quote(store.url)} --token {expected}")
    elif not pages:
        out.say("there is nothing to remove")


def _compacted(store: Store) -> dict[str, int]:
    from ontolake.cli.common.page_store import open_pages
    from ontolake.cli.storage import compacted

    with open_pages(store.site) as storage:
        return compacted(store.site, storage)
