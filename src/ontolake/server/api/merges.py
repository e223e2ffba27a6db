"""Merge, revert, cherry-pick and restore, each with a dry run; differences between any two states."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from ontolake.history import Resolution
from ontolake.server import cursors
from ontolake.server.answers import FORMS, answer, sent_value
from ontolake.server.api.branches import reads
from ontolake.server.api.commits import Limit, change_page, pinned
from ontolake.server.rights import TokenScope, Touch
from ontolake.server.routes import Call, route
from ontolake.server.words import ChangePage, MergeOut

Side = Literal["ours", "theirs"]


class TakenValue(msgspec.Struct, forbid_unknown_fields=True):
    """A value of one's own, to settle a conflict by."""

    value: Any


class ResolutionIn(msgspec.Struct, forbid_unknown_fields=True):
    """Settles the conflict of a row, or with `field` of one field."""

    table: str
    key: Any
    take: Literal["ours", "theirs", "base"] | TakenValue
    field: str | None = None


class ChangeIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How conflicts are settled, and what is said about the commit."""

    strategy: Side | dict[str, Side] | None = None
    resolutions: list[ResolutionIn] = []
    dry_run: bool = False
    message: str | None = None


class MergeIn(ChangeIn, forbid_unknown_fields=True, kw_only=True):
    """A branch, tag or commit to merge into a branch."""

    source: str
    into: str | None = None


class PickIn(ChangeIn, forbid_unknown_fields=True, kw_only=True):
    """A commit to revert or to pick, on a branch."""

    commit: str | int
    branch: str | None = None


class RestoreIn(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A state to bring back, of all tables or some."""

    to: str | int
    tables: list[str] | None = None
    branch: str | None = None
    dry_run: bool = False
    message: str | None = None


def _settling(call: Call) -> dict[str, Any]:
    body = call.body
    found = []
    for one in body.resolutions:
        take = one.take if isinstance(one.take, str) else {"value": sent_value(call, one.take.value)}
        found.append(Resolution.parse({"table": one.table, "key": sent_value(call, one.key), "field": one.field,
                                       "take": take}))
    return {"strategy": body.strategy, "resolutions": found, "dry_run": body.dry_run, "message": body.message,
            "author": call.principal.name}


def _branch(call: Call, name: str | None) -> str:
    return call.store.first_branch if name is None else name


def _merging(call: Call) -> Iterable[Touch]:
    body: MergeIn = call.body
    scope = TokenScope.READ if body.dry_run else TokenScope.MERGE
    yield Touch(scope, _branch(call, body.into))
    yield reads(call, body.source)


def _writing(call: Call) -> Iterable[Touch]:
    body = call.body
    scope = TokenScope.READ if body.dry_run else TokenScope.WRITE
    yield Touch(scope, _branch(call, body.branch))
    yield reads(call, body.to if isinstance(body, RestoreIn) else body.commit)


@route("POST", "/stores/{store}/merge", touches=_merging, body=MergeIn, answers={200: MergeOut}, forms=FORMS,
       tag="history")
def merge(call: Call) -> Any:
    """Merge a branch, tag or commit into a branch."""
    into = _branch(call, call.body.into)
    with call.store.writing() as store:
        return answer(call, store.merge(call.body.source, into, **_settling(call)))


@route("POST", "/stores/{store}/revert", touches=_writing, body=PickIn, answers={200: MergeOut}, forms=FORMS,
       tag="history")
def revert(call: Call) -> Any:
    """Undo what one commit did, as a new commit."""
    with call.store.writing() as store:
        return answer(call, store.revert(call.body.commit, branch=_branch(call, call.body.branch), **_settling(call)))


@route("POST", "/stores/{store}/cherry-pick", touches=_writing, body=PickIn, answers={200: MergeOut}, forms=FORMS,
       tag="history")
def cherry_pick(call: Call) -> Any:
    """Do on a branch what one commit did elsewhere."""
    with call.store.writing() as store:
        return answer(call, store.cherry_pick(call.body.commit, branch=_branch(call, call.body.branch),
                                              **_settling(call)))


@route("POST", "/stores/{store}/restore", touches=_writing, body=RestoreIn, answers={200: MergeOut}, forms=FORMS,
       tag="history")
def restore(call: Call) -> Any:
    """Bring an earlier state back, as a new commit."""
    body: RestoreIn = call.body
    with call.store.writing() as store:
        return answer(call, store.restore(body.to, body.tables, branch=_branch(call, body.branch),
                                          dry_run=body.dry_run, message=body.message, author=call.principal.name))


class DiffQuery(msgspec.Struct):
    """Two references, and a page of what turns the first into the second."""

    before: str
    after: str
    table: str | None = None
    limit: Limit = 1000
    cursor: str | None = None


def _comparing(call: Call) -> Iterable[Touch]:
    return [reads(call, call.query.before), reads(call, call.query.after)]


@route("GET", "/stores/{store}/diff", touches=_comparing, query=DiffQuery, answers={200: ChangePage}, forms=FORMS,
       tag="history")
def diff(call: Call) -> Any:
    """What turns one state into another, by table and row, a page at a time."""
    query: DiffQuery = call.query
    name = cursors.listing("diff", call.store.name, query.before, query.after, query.table)
    with call.store.reading() as store:
        before, after, told = query.before, query.after, 0
        if query.cursor is not None:
            before, after, told = cursors.read(query.cursor, name)
        old, new = store.at(before), store.at(after)
        if query.cursor is None:
            before, after = pinned(store, before, old), pinned(store, after, new)
        page, then = change_page(call, store.diff(old, new), told)
        cursor = None if then is None else cursors.write(name, (before, after, then))
        return answer(call, {"changes": page, "cursor": cursor})
