"""`onto log`: the commits of any store, a line each, or as a drawing of all branches."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ontolake.cli.commits import commit_facts
from ontolake.cli.common.options import AnyUrl, Db, StorageUri, place
from ontolake.cli.common.output import Heading, Json, Out, cut
from ontolake.cli.common.stored_commits import Limit, OnBranch, Since, Until, branch_argument, commit_in
from ontolake.cli.common.values import cell, plain
from ontolake.cli.common.versions import counts_text, definition_word, moment, title

if TYPE_CHECKING:
    from ontolake.history import Commit, Counts
    from ontolake.stores import Store

COUNTED = 1000
"""Changes of one commit that are counted at most."""
BUDGET = 2.0
"""Seconds that counting may take in all: a store may have to read a whole commit before it tells its first change."""

_COLUMNS = (Heading("commit", 8, right=True), Heading("time", 19, whole=True),
            Heading("author", 16, most=16), Heading("message", 40), Heading("changes"))


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
                              _metadata(commit) if long else counting.text(commit, branch)) for commit in commits),
                   below=long)


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
        tables, defined, whole = changed_tables(self._versioned, commit, branch, self._most)
        self._left -= time.perf_counter() - started
        shown = counts_text(tables, defined)
        return shown if whole or shown is None else f"{shown}, …"


def _metadata(commit: Commit[Any]) -> str | None:
    return cell(dict(commit.metadata)) if commit.metadata else None


def changed_tables(
    versioned: Any, commit: Commit[Any], branch: str | None, most: int | None = COUNTED
) -> tuple[Mapping[str, Counts], Mapping[str, str], bool]:  # fmt: skip
    """How many rows of which tables a commit changed, counting `most` at most, which tables it created, altered or
    dropped, and whether these were all."""
    from ontolake.errors import NotFound
    from ontolake.history import ChangeKind, Counts

    if not commit.parents and not isinstance(commit.id, int):
        return {}, {}, True
    defined: dict[str, str] = {}
    tables: dict[str, list[int]] = {}
    places = {ChangeKind.INSERT: 0, ChangeKind.UPDATE: 1, ChangeKind.DELETE: 2}
    seen = 0
    try:
        for change in islice(versioned.changes(commit.parents[0] if commit.parents else 0, commit.id,
                                               **branch_argument(branch)), None if most is None else most + 1):
            seen += 1
            if change.kind is ChangeKind.SCHEMA:
                defined[change.table] = definition_word(change)
            elif most is None or seen <= most:
                tables.setdefault(change.table, [0, 0, 0])[places[change.kind]] += 1
    except NotFound:  # the state before it is no longer kept
        return {}, {}, True
    return {table: Counts(*counts) for table, counts in tables.items()}, defined, most is None or seen <= most


def _show_graph(store: Store, out: Out, limit: int | None, long: bool, counts: bool) -> None:
    """All branches as a drawing, or as JSON with the names that point to each commit."""
    from ontolake.cli.common.commit_lanes import draw, newest_first

    with store.opened() as versioned:
        nodes = _Nodes(store, versioned, limit)
        ranks = {node: (node.time.timestamp() if node.time else 0.0, -number)
                 for number, node in enumerate(nodes.commits)}
        parents = {node: nodes.parents(node) for node in nodes.commits}
        order = newest_first(parents, ranks)[:limit]
        if out.json:
            out.records({"url": store.url}, "commits", (
                plain({**commit_facts(nodes.commits[node][0]), "refs": nodes.names.get(node, [])}) for node in order))
            return
        counting = _Counting(versioned, counts)
        for drawing, node in draw(order, {one: parents[one] for one in order}):
            if node is None:
                out.say(drawing)
                continue
            commit, branch = nodes.commits[node]
            refs = f"({', '.join(nodes.names[node])})" if node in nodes.names else None
            author = cut(commit.author, _COLUMNS[2].most) if commit.author and out.terminal else commit.author
            out.line((drawing, str(commit.id), refs, moment(commit), author, title(commit),
                      _metadata(commit) if long else counting.text(commit, branch)), gives_way=5)


class _Node(NamedTuple):
    """A commit among those of all branches: where each branch numbers its own, an id alone does not name one."""

    id: Any
    time: datetime | None


class _Nodes:
    """The commits of every branch, each with a branch that has it, and the `names` of heads and tags."""

    def __init__(self, store: Store, versioned: Any, limit: int | None) -> None:
        self.commits: dict[_Node, tuple[Commit[Any], str | None]] = {}
        self.names: dict[_Node, list[str]] = {}
        self._lines: dict[str | None, dict[Any, _Node]] = {}
        for branch in versioned.branches.list() if store.offers("branch") else []:
            self._walk(branch.name, islice(versioned.commits(branch=branch.name), limit))
            self._name(branch.name, branch.head, branch.name or "main")
        if not self._lines:
            self._walk(None, islice(versioned.commits(), limit))
        for tag in versioned.tags.list() if store.offers("tag") else []:
            self._name(tag.branch, tag.commit, f"tag {tag.name}")

    def _walk(self, branch: str | None, commits: Iterable[Commit[Any]]) -> None:
        line = self._lines.setdefault(branch, {})
        for commit in commits:
            node = line[commit.id] = _Node(commit.id, commit.time)
            self.commits.setdefault(node, (commit, branch))

    def _name(self, branch: str, commit: Any, name: str) -> None:
        node = self._find(commit, branch)
        if node is not None:
            self.names.setdefault(node, []).append(name)

    def _find(self, commit: Any, branch: str | None, but: Sequence[_Node] = ()) -> _Node | None:
        """A commit on a branch, else on whichever one has it; None if it is not shown."""
        lines = [line for name, line in self._lines.items() if name == branch] or list(self._lines.values())
        return next((node for line in (*lines, *self._lines.values()) if (node := line.get(commit)) is not None
                     and node not in but), None)  # fmt: skip

    def parents(self, node: _Node) -> list[_Node]:
        """The parents of a commit that are shown: the first one on its own branch, others where they came from."""
        from ontolake.history.metadata import MERGED, MERGED_BRANCH

        commit, branch = self.commits[node]
        found: list[_Node] = []
        for number, parent in enumerate(commit.parents):
            source = branch if not number else commit.metadata.get(MERGED, commit.metadata.get(MERGED_BRANCH))
            other = self._find(parent, source, (node, *found))
            if other is not None:
                found.append(other)
        return found
