"""`onto diff URL BEFORE [AFTER]`: what turns one state of a store into another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontolake.cli.common.output import Heading, Json, Out
from ontolake.cli.common.values import cell, changed_fields, field_text, key_cell, plain
from ontolake.cli.common.versions import bare

if TYPE_CHECKING:
    from ontolake.history import Change, Snapshot
    from ontolake.stores import Store

_FIELDS = (Heading("kind", 6, whole=True), Heading("table", 20), Heading("key", 20), Heading("changes"))
_ROWS = (Heading("kind", 6, whole=True), Heading("table", 20), Heading("key", 20), Heading("before"), Heading("after"))
_STAT = (Heading("table"), Heading("inserted", right=True), Heading("updated", right=True),
         Heading("deleted", right=True))


def diff(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where the store is.")],
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="A commit, a branch, a tag, BRANCH@COMMIT, …")],
    after: Annotated[str | None, typer.Argument(metavar="[AFTER]", help="The same; now, if left out.")] = None,
    table: Annotated[list[str] | None, typer.Option("--table", metavar="TABLE", help="Only this table.")] = None,
    stat: Annotated[bool, typer.Option("--stat", help="Count rows by table.")] = False,
    rows: Annotated[bool, typer.Option("--rows", help="Show rows as a whole, before and after.")] = False,
    json: Json = False,
) -> None:
    """What turns one state of a store into another, row by row, with the fields that changed.

    A state is written BRANCH, TAG, COMMIT, BRANCH@COMMIT, @TIME, each with ~N for N commits before.
    """
    from ontolake.stores import find

    if stat and rows:
        raise typer.BadParameter("choose one of --stat and --rows", param_hint="--stat")
    store, out = find(url), Out(json)
    with _states(store, before, after) as (versioned, old, new):
        tables = {"added": sorted({*new.tables()} - {*old.tables()}),
                  "removed": sorted({*old.tables()} - {*new.tables()})}  # fmt: skip
        _check(table, old, new)
        changes = (one for one in versioned.diff(old, new) if not table or one.table in table)
        pointers = store.model is not None and store.model.trees
        head = {"url": url, "before": old.commit, "after": new.commit, "tables": tables}
        if stat:
            _show_stat(out, head, changes)
        elif json:
            out.records(head, "changes", (_facts(change, pointers) for change in changes))
        else:
            whole = [(kind, name, None, None, *([None] if rows else []))
                     for kind, names in (("create", tables["added"]), ("drop", tables["removed"]))
                     for name in names if not table or name in table]  # fmt: skip
            lines = (_line(change, rows, pointers) for change in changes
                     if not _is_schema(change) or (change.before is not None and change.after is not None))
            out.stream(_ROWS if rows else _FIELDS, chain(whole, lines))


@contextmanager
def _states(
    store: Store, before: str, after: str | None
) -> Iterator[tuple[Any, Snapshot[Any], Snapshot[Any]]]:  # fmt: skip
    """The store and two states of it. Where branches are of the pages below, each is opened at its own."""
    from ontolake.history import Ref

    if store.offers("tag"):
        with store.opened() as versioned:
            old = versioned.at(Ref.parse(bare(store, versioned, before)))
            new = versioned.snapshot() if after is None else versioned.at(Ref.parse(bare(store, versioned, after)))
            yield versioned, old, new
        return

    def ref(text: str) -> Ref:
        return Ref(None, text) if text.isascii() and text.isdigit() else Ref.parse(text)

    first, last = ref(before), Ref() if after is None else ref(after)
    with store.opened(branch=first.branch) as versioned, store.opened(branch=last.branch) as other:
        newer = versioned if first.branch == last.branch else other
        yield versioned, versioned.at(first), newer.snapshot() if last == Ref() else newer.at(last)


def _check(tables: Sequence[str] | None, old: Snapshot[Any], new: Snapshot[Any]) -> None:
    from ontolake.errors import Invalid

    known = {*old.tables(), *new.tables()}
    for name in tables or ():
        if name not in known:
            raise Invalid(f"there is no table {name!r} in either state",
                          hint=f"there are {', '.join(sorted(known)) or 'none'}")


def _facts(change: Change[Any], pointers: bool) -> dict[str, Any]:
    before, after = (_definition(row) for row in (change.before, change.after)) if _is_schema(change) \
        else (change.before, change.after)
    fields = [] if before is None or after is None else \
        [one.field for one in changed_fields(before, after, pointers=pointers)]
    return {"table": change.table, "key": plain(change.key), "kind": change.kind.value, "before": plain(change.before),
            "after": plain(change.after), "fields": fields}  # fmt: skip


def _line(change: Change[Any], rows: bool, pointers: bool) -> tuple[Any, ...]:
    where: tuple[str, str, str | None] = (change.kind.value, change.table, key_cell(change.key))
    old, new = change.before, change.after
    if _is_schema(change):
        where, old, new = ("alter", change.table, None), _definition(old), _definition(new)
    before, after = (None if row is None else cell(row) for row in (old, new))
    if rows:
        return *where, before, after
    if before is None or after is None:
        return *where, before or after
    return *where, "; ".join(map(field_text, changed_fields(old, new, pointers=pointers)))


def _is_schema(change: Change[Any]) -> bool:
    """Whether it is the table that changed, rather than a row of it."""
    from ontolake.history import ChangeKind

    return change.kind is ChangeKind.SCHEMA


def _definition(table: Any) -> dict[str, Any] | None:
    """The definition of a table with a field for each column, so that only the columns that differ are shown."""
    if table is None:
        return None
    columns = {f"column {one['name']}": {name: value for name, value in one.items() if name != "name"}
               for one in table.get("columns", ())}  # fmt: skip
    named = {f"{word} {name}": value for word, part in (("check", "checks"), ("index", "indexes"))
             for name, value in table.get(part, {}).items()}  # fmt: skip
    rest = {name: value for name, value in table.items() if name not in ("columns", "checks", "indexes")}
    return {**rest, **columns, **named}


def _show_stat(out: Out, head: dict[str, Any], changes: Iterator[Change[Any]]) -> None:
    counts: dict[str, dict[str, int]] = {}
    for change in changes:
        if not _is_schema(change):
            table = counts.setdefault(change.table, {"insert": 0, "update": 0, "delete": 0})
            table[change.kind.value] += 1
    found = [(table, some["insert"], some["update"], some["delete"]) for table, some in sorted(counts.items())]
    if out.json:
        names = ("table", "inserted", "updated", "deleted")
        out.document({**head, "counts": [dict(zip(names, one, strict=True)) for one in found]})
    else:
        out.table(_STAT, found)
