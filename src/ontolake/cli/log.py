"""`onto log`: the commits of any store, a line each, or as a drawing of all branches."""

from __future__ import annotations

import math
import time
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
BUDGET = 2.0
"""Seconds that counting may take in all: a store may have to read a whole commit before it tells its first change."""

_COLUMNS = (Heading("commit", 8, right=True), Heading("time", 19), Heading("author", 16), Heading("message", 40),
            Heading("changes"))


def log(
    url: AnyUrl = None, since: Since = None, until: Until = None, branch: OnBranch = None, limit: Limit = None,
    long: Annotated[bool, typer.Option("--long", help="Show the metadata of commits instead of counts.")] = False,
    graph: Annotated[bool, typer.Option("--graph", help="Draw all branches, with where they part and meet.")] = False,
    counts: Annotated[bool, typer.Option("--counts", help="Count the rows of all commits, however long it takes.")]
    = False, db: Db = None, storage_uri: StorageUri = None, json: Json = False,
) -> None:  # fmt: skip
    """The commits of any store, newest first, with how many rows each changed; of a page store its log.

    Dots stand for rows that were not counted: beyond the first 1000 of a commit, and after two seconds of counting.
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
        _show_graph(store, out, limit, long, counts)
        return
    with store.opened(branch=branch) as versioned:
        span = {"since": commit_in(store, since), "until": commit_in(store, until)}
        commits = islice(versioned.commits(**span, **branch_argument(branch)), limit)
        if json:
            out.records({"url": store.url}, "commits", (plain(commit_facts(commit)) for commit in commits))
            return
        columns = (*_COLUMNS[:4], Heading("metadata")) if long else _COLUMNS
        counting = _Counting(versioned, counts)
        out.stream(columns, ((commit.id, moment(commit), commit.author, title(commit),
                              _metadata(commit) if long else counting.text(commit, branch)) for commit in commits))


class _Counting:
    """Counts the rows that commits changed, as long as that does not take too long."""

    def __init__(self, versioned: Any, everything: bool) -> None:
        self._versioned = versioned
        self._left = math.inf if everything else BUDGET
        self._most = None if everything else COUNTED

    def text(self, commit: Commit[Any], branch: str | None) -> str | None:
        """The counts of a commit for people; dots where they are not whole."""
        if self._left <= 0:
            return "…"
        started = time.perf_counter()
        tables, whole = changed_rows(self._versioned, commit, branch, self._most)
        self._left -= time.perf_counter() - started
        shown = counts_text(tables)
        return shown if whole or shown is None else f"{shown}, …"


def _metadata(commit: Commit[Any]) -> str | None:
    return cell(dict(commit.metadata)) if commit.metadata else None


def changed_rows(
    versioned: Any, commit: Commit[Any], branch: str | None, most: int | None = COUNTED
) -> tuple[Mapping[str, Counts], bool]:  # fmt: skip
    """How many rows of which tables a commit changed, counting `most` at most, and whether these were all."""
    from ontolake.errors import NotFound
    from ontolake.history import ChangeKind, Counts

    if not commit.parents and not isinstance(commit.id, int):
        return {}, True
    tables: dict[str, list[int]] = {}
    places = {ChangeKind.INSERT: 0, ChangeKind.UPDATE: 1, ChangeKind.DELETE: 2}
    seen = 0
    try:
        for change in islice(versioned.changes(commit.parents[0] if commit.parents else 0, commit.id,
                                               **branch_argument(branch)), None if most is None else most + 1):
            seen += 1
            if most is None or seen <= most:
                tables.setdefault(change.table, [0, 0, 0])[places[change.kind]] += 1
    except NotFound:  # the state before it is no longer kept
        return {}, True
    return {table: Counts(*counts) for table, counts in tables.items()}, most is None or seen <= most


def _show_graph(store: Store, out: Out, limit: int | None, long: bool, counts: bool) -> None:
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
        counting = _Counting(versioned, counts)
        for drawing, id in draw(order, {one: parents[one] for one in order}):
            if id is None:
                out.say(drawing)
                continue
            commit, branch = commits[id]
            refs = f"({', '.join(names[id])})" if id in names else None
            facts = (str(commit.id), refs, moment(commit), commit.author, title(commit),
                     _metadata(commit) if long else counting.text(commit, branch))
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
