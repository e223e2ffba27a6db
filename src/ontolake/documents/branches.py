"""The life of branches: they are created, listed and deleted, and nothing of the data is copied or lost thereby.

Creating and deleting are commits and take a seq. Deleting is soft: what was on the branch can still be read, its
children live on and it can be merged from; only writing to it ends. Its name may be used again: the new branch is
another line of history, which the name means from then on.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import apsw

from ontolake.documents import codec, commits
from ontolake.documents.codec import Document
from ontolake.documents.database import SpaceDatabase, row, rows
from ontolake.documents.errors import BranchExistsError, BranchNameError, BranchPointError, UnknownBranchError
from ontolake.documents.merges import Diff, MergePlan, Merger, MergeResult
from ontolake.documents.names import check_branch_text, check_session, is_seq, line_again, name_of
from ontolake.documents.resolutions import Resolve
from ontolake.documents.transactions import check_active, check_repeated
from ontolake.faults import reach
from ontolake.history import Branch

FIRST = ""
"""The branch that every space starts with, and that is never deleted."""

MAX_NAME_LENGTH = 255

_COLUMNS = "name, head_seq, fork_seq, parent_branch, status"
_ONE = f"SELECT {_COLUMNS} FROM branch WHERE name = ?"  # a line
_ALL = f"SELECT {_COLUMNS} FROM branch ORDER BY created_seq"
_REPEATED = 'SELECT seq FROM "commit" WHERE session_id = ? AND local_seq = ?'
_INSERT = """\
INSERT INTO branch (name, parent_branch, fork_seq, created_seq, head_seq)
VALUES (?1, ?2, ?3, ?4, ?4)"""
_DELETE = "UPDATE branch SET status = 'deleted' WHERE name = ?"


class Branches:
    """The branches of a space, as `space.branches`."""

    def __init__(self, database: SpaceDatabase, merger: Merger, next_request: Callable[[], tuple[str, int]]) -> None:
        self._database = database
        self._merger = merger
        self._next_request = next_request

    def list(self, *, deleted: bool = False) -> builtins.list[Branch[int]]:
        """The branches that live, in the order in which they were made; with `deleted`, those that do not as well."""
        with self._database.read as connection:
            found = rows(connection, _ALL)
        return [_branch(each) for each in found if deleted or each[4] == "active"]

    def get(self, name: str) -> Branch[int]:
        """The branch of this name, deleted or not. Raises `UnknownBranchError`."""
        check_branch_text(name)
        with self._database.read as connection:
            return _branch(_row(connection, self._database.line(name)))

    def create(
        self, name: str, *, at: int | None = None, parent: str = FIRST,
        session_id: str | None = None, local_seq: int | None = None,
    ) -> Branch[int]:  # fmt: skip
        """Start a branch from `parent` as it was `at` a seq, its head unless given. Copies nothing.

        `session_id` and `local_seq` make a retry safe, as with `transact`. Raises `BranchExistsError` if a branch of
        this name lives, `BranchNameError` if none can be called so, `UnknownBranchError` if there is no such
        parent, `BranchPointError` if the parent never was at `at`.
        """
        _check_name(name)
        check_branch_text(parent)
        if at is not None and not is_seq(at):
            raise BranchPointError(parent, f"cannot be left at {at!r}, which is not a seq")

        def find(connection: apsw.Connection, seq: int) -> str:
            try:
                earlier = self._database.line(name)
            except UnknownBranchError:
                return name
            if _row(connection, earlier)[4] == "active":
                raise BranchExistsError(name, "is there already", hint="delete it first, or choose another name")
            return line_again(name, seq)

        def change(connection: apsw.Connection, seq: int, line: str) -> None:
            origin = self._database.line(parent)
            head = _row(connection, origin)[1]
            if at is not None and at > head:
                raise BranchPointError(parent, f"never was at seq {at}: its newest commit is {head}")
            connection.execute(_INSERT, (line, origin, head if at is None else at, seq))
            reach("documents: branch created")

        self._commit("branch/create", name, {"parent": parent, "atSeq": at}, find, change, session_id, local_seq)
        return self.get(name)

    def delete(self, name: str, *, session_id: str | None = None, local_seq: int | None = None) -> None:
        """Give a branch up, softly. Raises `BranchNameError` for the first one, `UnknownBranchError`, `BranchError`."""

        def find(connection: apsw.Connection, seq: int) -> str:
            return self._deletable(connection, name)

        def change(connection: apsw.Connection, seq: int, line: str) -> None:
            connection.execute(_DELETE, (line,))
            reach("documents: branch deleted")

        check_branch_text(name)
        self._commit("branch/delete", name, {}, find, change, session_id, local_seq)

    def plan_delete(self, name: str) -> Branch[int]:
        """The branch that `delete` would give up. Writes nothing, and raises what `delete` would."""
        check_branch_text(name)
        with self._database.read as connection:
            return _branch(_row(connection, self._deletable(connection, name)))

    def _deletable(self, connection: apsw.Connection, name: str) -> str:
        """The line of a branch that can be deleted."""
        if name == FIRST:
            raise BranchNameError(name, "is the first one, and stays")
        line = self._database.line(name)
        check_active(line, _row(connection, line)[4])
        return line

    def diff(
        self, branch: str, against: str = FIRST, *, seq: int | None = None, against_seq: int | None = None
    ) -> Diff:
        """What `branch` has that `against` has not, lacks that it has, and has otherwise; at their heads or at seqs.

        Raises `UnknownBranchError`, `FutureSeqError`.
        """
        return self._merger.diff((branch, seq), (against, against_seq))

    def plan_merge(self, source: str, into: str = FIRST) -> MergePlan:
        """What `merge` would do, and the conflicts that it would meet. Writes nothing."""
        return self._merger.plan(source, into)

    def merge(
        self, source: str, into: str = FIRST, *, resolve: Resolve | None = None,
        session_id: str | None = None, local_seq: int | None = None,
    ) -> MergeResult:  # fmt: skip
        """Bring the changes of `source` into `into`, as one commit.

        Entities that only `source` has changed are taken as they are there. Where both have, changes to separate
        fields are combined; what is left is a conflict, for which `resolve` gives the document to store (None to
        delete it). Raises `MergeConflictError` for conflicts without `resolve`, `ConflictError` if somebody else
        changed the same entities meanwhile, and what `transact` raises.
        """
        return self._merger.merge(source, into, resolve, self._request(session_id, local_seq))

    def _request(self, session_id: str | None, local_seq: int | None) -> tuple[str, int]:
        if session_id is None and local_seq is None:
            return self._next_request()
        request = (session_id or "", -1 if local_seq is None else local_seq)
        check_session(*request)
        return request

    def _commit(
        self, command: str, name: str, details: dict[str, Any], find: Callable[[apsw.Connection, int], str],
        change: Callable[[apsw.Connection, int, str], None], session_id: str | None, local_seq: int | None,
    ) -> None:  # fmt: skip
        """Make `change` of the line that `find` gives one commit, unless this very request has been made before."""
        session, number = self._request(session_id, local_seq)
        payload: Document = {"localSeq": number, "command": command, "name": name, **details}
        original = codec.encode(payload)
        with self._database.write as connection:
            repeated = row(connection, _REPEATED, (session, number))
            if repeated is not None:
                check_repeated(connection, repeated[0], name, original)
                return
            seq = self._database.last_seq() + 1
            line = find(connection, seq)
            decided = commits.resolution(seq, ())
            connection.execute(commits.INSERT, (seq, line, session, number, original, decided, None))
            change(connection, seq, line)
        reach("documents: branch committed")
        self._database.announce()


def _row(connection: apsw.Connection, line: str) -> Any:
    found = row(connection, _ONE, (line,))
    if found is None:
        raise UnknownBranchError(name_of(line))
    return found


def _branch(found: Any) -> Branch[int]:
    name, head, base, parent, _ = found
    return Branch(name_of(name), head, base, None if parent is None else name_of(parent))


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not name:
        raise BranchNameError(name, "cannot be: a name is text that is not empty")
    if len(name) > MAX_NAME_LENGTH or not name.isprintable() or name != name.strip():
        raise BranchNameError(name, f"cannot be: a name has at most {MAX_NAME_LENGTH} characters that can be printed, "
                                    "and no blanks at its ends")
