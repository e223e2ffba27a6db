"""What the references of users mean on typed stores with branches: a `history.refs.Refs`, and the DAG of commits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from ontolake.errors import Invalid
from ontolake.history import Point, Ref, UnknownBranchError, UnknownCommitError
from ontolake.history.refs import resolve
from ontolake.ontology.repository.branched import BranchedRepository


class TypedDag:
    """The commits of a store: a `history.dag.Dag`. Ids grow, so they are the order too."""

    def __init__(self, repository: BranchedRepository) -> None:
        self._repository = repository
        self._known: dict[int, Sequence[int]] = {}

    def parents(self, commit: int) -> Sequence[int]:
        found = self._known.get(commit)
        if found is None:
            found = self._known[commit] = self._repository.parents(commit)
        return found

    def order(self, commit: int) -> int:
        return commit


class TypedRefs:
    """Finds commits by what users write. Where no branch is named, that of the session is meant."""

    def __init__(self, repository: BranchedRepository) -> None:
        self._repository = repository
        self.dag = TypedDag(repository)

    @property
    def first(self) -> str:
        return self._repository.branch_row(self._repository.branch_id).name

    def resolve(self, ref: Ref | str | int | datetime) -> Point[int]:
        """The commit that a reference names. Raises what `refs.resolve` raises."""
        if isinstance(ref, datetime):
            return Point(self.first, self.before(ref if ref.tzinfo else ref.replace(tzinfo=UTC), self.first))
        if isinstance(ref, int) and not isinstance(ref, bool):
            return self.find(str(ref), None)
        if not isinstance(ref, str | Ref):
            raise Invalid(f"{ref!r} names no commit", hint="write a branch, a tag, BRANCH@COMMIT, @COMMIT or @TIME")
        return resolve(ref, self)

    def head(self, branch: str) -> int | None:
        row = self._repository.branch_named(branch)
        return None if row is None else row.head_commit_id

    def tagged(self, name: str) -> Point[int] | None:
        tag = self._repository.tag_named(name)
        return None if tag is None else self._at(tag.commit_id)

    def _at(self, commit: int) -> Point[int]:
        return Point(self._repository.branch_row(self._repository.branch_of(commit)).name, commit)

    def find(self, text: str, branch: str | None) -> Point[int]:
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise Invalid(f"{text!r} is not a commit", hint="commits of a typed store are numbered from 1")
        commit = int(text)
        if not 0 < commit <= self._repository.highest():
            raise UnknownCommitError(commit, branch)
        if branch is None:
            self._repository.holding(commit)
            return self._at(commit)
        row = self._repository.branch_named(branch)
        if row is None:
            raise UnknownBranchError(branch)
        if not self._repository.in_line(row.id, commit):
            raise UnknownCommitError(commit, branch)
        return Point(branch, commit)

    def before(self, time: datetime, branch: str) -> int:
        row = self._repository.branch_named(branch)
        if row is None:
            raise UnknownBranchError(branch)
        found = self._repository.commit_before(time, row.id)
        if found is None:
            raise UnknownCommitError(time.isoformat(), branch, reason="no commit is so old")
        return found

    def parent(self, point: Point[int]) -> int | None:
        return next(iter(self.dag.parents(point.commit)), None)
