"""The tags of a typed store: names for commits, which keep what they name from being collected."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ontolake.errors import Invalid
from ontolake.history import Ref, Tag, TagError, TagExistsError, UnknownTagError
from ontolake.history.names import check_tag_name
from ontolake.ontology.history.references import TypedRefs
from ontolake.ontology.repository.branched import BranchedRepository, Names, TagRow


class TypedTags:
    """The tags of a typed store: a `history.Tags`."""

    def __init__(self, repository: Callable[[], BranchedRepository]) -> None:
        self._opened = repository

    def list(self) -> Sequence[Tag[int]]:
        """All tags, by name."""
        repository = self._opened()
        with repository.reading():
            return [self._tag(repository, row) for row in repository.tag_rows()]

    def _tag(self, repository: BranchedRepository, row: TagRow) -> Tag[int]:
        branch = repository.branch_row(repository.branch_of(row.commit_id)).name
        return Tag(row.name, row.commit_id, branch, row.created_at, row.message)

    def create(self, name: str, ref: str | int | Ref | None = None, *, message: str | None = None) -> Tag[int]:
        """Name a commit: that of a reference, else the head of the session's branch.

        Raises `TagExistsError` if a tag or a branch has that name, `TagError` for a name that cannot be one and in a
        store without commits, `UnknownBranchError`, `UnknownCommitError`.
        """
        check_tag_name(name)
        if message is not None and not isinstance(message, str):
            raise Invalid(f"message must be text, not {message!r}")
        repository = self._opened()

        def add(names: Names) -> Tag[int]:
            refs = TypedRefs(repository)
            commit = refs.resolve(refs.first if ref is None else ref).commit
            if not commit:
                raise TagError(name, "has no commit to name", hint="commit something first")
            is_branch = repository.branch_named(name) is not None
            if is_branch or repository.tag_named(name) is not None:
                raise TagExistsError.of(name, is_branch=is_branch)
            return self._tag(repository, names.add_tag(name, commit, message))

        return repository.change_names(add)

    def delete(self, name: str) -> None:
        """Take a name away; the commit stays. Raises `UnknownTagError`."""
        def drop(names: Names) -> None:
            if not names.drop_tag(name):
                raise UnknownTagError(name)

        self._opened().change_names(drop)
