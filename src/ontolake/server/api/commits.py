"""Commits: the log of a branch, one commit, and what it did."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from ontolake.history import Ref, UnknownCommitError
from ontolake.server import cursors
from ontolake.server.answers import FORMS, answer, branch_name
from ontolake.server.rights import TokenScope, Touch
from ontolake.server.routes import Call, route
from ontolake.server.words import ChangePage, CommitOut, CommitPage

Limit = Annotated[int, msgspec.Meta(ge=1, le=10_000)]


class LogQuery(msgspec.Struct):
    """The commits `(since, until]` of a branch."""

    branch: str | None = None
    since: str | None = None
    until: str | None = None
    limit: Limit = 100
    cursor: str | None = None


def reads_branch(call: Call) -> list[Touch]:
    """For routes that read a branch of the query, by default the first one, between commits that it names."""
    touches = [Touch(TokenScope.READ, branch_named(call))]
    ends = (call.query.since, getattr(call.query, "until", None), call.request.headers.get("last-event-id"))
    for end in ends:
        if isinstance(named_commit(call, end), str):  # which may be a name of something on another branch
            branch = call.store.branch_of(end, call.principal)
            if branch is not None or call.store.model.numbered:  # an id that is gone is a position that is not kept
                touches.append(Touch(TokenScope.READ, branch))
    return touches


def branch_named(call: Call) -> str:
    """The branch of the query, or the first one."""
    branch = call.query.branch
    return call.store.first_branch if branch is None else str(branch)


def named_commit(call: Call, text: str | None) -> int | str | None:
    """A commit of a query as stores take it: where commits are numbered, digits are a number of the branch."""
    if text is not None and call.store.model.numbered and text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    return text


@route("GET", "/stores/{store}/commits", touches=reads_branch, query=LogQuery, answers={200: CommitPage}, forms=FORMS,
       tag="history")
def list_commits(call: Call) -> Any:
    """The commits of a branch, newest first, a page at a time."""
    query, branch = call.query, branch_named(call)
    name = cursors.listing("commits", call.store.name, branch, query.since, query.until)
    with call.store.reading() as store:
        since, until, skip = named_commit(call, query.since), named_commit(call, query.until), 0
        if query.cursor is not None:
            last = cursors.read(query.cursor, name)
            until, skip = last, 1
        # Reading goes on from the last commit that was told, so that a page costs the same wherever it is.
        until = str(Ref(branch, str(until))) if skip else until
        commits = store.commits(since=since, until=until, branch=branch)
        limit = call.page_size(query.limit)
        found = list(itertools.islice(commits, skip, skip + limit + 1))
    page = found[:limit]
    more = len(found) > limit
    return answer(call, {"commits": page, "cursor": cursors.write(name, page[-1].id) if more else None})


def reads_commit(call: Call) -> list[Touch]:
    """For routes that read the commit in the path, whichever branch it is on."""
    return [Touch(TokenScope.READ, call.store.branch_of(call.path["commit"], call.principal))]


class ChangesQuery(msgspec.Struct):
    """A page of changes, of one table or all."""

    table: str | None = None
    limit: Limit = 1000
    cursor: str | None = None


@route("GET", "/stores/{store}/commits/{commit}", touches=reads_commit, answers={200: CommitOut}, forms=FORMS,
       tag="history")
def show_commit(call: Call) -> Any:
    """One commit, by any reference."""
    with call.store.reading() as store:
        return answer(call, _found(store, call.path["commit"]))


@route("GET", "/stores/{store}/commits/{commit}/changes", touches=reads_commit, query=ChangesQuery,
       answers={200: ChangePage}, forms=FORMS, tag="history")
def list_commit_changes(call: Call) -> Any:
    """What one commit did to rows, against its first parent."""
    with call.store.reading() as store:
        moment = store.at(call.path["commit"])
        commit = _commit(store, moment)
        name = cursors.listing("commit", call.store.name, str(commit.id), moment.branch, call.query.table)
        if commit.parents:
            changes = store.diff(store.at(f"{_ref(moment)}~1"), moment)
        else:  # the first commit of a graph only declares its tables
            changes = store.changes(0, commit.id, branch=moment.branch) if call.store.model.numbered else ()
        told = 0 if call.query.cursor is None else int(cursors.read(call.query.cursor, name))
        page, then = change_page(call, changes, told)
        return answer(call, {"changes": page, "cursor": None if then is None else cursors.write(name, then)})


def change_page(call: Call, changes: Iterable[Any], told: int) -> tuple[list[Any], int | None]:
    """A page of changes, those of the query's table, after so many that were told; and how many are told then, None if
    these are the last ones."""
    query, limit = call.query, call.page_size(call.query.limit)
    chosen = (one for one in changes if query.table is None or one.table == query.table)
    found = list(itertools.islice(chosen, told, told + limit + 1))
    return found[:limit], told + limit if len(found) > limit else None


def pinned(store: Any, ref: str | None, moment: Any) -> str:
    """A reference to the commit that another one names now. What is on no branch any more, such as the commit of a tag
    whose branch was deleted, goes by the name that it has."""
    names = {branch_name(one.name) for one in store.branches.list()} if hasattr(store, "branches") else {moment.branch}
    stays = ref is not None and (moment.commit == 0 or branch_name(moment.branch) not in names)
    return str(ref) if stays else _ref(moment)


def _ref(moment: Any) -> str:
    return str(Ref(branch_name(moment.branch), str(moment.commit)))


def _found(store: Any, ref: str) -> Any:
    return _commit(store, store.at(ref))


def _commit(store: Any, moment: Any) -> Any:
    """The commit of a snapshot. Raises `UnknownCommitError` for a state that no commit has made."""
    found = next(iter(store.commits(until=_ref(moment), branch=moment.branch)), None)
    if found is None or str(found.id) != str(moment.commit):
        raise UnknownCommitError(moment.commit, moment.branch)
    return found
