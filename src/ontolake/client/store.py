"""`ClientStore`: a store behind a server, as `ontolake.history` describes stores: a `VersionControlled` and
`Maintained`. Commits have the name of the token as their author, whatever is passed as `author`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from ontolake.client.branches import RemoteBranches, RemoteTags
from ontolake.client.connection import StoreConnection, StoreInfo, commit_value, ref_text
from ontolake.client.jobs import run_job
from ontolake.client.snapshots import RemoteSnapshot
from ontolake.client.transport import ConnectOptions
from ontolake.errors import Invalid
from ontolake.history import (
    Change,
    Commit,
    Damage,
    Garbage,
    MergeResult,
    Ref,
    Resolution,
    RowVersion,
    Snapshot,
    Strategy,
    UnrelatedError,
    Value,
    check_snapshots,
)
from ontolake.history.errors import UnknownBranchError, UnknownTableError
from ontolake.history.operations import MergeRequest, check_flag, check_texts
from ontolake.history.refs import on_branch, parsed


class ClientStore:
    """A store of any model behind a server. Threads may share it. Close it, or use it in a `with` block."""

    def __init__(
        self, url: str, *, write: bool = True, branch: str | None = None, options: ConnectOptions | None = None
    ) -> None:  # fmt: skip
        """Nothing is sent before the first use. Raises `Invalid` for a URL or a token that cannot be."""
        self._attach(StoreConnection(url, write=write, options=options or ConnectOptions()), branch)

    def _attach(self, connection: StoreConnection, branch: str | None) -> None:
        """Use a connection, and a branch where none is named."""
        self.connection = connection
        self.url = connection.url
        self._branch = branch
        self.branches = RemoteBranches(connection)
        self.tags = RemoteTags(connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    def close(self) -> None:
        """Close the connections. Closing twice does no harm."""
        self.connection.close()

    @property
    def info(self) -> StoreInfo:
        """What the server says of the store: its name, its model, what can be done with it."""
        return self.connection.info

    @property
    def branch(self) -> str:
        """The branch that is meant where none is named."""
        return self.info.first_branch if self._branch is None else self._branch

    # reading

    def commits(
        self, *, since: Any = None, until: Any = None, branch: str | None = None
    ) -> Iterator[Commit[Any]]:  # fmt: skip
        """The commits that a branch sees, newest first. See `history.contract`."""
        query = self._span(since, until, branch)
        return self.connection.pages("/commits", "commits", **query)

    def changes(self, since: Any, until: Any = None, *, branch: str | None = None) -> Iterator[Change[Any]]:
        """What each commit did, oldest first. See `history.contract`."""
        if since is None:
            raise Invalid("since is a commit or a reference", hint="0 is the beginning")
        return self.connection.lines("/span", **self._span(since, until, branch))

    def _span(self, since: Any, until: Any, branch: str | None) -> dict[str, Any]:
        name = self._named(branch)
        return {"since": None if since is None else self._moment(since, name),
                "until": None if until is None else self._moment(until, name), "branch": name}  # fmt: skip

    def _moment(self, ref: Any, branch: str) -> str:
        """A commit or reference in a query. A number stays one."""
        if isinstance(ref, int) and not isinstance(ref, bool):
            if ref < 0:
                raise Invalid(f"{ref} is not a commit", hint="commits are numbered from 1")
            return str(ref)
        return ref_text(ref)

    def snapshot(self, commit: Any = None, *, branch: str | None = None) -> RemoteSnapshot:
        """The store as it was at a commit, or at the head of a branch. See `history.contract`."""
        if isinstance(commit, str | Ref):
            return self.at(on_branch(commit, branch))
        if branch is None and commit is None:
            branch = self.branch
        return self._snapshot(commit=commit_value(commit), branch=None if branch is None else self._named(branch))

    def at(self, ref: Ref | str) -> RemoteSnapshot:
        """`snapshot` for what a user wrote. See `history.contract`."""
        return self._snapshot(ref=str(parsed(ref)))

    def _snapshot(self, **query: Any) -> RemoteSnapshot:
        found = self.connection.get("/snapshot", **query)
        return RemoteSnapshot(self.connection, found["ref"], found["branch"], found["commit"])

    def diff(
        self, before: Snapshot[Any] | int | str | Ref, after: Snapshot[Any] | int | str | Ref
    ) -> Iterator[Change[Any]]:  # fmt: skip
        """What turns one state into another. Raises `UnrelatedError` for a snapshot of another store."""
        refs = {"before": self._state(before), "after": self._state(after)}
        return self.connection.pages("/diff", "changes", **refs)

    def _state(self, state: Any) -> str:
        if isinstance(state, str | Ref) or (isinstance(state, int) and not isinstance(state, bool)):
            return ref_text(state)
        check_snapshots(state, state)
        if not isinstance(state, RemoteSnapshot) or state.address != self.connection.address:
            raise UnrelatedError(str(state), self.url)
        return state.ref

    def history(self, table: str, key: Any, *, ref: str | None = None) -> Iterator[RowVersion[Any]]:
        """All states of a row that a reference has in its history, newest first. See `history.contract`."""
        found: list[RowVersion[Any]] = self._row("/history", table, key, ref)["versions"]
        yield from found

    def blame(self, table: str, key: Any, *, ref: str | None = None) -> dict[str, Commit[Any]]:
        """For each field of a row the commit that wrote its value. See `history.contract`."""
        found: dict[str, Commit[Any]] = self._row("/blame", table, key, ref)["fields"]
        return found

    def _row(self, path: str, table: Any, key: Any, ref: Any) -> Any:
        from ontolake.history import wire

        if not isinstance(table, str):
            raise UnknownTableError(table)
        at = ref_text(self.branch if ref is None else ref)
        return self.connection.get(path, table=table, key=wire.dump(key).decode(), ref=at)

    # changing

    def merge(
        self, source: str, into: str | None = None, *, strategy: Strategy = None,
        resolutions: Iterable[Resolution] = (), dry_run: bool = False, message: str | None = None,
        author: str | None = None,
    ) -> MergeResult[Any]:  # fmt: skip
        """Bring the changes of a branch, tag or commit into a branch. See `history.contract`."""
        target = {"source": ref_text(source), "into": self._named(into)}
        return self._settled("/merge", target, MergeRequest.of(strategy, resolutions, dry_run, message, author))

    def revert(
        self, commit: Any, *, branch: str | None = None, strategy: Strategy = None,
        resolutions: Iterable[Resolution] = (), dry_run: bool = False, message: str | None = None,
        author: str | None = None,
    ) -> MergeResult[Any]:  # fmt: skip
        """Undo what one commit did, as a new commit. See `history.contract`."""
        target = {"commit": self._commit(commit), "branch": self._named(branch)}
        return self._settled("/revert", target, MergeRequest.of(strategy, resolutions, dry_run, message, author))

    def cherry_pick(
        self, commit: Any, *, branch: str | None = None, strategy: Strategy = None,
        resolutions: Iterable[Resolution] = (), dry_run: bool = False, message: str | None = None,
        author: str | None = None,
    ) -> MergeResult[Any]:  # fmt: skip
        """Do on a branch what one commit did elsewhere, as a new commit. See `history.contract`."""
        target = {"commit": self._commit(commit), "branch": self._named(branch)}
        return self._settled("/cherry-pick", target, MergeRequest.of(strategy, resolutions, dry_run, message, author))

    def restore(
        self, to: Any, tables: Iterable[str] | None = None, *, branch: str | None = None, dry_run: bool = False,
        message: str | None = None, author: str | None = None,
    ) -> MergeResult[Any]:  # fmt: skip
        """Bring an earlier state back, of all tables or some, as a new commit. See `history.contract`."""
        check_texts(message=message, author=author)
        check_flag("dry_run", dry_run)
        if tables is not None and (isinstance(tables, str) or not isinstance(tables, Iterable)):
            raise Invalid(f"tables must be several names, not {tables!r}", hint="write [name]")
        some = None if tables is None else list(tables)
        for table in some or ():
            if not isinstance(table, str):
                raise UnknownTableError(table)
        body = {"to": self._commit(to), "tables": some, "branch": self._named(branch), "dry_run": dry_run,
                "message": message}  # fmt: skip
        return self._merged("/restore", body, dry_run)

    def _commit(self, commit: Any) -> Any:
        found = commit_value(commit)
        if found is None:
            raise Invalid("a commit or a reference is needed", hint="write 12, main~1, or a tag")
        return found

    def _settled(self, path: str, target: Mapping[str, Any], request: MergeRequest) -> MergeResult[Any]:
        """Run an operation. A strategy that is a function decides here, conflict by conflict."""
        resolutions, strategy = list(request.resolutions), request.strategy
        if callable(strategy):
            plan = self._merged(path, {**target, "resolutions": [_sent(one) for one in resolutions], "dry_run": True},
                                True)
            resolutions += _decided(strategy, plan)
            strategy = None
        body = {**target, "strategy": strategy, "resolutions": [_sent(one) for one in resolutions],
                "dry_run": request.dry_run, "message": request.message}  # fmt: skip
        return self._merged(path, body, request.dry_run)

    def _merged(self, path: str, body: Any, dry_run: bool) -> MergeResult[Any]:
        found: MergeResult[Any] = self.connection.ask(path, body) if dry_run else \
            self.connection.send("POST", path, body)
        return found

    def erase(
        self, table: str, key: Any, reason: str, *, dry_run: bool = True, author: str | None = None
    ) -> Garbage:  # fmt: skip
        """Remove every stored version of a row. See `history.contract`."""
        check_texts(author=author)
        check_flag("dry_run", dry_run)
        if not isinstance(table, str):
            raise UnknownTableError(table)
        if not isinstance(reason, str):
            raise Invalid(f"a reason is text, not {reason!r}", hint="say why")
        body = {"table": table, "key": key, "reason": reason, "dry_run": dry_run}
        found: Garbage = self.connection.ask("/erase", body) if dry_run else \
            self.connection.send("POST", "/erase", body)
        return found

    # upkeep

    def verify(self) -> Iterator[Damage]:
        """Let the server read everything that can be read, and yield all damage that it finds."""
        yield from run_job(self.connection, "/verify", {})["damage"]

    def gc(self, *, dry_run: bool = True) -> Garbage:
        """Find, and unless it is a dry run remove, what no commit that is kept needs."""
        check_flag("dry_run", dry_run)
        if not dry_run:
            self.connection.check_writable()
        found: Garbage = run_job(self.connection, "/gc", {"dry_run": dry_run})["garbage"]
        return found

    def _named(self, branch: str | None) -> str:
        """A branch, or the one that is meant without one. Raises `UnknownBranchError` if it is not text."""
        if branch is None:
            return self.branch
        if not isinstance(branch, str):
            raise UnknownBranchError(branch)
        return branch


def _sent(resolution: Resolution) -> dict[str, Any]:
    take = resolution.take
    return {"table": resolution.table, "key": resolution.key, "field": resolution.field,
            "take": {"value": take.value} if isinstance(take, Value) else take}  # fmt: skip


def _decided(strategy: Callable[..., Any], plan: MergeResult[Any]) -> Iterator[Resolution]:
    """What a function decides of the conflicts of a dry run."""
    for conflict in plan.conflicts:
        take = strategy(conflict)
        if take is not None:
            yield Resolution(conflict.table, conflict.key, conflict.field, take)
