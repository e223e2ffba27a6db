"""The branches of a typed store: lines in a table. Making one copies nothing, whatever is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ontolake import faults
from ontolake.errors import Invalid
from ontolake.history import (
    Branch,
    BranchError,
    BranchExistsError,
    ProtectedBranchError,
    Ref,
    UnknownBranchError,
    UnknownCommitError,
)
from ontolake.history.names import check_branch_name
from ontolake.ontology.history.references import TypedRefs
from ontolake.ontology.repository.sqlite.beside import write_transaction
from ontolake.ontology.repository.times import now_text

if TYPE_CHECKING:
    from ontolake.ontology.repository.sqlite.v3 import BranchRow, SqliteRepositoryV3


@contextmanager
def naming(repository: SqliteRepositoryV3) -> Iterator[Any]:
    """A write transaction that changes names of branches or tags, and makes no commit. Gives the connection."""
    repository.check_writable()
    repository.db.get_autocommit()  # raises once closed
    with write_transaction(repository.db, repository.uri):
        yield repository.db
        faults.reach("ontology: names written, not yet durable")
    faults.reach("ontology: names durable")


class TypedBranches:
    """The branches of a typed store: a `history.Branches`."""

    def __init__(self, repository: Callable[[], SqliteRepositoryV3]) -> None:
        self._opened = repository

    def list(self) -> Sequence[Branch[int]]:
        """All that live, the first one first."""
        repository = self._opened()
        with repository.reading():
            return [self._branch(repository, row) for row in repository.branch_rows()]

    def _branch(self, repository: SqliteRepositoryV3, row: BranchRow) -> Branch[int]:
        if row.parent_id is None:
            return Branch(row.name, row.head_commit_id, protected=row.protected)
        parent = repository.branch_row(row.parent_id)
        return Branch(row.name, row.head_commit_id, row.base_commit_id, None if parent.is_deleted else parent.name,
                      row.protected)

    def create(self, name: str, *, at: int | str | Ref | None = None, parent: str | None = None) -> Branch[int]:
        """A branch of `parent`, else of the session's branch, as it was `at` a commit, else at its head.

        Without `parent` any commit of the store will do, or a tag or any other reference. Raises `BranchExistsError` if
        a branch or a tag has that name, `BranchError` for a name that cannot be one and in a store without commits,
        `UnknownBranchError`, `UnknownCommitError`.
        """
        check_branch_name(name)
        repository = self._opened()
        with naming(repository) as db:
            refs = TypedRefs(repository)
            row = self._find(repository, refs.first if parent is None else parent)
            commit = row.head_commit_id
            if at is not None:
                is_id = isinstance(at, int) and not isinstance(at, bool)
                point = refs.find(str(at), row.name) if parent is not None and is_id else refs.resolve(at)
                commit = point.commit
                if parent is None:
                    row = repository.branch_row(repository.branch_of(commit))
                elif repository.on(row.id).lineage.place_of(repository.branch_of(commit), commit) is None:
                    raise UnknownCommitError(commit, row.name)
            if not commit:
                raise BranchError(name, "cannot begin before the first commit", hint="commit something first")
            self._check_free(repository, name)
            db.execute("INSERT INTO branches (name, parent_id, base_commit_id, head_commit_id, created_at) "
                       "VALUES (?, ?, ?, ?, ?)", (name, row.id, commit, commit, now_text()))
            made = repository.branch_named(name)
            assert made is not None
            return self._branch(repository, made)

    def delete(self, name: str) -> None:
        """Give a branch up; what others have from it stays, the rest goes with `gc`.

        Raises `UnknownBranchError`, `BranchError` for the first one and that of the session, `ProtectedBranchError`.
        """
        repository = self._opened()
        with naming(repository) as db:
            row = self._movable(repository, name, "deleted")
            if row.id == repository.branch_id:
                raise BranchError(name, "is the one that the session is on", hint="open a session on another one")
            db.execute("UPDATE branches SET deleted_at = ? WHERE id = ?", (now_text(), row.id))

    def rename(self, name: str, new: str) -> Branch[int]:
        """Give a branch another name; its history stays. Raises what `create` and `delete` raise."""
        check_branch_name(new)
        repository = self._opened()
        with naming(repository) as db:
            row = self._movable(repository, name, "renamed")
            self._check_free(repository, new)
            db.execute("UPDATE branches SET name = ? WHERE id = ?", (new, row.id))
            return self._branch(repository, row._replace(name=new))

    def protect(self, name: str, protected: bool = True) -> Branch[int]:
        """Let a branch change by merges alone, or end that. Raises `UnknownBranchError`."""
        if not isinstance(protected, bool):
            raise Invalid(f"protected is True or False, not {protected!r}")
        repository = self._opened()
        with naming(repository) as db:
            row = self._find(repository, name)
            db.execute("UPDATE branches SET protected = ? WHERE id = ?", (int(bool(protected)), row.id))
            return self._branch(repository, row._replace(protected=bool(protected)))

    def _find(self, repository: SqliteRepositoryV3, name: str) -> BranchRow:
        row = repository.branch_named(name)
        if row is None:
            raise UnknownBranchError(name)
        return row

    def _movable(self, repository: SqliteRepositoryV3, name: str, what: str) -> BranchRow:
        row = self._find(repository, name)
        if not row.id:
            raise BranchError(name, f"is the first one, and cannot be {what}", hint="name another branch")
        if row.protected:
            raise ProtectedBranchError(name, what)
        return row

    def _check_free(self, repository: SqliteRepositoryV3, name: str) -> None:
        if repository.branch_named(name) is not None:
            raise BranchExistsError(name, "is there already", hint="use another name")
        if repository.db.execute("SELECT 1 FROM tags WHERE name = ?", (name,)).get:
            raise BranchExistsError(name, "cannot be called that: there is a tag of this name", hint="use another name")
