"""The life of branches: they are created, listed and deleted, and nothing of the data is copied or lost thereby.

Creating and deleting are commits and take a seq. Deleting is soft: what was on the branch can still be read, its
children live on and it can be merged from; only writing to it ends. Its name may be used again: the new branch is
another line of history, which the name means from then on.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, NamedTuple

import apsw

from ontolake.documents import commits
from ontolake.documents.database import SpaceDatabase, row, rows
from ontolake.documents.errors import BranchExistsError, BranchNameError, BranchPointError, UnknownBranchError
from ontolake.documents.history.differences import Diff, compare
from ontolake.documents.history.merges import MergeDoor, Merger
from ontolake.documents.history.references import FIRST, SpaceRefs
from ontolake.documents.history.resolutions import Resolve
from ontolake.documents.history.tags import has_tag
from ontolake.documents.names import check_branch_text, check_session, is_seq, line_again, name_of
from ontolake.documents.schema import BRANCH_NAME, VERSION_WITH_NAMES
from ontolake.documents.values import codec
from ontolake.documents.values.codec import Document
from ontolake.documents.write.transactions import ACTIVE, DELETED, PROTECTED, check_active, check_repeated
from ontolake.faults import reach
from ontolake.history import Branch, MergeResult, ProtectedBranchError, Ref
from ontolake.history.errors import BranchError as HistoryBranchError
from ontolake.history.names import MAIN, check_branch_name
from ontolake.history.operations import MergeRequest, check_flag
from ontolake.history.refs import on_branch

_COLUMNS = "name, head_seq, fork_seq, parent_branch, status"
_ONE = f"SELECT {_COLUMNS} FROM branch WHERE name = ?"  # a line
_ALL = f"SELECT {_COLUMNS} FROM branch ORDER BY created_seq"
_REPEATED = 'SELECT seq FROM "commit" WHERE session_id = ? AND local_seq = ?'
_INSERT = """\
INSERT INTO branch (name, parent_branch, fork_seq, created_seq, head_seq)
VALUES (?1, ?2, ?3, ?4, ?4)"""
_SET_STATUS = "UPDATE branch SET status = ? WHERE name = ?"
_RENAME = "INSERT INTO branch_name (line, name) VALUES (?1, ?2) ON CONFLICT (line) DO UPDATE SET name = ?2"


class SpaceBranches:
    """The branches of a space, as `space.branches`."""

    def __init__(self, database: SpaceDatabase, merger: Merger, next_request: Callable[[], tuple[str, int]]) -> None:
        self._database = database
        self._merger = merger
        self._next_request = next_request

    def list(self, *, deleted: bool = False) -> builtins.list[Branch[int]]:
        """The branches that live, in the order in which they were made; with `deleted`, those that do not as well."""
        with self._database.read as connection:
            found = rows(connection, _ALL)
            return [self._branch(each) for each in found if deleted or each[4] != DELETED]

    def get(self, name: str) -> Branch[int]:
        """The branch of this name, deleted or not. Raises `UnknownBranchError`."""
        check_branch_text(name)
        with self._database.read as connection:
            return self._branch(_row(connection, self._database.line(name)))

    def create(
        self, name: str, *, at: int | str | Ref | None = None, parent: str | None = None,
        session_id: str | None = None, local_seq: int | None = None, author: str | None = None,
    ) -> Branch[int]:  # fmt: skip
        """Start a branch from `parent`, by default the first one, as it was `at` a seq, its head unless given; or at
        a reference, from the branch that it names. Copies nothing.

        `session_id` and `local_seq` make a retry safe, as with `transact`; without an `author` the session is that of
        the commit. Raises `BranchExistsError` if a branch of
        this name lives, `BranchNameError` if none can be called so, `UnknownBranchError` if there is no such
        parent, `BranchPointError` if the parent never was at `at`.
        """
        _check_name(name)
        if parent is not None:
            check_branch_text(parent)
        if isinstance(at, str | Ref):
            with self._database.read:
                parent, at = SpaceRefs(self._database).resolve(on_branch(at, parent))
        parent = FIRST if parent is None else parent
        if at is not None and not is_seq(at):
            raise BranchPointError(parent, f"cannot be left at {at!r}, which is not a seq")

        def find(connection: apsw.Connection, seq: int) -> str:
            self._check_free(connection, name)
            # A line keeps the name that its branch was made with, so a branch that was renamed may have this one.
            return name if row(connection, _ONE, (name,)) is None else line_again(name, seq)

        def change(connection: apsw.Connection, seq: int, line: str) -> None:
            origin = self._database.line(parent)
            head = _row(connection, origin)[1]
            if at is not None and at > head:
                raise BranchPointError(parent, f"never was at seq {at}: its newest commit is {head}")
            connection.execute(_INSERT, (line, origin, head if at is None else at, seq))
            reach("documents: branch created")

        self._commit(_Command("branch/create", name, {"parent": parent, "atSeq": at}, author), find, change,
                     session_id, local_seq)  # fmt: skip
        return self.get(name)

    def delete(
        self, name: str, *, session_id: str | None = None, local_seq: int | None = None, author: str | None = None
    ) -> None:  # fmt: skip
        """Give a branch up, softly.

        Raises `BranchNameError` for the first one, `UnknownBranchError`, `ProtectedBranchError`.
        """

        def find(connection: apsw.Connection, seq: int) -> str:
            return self._own(connection, name, "deleted")

        def change(connection: apsw.Connection, seq: int, line: str) -> None:
            connection.execute(_SET_STATUS, (DELETED, line))
            reach("documents: branch deleted")

        check_branch_text(name)
        self._commit(_Command("branch/delete", name, {}, author), find, change, session_id, local_seq)

    def plan_delete(self, name: str) -> Branch[int]:
        """The branch that `delete` would give up. Writes nothing, and raises what `delete` would."""
        check_branch_text(name)
        with self._database.read as connection:
            return self._branch(_row(connection, self._own(connection, name, "deleted")))

    def rename(self, name: str, new: str) -> Branch[int]:
        """Give a branch another name; its history stays. Takes no seq. Raises what `create` and `delete` raise."""
        check_branch_text(name)
        _check_name(new)
        with self._database.write as connection:
            line = self._own(connection, name, "renamed")
            self._check_free(connection, new)
            if not self._database.has_table("branch_name"):
                connection.execute(BRANCH_NAME)
                connection.pragma("user_version", VERSION_WITH_NAMES)
            connection.execute(_RENAME, (line, new))
            reach("documents: branch renamed")
            renamed = self._branch(_row(connection, line))
        reach("documents: branch rename committed")
        return renamed

    def protect(self, name: str, protected: bool = True) -> Branch[int]:
        """Let a branch change by merges alone, or end that. Takes no seq. Raises `UnknownBranchError`."""
        check_branch_text(name)
        check_flag("protected", protected)
        with self._database.write as connection:
            line = self._database.line(name)
            check_active(line, _row(connection, line)[4], by_merge=True)
            connection.execute(_SET_STATUS, (PROTECTED if protected else ACTIVE, line))
            reach("documents: branch protected")
            return self._branch(_row(connection, line))

    def _own(self, connection: apsw.Connection, name: str, what: str) -> str:
        """The line of a branch that can be deleted or renamed."""
        line = self._database.line(name)
        if line == FIRST:
            raise BranchNameError(name, f"is the first one, and cannot be {what}", hint="name another branch")
        status = _row(connection, line)[4]
        if status == PROTECTED:
            raise ProtectedBranchError(name, what)
        check_active(line, status)
        return line

    def _check_free(self, connection: apsw.Connection, name: str) -> None:
        """Raise `BranchExistsError` if a branch that lives, or a tag, has this name."""
        if has_tag(self._database, connection, name):
            raise BranchExistsError.of(name, is_tag=True)
        try:
            earlier = self._database.line(name)
        except UnknownBranchError:
            return
        if earlier == FIRST or _row(connection, earlier)[4] != DELETED:
            raise BranchExistsError.of(name)

    def diff(
        self, branch: str, against: str = FIRST, *, seq: int | None = None, against_seq: int | None = None
    ) -> Diff:
        """What `branch` has that `against` has not, lacks that it has, and has otherwise; at their heads or at seqs.

        Raises `UnknownBranchError`, `FutureSeqError`.
        """
        check_branch_text(branch)
        check_branch_text(against)
        database = self._database
        with database.read:
            new, old = (database.view(database.line(name), database.moment(moment, f"branch {name!r}"))
                        for name, moment in ((branch, seq), (against, against_seq)))
        return compare(database, new, old)

    def plan_merge(self, source: str, into: str = FIRST) -> MergeResult[int]:
        """What `merge` would do, and the conflicts that it would meet. Writes nothing."""
        return self._merger.merge(source, into, MergeRequest(dry_run=True))

    def merge(
        self, source: str, into: str = FIRST, *, resolve: Resolve | None = None,
        session_id: str | None = None, local_seq: int | None = None,
    ) -> MergeResult[int]:  # fmt: skip
        """`Space.merge` for sessions: a request that was made before is answered as then.

        For a document in conflict `resolve` gives what to store (None to delete it). Raises `MergeConflictError` for
        conflicts without `resolve`, `ConflictError` if somebody else changed the same documents while it was deciding,
        and what `transact` raises.
        """
        door = MergeDoor(self._request(session_id, local_seq), resolve)
        return self._merger.merge(source, into, MergeRequest(), door)

    def _branch(self, found: Any) -> Branch[int]:
        line, head, base, parent, status = found
        name = self._database.name
        return Branch(name(line), head, base, None if parent is None else name(parent), status == PROTECTED)

    def _request(self, session_id: str | None, local_seq: int | None) -> tuple[str, int]:
        if session_id is None and local_seq is None:
            return self._next_request()
        request = (session_id or "", -1 if local_seq is None else local_seq)
        check_session(*request)
        return request

    def _commit(
        self, command: _Command, find: Callable[[apsw.Connection, int], str],
        change: Callable[[apsw.Connection, int, str], None], session_id: str | None, local_seq: int | None,
    ) -> None:  # fmt: skip
        """Make `change` of the line that `find` gives one commit, unless this very request has been made before."""
        session, number = self._request(session_id, local_seq)
        said = commits.NO_REMARKS if command.author is None else commits.remarks(None, command.author)
        payload: Document = {"localSeq": number, "command": command.name, "name": command.branch, **command.details}
        original = codec.encode(payload)
        with self._database.write as connection:
            repeated = row(connection, _REPEATED, (session, number))
            if repeated is not None:
                check_repeated(connection, repeated[0], command.branch, original)
                return
            seq = self._database.last_seq() + 1
            line = find(connection, seq)
            decided = commits.resolution(seq, (), said=said)
            connection.execute(commits.INSERT, (seq, line, session, number, original, decided, None))
            change(connection, seq, line)
        reach("documents: branch committed")
        self._database.announce()


class _Command(NamedTuple):
    """What is done to a branch, as its commit says it."""

    name: str
    branch: str
    details: dict[str, Any]
    author: str | None


def _row(connection: apsw.Connection, line: str) -> Any:
    found = row(connection, _ONE, (line,))
    if found is None:
        raise UnknownBranchError(name_of(line))
    return found


def _check_name(name: str) -> None:
    """Raise `BranchNameError` for a name that cannot be one, `BranchExistsError` for that of the first branch."""
    try:
        check_branch_name(name)
    except HistoryBranchError as error:
        raise BranchNameError(name, "cannot be called that", hint=error.hint) from None
    if name == MAIN:
        raise BranchExistsError.of(name)
