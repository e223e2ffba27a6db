"""The branches of a typed store, as users name and change them. Making one copies nothing, whatever is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
from ontolake.ontology.repository.branched import BranchedRepository, BranchRow, Names


class TypedBranches:
    """The branches of a typed store: a `history.Branches`."""

    def __init__(self, repository: Callable[[], BranchedRepository]) -> None:
        self._opened = repository

    def list(self) -> Sequence[Branch[int]]:
        """All that live, the first one first."""
        repository = self._opened()
        with repository.reading():
            return [self._branch(repository, row) for row in repository.branch_rows()]

    def _branch(self, repository: BranchedRepository, row: BranchRow) -> Branch[int]:
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

        def add(names: Names) -> Branch[int]:
            refs = TypedRefs(repository)
            row = self._find(repository, refs.first if parent is None else parent)
            commit = row.head_commit_id
            if at is not None:
                is_id = isinstance(at, int) and not isinstance(at, bool)
                point = refs.find(str(at), row.name) if parent is not None and is_id else refs.resolve(at)
                commit = point.commit
                if parent is None:
                    row = repository.branch_row(repository.branch_of(commit))
                elif not repository.in_line(row.id, commit):
                    raise UnknownCommitError(commit, row.name)
            if not commit:
                raise BranchError(name, "cannot begin before the first commit", hint="commit something first")
            self._check_free(repository, name)
            return self._branch(repository, names.add_branch(name, row.id, commit))

        return repository.change_names(add)

    def delete(self, name: str) -> None:
        """Give a branch up; what others have from it stays, the rest goes with `gc`.

        Raises `UnknownBranchError`, `BranchError` for the first one and that of the session, `ProtectedBranchError`.
        """
        repository = self._opened()

        def end(names: Names) -> None:
            row = self._movable(repository, name, "deleted")
            if row.id == repository.branch_id:
                raise BranchError(name, "is the one that the session is on", hint="open a session on another one")
            names.change_branch(row.id, deleted=True)

        repository.change_names(end)

    def rename(self, name: str, new: str) -> Branch[int]:
        """Give a branch another name; its history stays. Raises what `create` and `delete` raise."""
        check_branch_name(new)
        repository = self._opened()

        def rename(names: Names) -> Branch[int]:
            row = self._movable(repository, name, "renamed")
            self._check_free(repository, new)
            names.change_branch(row.id, name=new)
            return self._branch(repository, row._replace(name=new))

        return repository.change_names(rename)

    def protect(self, name: str, protected: bool = True) -> Branch[int]:
        """Let a branch change by merges alone, or end that. Raises `UnknownBranchError`."""
        if not isinstance(protected, bool):
            raise Invalid(f"protected is True or False, not {protected!r}")
        repository = self._opened()

        def protect(names: Names) -> Branch[int]:
            row = self._find(repository, name)
            names.change_branch(row.id, protected=protected)
            return self._branch(repository, row._replace(protected=protected))

        return repository.change_names(protect)

    def _find(self, repository: BranchedRepository, name: str) -> BranchRow:
        row = repository.branch_named(name)
        if row is None:
            raise UnknownBranchError(name)
        return row

    def _movable(self, repository: BranchedRepository, name: str, what: str) -> BranchRow:
        row = self._find(repository, name)
        if not row.id:
            raise BranchError(name, f"is the first one, and cannot be {what}", hint="name another branch")
        if row.protected:
            raise ProtectedBranchError(name, what)
        return row

    def _check_free(self, repository: BranchedRepository, name: str) -> None:
        if repository.branch_named(name) is not None:
            raise BranchExistsError.of(name)
        if repository.tag_named(name) is not None:
            raise BranchExistsError.of(name, is_tag=True)
