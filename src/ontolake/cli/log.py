"""`onto log`: the commits of any store, a line each, or as a drawing of all branches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontolake.cli.commits import commit_facts
from ontolake.cli.common.options import AnyUrl, Db, StorageUri, place
from ontolake.cli.common.output import Heading, Json, Out
from ontolake.cli.common.stored_commits import Limit, OnBranch, Since, Until, branch_argument, commit_in
from ontolake.cli.common.values import cell, plain
from ontolake.cli.common.versions import counts_text, moment, title

if TYPE_CHECKING:
    from ontolake.history import Commit, Counts
    from ontolake.stores import Store

COUNTED = 1000
"""Changes of one commit that are counted at most."""

_COLUMNS = (Heading("commit", 8, right=True), Heading("time", 19), Heading("author", 16), Heading("message", 40),
            Heading("changes"))


def log(
    url: AnyUrl = None, since: Since = None, until: Until = None, branch: OnBranch = None, limit: Limit = None,
    long: Annotated[bool, typer.Option("--long", help="Show the metadata of commits instead of counts.")] = False,
    graph: Annotated[bool, typer.Option("--graph", help="Draw all branches, with where they part and meet.")] = False,
    db: Db = None, storage_uri: StorageUri = None, json: Json = False,
) -> None:  # fmt: skip
    """The commits of any store, newest first, with how many rows each changed; of a page store its log.

    Of a commit that changed more than 1000 rows the first 1000 are counted.
    """
    from ontolake.stores import find

    store, out = find(place(db, storage_uri, url)), Out(json)
    if store.model is None and store.site.on_pages:
        from ontolake.cli.storage import wal

        wal(store.url, commit_in(store, since, "--since"), branch or "main", limit, json=json)
        return
    if graph:
        if since is not None or until is not None or branch is not None:
            raise typer.BadParameter("it shows all branches from their heads on; --limit shortens it",
                                     param_hint="--graph")
        _show_graph(store, out, limit, long)
        return
    with store.opened(branch=branch) as versioned:
        span = {"since": commit_in(store, since), "until": commit_in(store, until)}
        commits = islice(versioned.commits(**span, **branch_argument(branch)), limit)
        if json:
            out.records({"url": store.url}, "commits", (plain(commit_facts(commit)) for commit in commits))
            return
        columns = (*_COLUMNS[:4], Heading("metadata")) if long else _COLUMNS
        out.stream(columns, ((commit.id, moment(commit), commit.author, title(commit),
                              _more(versioned, commit, branch, long)) for commit in commits))  # fmt: skip


def _more(versioned: Any, commit: Commit[Any], branch: str | None, long: bool) -> str | None:
    if long:
        return cell(dict(commit.metadata)) if commit.metadata else None
    tables, whole = changed_rows(versioned, commit, branch)
    shown = counts_text(tables)
    return shown if whole or shown is None else f"{shown}, …"


def changed_rows(versioned: Any, commit: Commit[Any], branch: str | None) -> tuple[Mapping[str, Counts], bool]:
    """How many rows of which tables a commit changed, and whether all of them were counted."""
    from ontolake.errors import NotFound
    from ontolake.history import ChangeKind, Counts

    if not commit.parents and not isinstance(commit.id, int):
        return {}, True
    tables: dict[str, list[int]] = {}
    places = {ChangeKind.INSERT: 0, ChangeKind.UPDATE: 1, ChangeKind.DELETE: 2}
    seen = 0
    try:
        for change in islice(versioned.changes(commit.parents[0] if commit.parents else 0, commit.id,
                                               **branch_argument(branch)), COUNTED + 1):  # fmt: skip
            seen += 1
            if seen <= COUNTED:
                tables.setdefault(change.table, [0, 0, 0])[places[change.kind]] += 1
    except NotFound:  # the state before it is no longer kept
        return {}, True
    return {table: Counts(*counts) for table, counts in tables.items()}, seen <= COUNTED


def _show_graph(store: Store, out: Out, limit: int | None, long: bool) -> None:
    """All branches as a drawing, or as JSON with the names that point to each commit."""
    from ontolake.cli.common.commit_lanes import draw, newest_first

    with store.opened() as versioned:
        commits, names = _of_all_branches(store, versioned, limit)
        parents = {id: commit.parents for id, (commit, _) in commits.items()}
        ranks = {id: (commit.time.timestamp() if commit.time else 0.0, -place)
                 for place, (id, (commit, _)) in enumerate(commits.items())}  # fmt: skip
        order = newest_first(parents, ranks)[:limit]
        if out.json:
            out.records({"url": store.url}, "commits",
                        (plain({**commit_facts(commits[id][0]), "refs": names.get(id, [])}) for id in order))
            return
        shown = set(order)
        for drawing, id in draw(order, {one: parents[one] for one in order if one in shown}):
            if id is None:
                out.say(drawing)
                continue
            commit, branch = commits[id]
            more = cell(dict(commit.metadata)) if long and commit.metadata else None
            refs = f"({', '.join(names[id])})" if id in names else None
            facts = (str(commit.id), refs, moment(commit), commit.author, title(commit),
                     more if long else _more(versioned, commit, branch, False))
            out.say(f"{drawing}  {'  '.join(fact for fact in facts if fact)}")


def _of_all_branches(
    store: Store, versioned: Any, limit: int | None
) -> tuple[dict[Any, tuple[Commit[Any], str | None]], dict[Any, list[str]]]:  # fmt: skip
    """The commits of every branch by id, each with a branch that has it, and the names of heads and tags by commit."""
    commits: dict[Any, tuple[Commit[Any], str | None]] = {}
    names: dict[Any, list[str]] = {}
    branches: Iterator[Any] = iter(versioned.branches.list() if store.offers("branch") else [])
    for branch in branches:
        names.setdefault(branch.head, []).append(branch.name or "main")
        for commit in islice(versioned.commits(branch=branch.name), limit):
            commits.setdefault(commit.id, (commit, branch.name))
    if not commits:
        commits = {commit.id: (commit, None) for commit in islice(versioned.commits(), limit)}
    for tag in versioned.tags.list() if store.offers("tag") else []:
        names.setdefault(tag.commit, []).append(f"tag {tag.name}")
    return commits, names
