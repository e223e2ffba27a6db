"""The verbs that mean the same on any store: `onto log|diff|export|verify|gc`. `onto info` and `onto branch` are apart.

They ask for nothing but what `ontolake.history` describes, except where a model has more to say.
"""

from __future__ import annotations

import json as jsons
from collections.abc import Iterator
from itertools import islice
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontolake.cli.commits import commit_facts
from ontolake.cli.common.options import Db, StorageUri, place
from ontolake.cli.common.output import Heading, Json, Out, progress
from ontolake.cli.common.safety import Token, check_token, token_of
from ontolake.cli.transfer import Form, export_typed
from ontolake.errors import ExitCode

if TYPE_CHECKING:
    from ontolake.history import Change, Damage
    from ontolake.stores import Store

AnyUrl = Annotated[str | None, typer.Argument(metavar="[URL]", help="Where it is; else --db, --storage-uri, onto.db.")]
Since = Annotated[str | None, typer.Option("--since", metavar="COMMIT", help="Only what came after it.")]
Until = Annotated[str | None, typer.Option("--until", metavar="COMMIT", help="Nothing newer.")]
OnBranch = Annotated[str | None, typer.Option("--branch", metavar="BRANCH", help="What this branch sees; the first.")]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=0, help="Stop after so many.")]

_CHANGES = (Heading("kind", 6), Heading("table", 20), Heading("key", 20), Heading("row"))


def plain(value: Any) -> Any:
    """Any value of a row or a key as JSON has it."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="constants")


def log(
    url: AnyUrl = None, since: Since = None, until: Until = None, branch: OnBranch = None, limit: Limit = None,
    db: Db = None, storage_uri: StorageUri = None, json: Json = False,
) -> None:  # fmt: skip
    """The commits of any store, newest first; of a page store its log."""
    from ontolake.stores import find

    store, out = find(place(db, storage_uri, url)), Out(json)
    if store.model is None and store.site.on_pages:
        from ontolake.cli.storage import wal

        wal(store.url, commit_in(store, since, "--since"), branch or "main", limit, json=json)
        return
    with store.opened(branch=branch) as versioned:
        span = {"since": commit_in(store, since), "until": commit_in(store, until)}
        commits = islice(versioned.commits(**span, **_branch(branch)), limit)
        if json:
            out.records({"url": store.url}, "commits", (plain(commit_facts(commit)) for commit in commits))
        else:
            columns = (Heading("commit", 8, right=True), Heading("time", 20), Heading("author", 16),
                       Heading("metadata"))
            out.stream(columns, ((
                commit.id, f"{commit.time:%Y-%m-%d %H:%M:%S}" if commit.time else None, commit.author,
                jsons.dumps(plain(dict(commit.metadata)), ensure_ascii=False) if commit.metadata else None)
                for commit in commits))  # fmt: skip


def commit_in(store: Store, text: str | None, option: str | None = None) -> Any:
    """A commit as somebody typed it, as the store has them.

    Raises `BadParameter` for an option that has to be a number; otherwise what is none is left for the store to tell.
    """
    if text is None or (store.model is not None and not store.model.numbered):
        return text
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    if option is not None:
        raise typer.BadParameter(f"{text!r} is not a number", param_hint=option)
    return text


def _branch(name: str | None) -> dict[str, str]:
    return {} if name is None else {"branch": name}


def diff(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where the store is.")],
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="COMMIT, BRANCH or BRANCH@COMMIT.")],
    after: Annotated[str | None, typer.Argument(metavar="[AFTER]", help="The same; now, if left out.")] = None,
    json: Json = False,
) -> None:
    """What turns one state of a store into another, row by row."""
    from ontolake.history import Ref
    from ontolake.stores import find

    store, out = find(url), Out(json)

    def ref(text: str) -> Ref:
        return Ref(None, text) if text.isascii() and text.isdigit() else Ref.parse(text)

    first, last = ref(before), Ref() if after is None else ref(after)
    with store.opened(branch=first.branch) as versioned, store.opened(branch=last.branch) as other:
        old = versioned.at(first)
        newer = versioned if first.branch == last.branch else other
        new = newer.snapshot() if last == Ref() else newer.at(last)
        changes = versioned.diff(old, new)
        if json:
            head = {"url": url, "before": old.commit, "after": new.commit}
            out.records(head, "changes", map(_change, changes))
        else:
            out.stream(_CHANGES, map(_change_row, changes))


def _change(change: Change[Any]) -> dict[str, Any]:
    return {"table": change.table, "key": plain(change.key), "kind": change.kind.value, "before": plain(change.before),
            "after": plain(change.after)}  # fmt: skip


def _change_row(change: Change[Any]) -> tuple[Any, ...]:
    key = plain(change.key)
    return (change.kind.value, change.table, " ".join(map(str, key)) if isinstance(key, list) else key,
            None if change.after is None else jsons.dumps(plain(change.after), ensure_ascii=False))


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
        if store.model.name == "typed":
            export_typed(versioned, out, types=type or [], as_of=commit_in(store, as_of, "--as-of"), form=format,
                         output=output)
            return
        if format is not Form.JSONL:
            raise typer.BadParameter(f"{store.model.described} has no {format.value} form", param_hint="--format")
        snapshot, rows = versioned.snapshot(commit_in(store, as_of, "--as-of"), **_branch(branch)), 0
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
        if store.model is not None and store.model.name == "typed":
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
    from ontolake.parallel import clean
    from ontolake.stores import find

    store, out = find(place(db, storage_uri, url)), Out(json)
    if store.model is None and store.site.on_pages:
        from ontolake.cli.storage import compact

        compact(store.url, None, token, json)
        return
    with store.opened() as maintained:
        garbage = maintained.gc(dry_run=True)
    staged = clean(store.url)
    expected = token_of("gc", *garbage, *staged)
    if token is not None:
        check_token(token, expected)
        if garbage.items:
            with store.opened(write=True) as maintained:
                garbage = maintained.gc(dry_run=False)
        staged = clean(store.url, dry_run=False)
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
