"""`onto blame` and `onto erase`: one row through all of history."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontolake.cli.commits import commit_facts
from ontolake.cli.common.output import Heading, Json, Out, Url, size
from ontolake.cli.common.safety import Token, check_token, token_of
from ontolake.cli.common.values import cell, parse_key, plain
from ontolake.cli.common.versions import Author, Controlled, Key, Table, controlled, moment, title

if TYPE_CHECKING:
    from ontolake.history import Commit

_BLAME = (Heading("field"), Heading("value"), Heading("commit", right=True), Heading("time", whole=True),
          Heading("author", most=16), Heading("message"))
_VERSIONS = (Heading("commit", 8, right=True), Heading("time", 19, whole=True),
             Heading("author", 16, most=16), Heading("message", 40), Heading("row"))


def blame(
    url: Url, table: Table, key: Key,
    at: Annotated[str | None, typer.Option("--at", metavar="REF", help="As it was there; the first branch.")] = None,
    history: Annotated[bool, typer.Option("--history", help="Show every state of the row, newest first.")] = False,
    json: Json = False,
) -> None:  # fmt: skip
    """Which commit wrote each field of a row, or with --history every state that it had."""
    out = Out(json)
    with controlled(url, "blame") as opened:
        store, ref = opened.store, None if at is None else opened.reference(at)
        name = _key(opened, table, key, ref)
        if history:
            versions = store.history(table, name, ref=ref)
            if json:
                out.records({"url": url, "table": table, "key": plain(name)}, "versions", (
                    {"commit": plain(commit_facts(one.commit)), "row": plain(one.row)} for one in versions))
            else:
                out.stream(_VERSIONS, ((one.commit.id, moment(one.commit), one.commit.author, title(one.commit),
                                        None if one.row is None else cell(one.row)) for one in versions))  # fmt: skip
            return
        fields = store.blame(table, name, ref=ref)
        if not json:
            # After a merge the newest commit that wrote the row need not have all values that it has now. An id alone
            # does not name a commit where branches number their own.
            states = {_identity(one.commit): one.row for one in store.history(table, name, ref=ref)}
    if json:
        out.document({"url": url, "table": table, "key": plain(name),
                      "fields": {field: plain(commit_facts(commit)) for field, commit in fields.items()}})
        return
    out.stream(_BLAME, [(field or "(all)", _value(states.get(_identity(commit)), field), commit.id, moment(commit),
                         commit.author, title(commit)) for field, commit in fields.items()])  # fmt: skip


def _identity(commit: Commit[Any]) -> tuple[Any, ...]:
    return commit.id, commit.time, commit.parents


def _key(opened: Controlled, table: str, text: str, ref: str | None = None) -> Any:
    from ontolake.history import Ref

    store = opened.store
    return parse_key(text, table, store.snapshot() if ref is None else store.at(Ref.parse(ref)))


def _value(row: Any, field: str) -> str | None:
    """The value of a field that is a column or, in a tree, a JSON pointer."""
    from ontolake.history.pointers import value_at

    if row is None or not field:
        return None if row is None else cell(row)
    if isinstance(row, Mapping) and field in row:
        return cell(row[field])
    try:
        return cell(value_at(row, field))
    except (LookupError, TypeError, ValueError):
        return None


def erase(
    url: Url, table: Table, key: Key,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is kept, the key is not.")],
    author: Author = None, token: Token = None, json: Json = False,
) -> None:  # fmt: skip
    """Remove a row for good: every version of it, from every commit and branch. This cannot be undone.

    Without a token this only shows what would go.
    """
    out = Out(json)
    with controlled(url, "erase", write=token is not None) as opened:
        store, name = opened.store, _key(opened, table, key)
        garbage = store.erase(table, name, reason=reason, dry_run=True, author=author)
        heads = [[branch.name, branch.head] for branch in store.branches.list()]
        expected = token_of("erase", url, table, plain(name), reason, *garbage, *heads)
        if token is not None:
            check_token(token, expected)
            garbage = store.erase(table, name, reason=reason, dry_run=False, author=author)
    facts = {"url": url, "table": table, "key": plain(name), "reason": reason}
    what = f"{garbage.items} stored version{'' if garbage.items == 1 else 's'} of {table} {key}"
    what += f", {size(garbage.bytes)}" if garbage.bytes else ""
    if token is not None:
        out.document({**facts, "erased": garbage._asdict()}) if json else out.say(f"erased {what}")
    elif json:
        out.document({**facts, "would_erase": garbage._asdict(), "token": expected})
    else:
        out.say(f"would erase {what}, from every commit and branch; this cannot be undone")
        by = f" --author {quote(author)}" if author else ""
        out.preview(f"onto erase {quote(url)} {quote(table)} {quote(key)} --reason {quote(reason)}{by} "
                    f"--token {expected}")
