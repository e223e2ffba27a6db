"""The tags of a typed store: names for commits, which keep what they name from being collected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ontolake.errors import Invalid
from ontolake.history import Ref, Tag, TagError, TagExistsError, UnknownTagError
from ontolake.history.names import check_tag_name
from ontolake.ontology.history.branches import naming
from ontolake.ontology.history.references import TypedRefs
from ontolake.ontology.repository.times import now_text, parse_time

if TYPE_CHECKING:
    from ontolake.ontology.repository.sqlite.v3 import SqliteRepositoryV3


class TypedTags:
    """The tags of a typed store: a `history.Tags`."""

    def __init__(self, repository: Callable[[], SqliteRepositoryV3]) -> None:
        self._opened = repository

    def list(self) -> Sequence[Tag[int]]:
        """All tags, by name."""
        repository = self._opened()
        with repository.reading():
            rows: Any = repository.db.execute("SELECT name, commit_id, message, created_at FROM tags ORDER BY name")
            return [self._tag(repository, *row) for row in rows.fetchall()]

    def _tag(self, repository: SqliteRepositoryV3, name: str, commit: int, message: str | None, at: str) -> Tag[int]:
        branch = repository.branch_row(repository.branch_of(commit)).name
        return Tag(name, commit, branch, parse_time(at), message)

    def create(self, name: str, ref: str | int | Ref | None = None, *, message: str | None = None) -> Tag[int]:
        """Name a commit: that of a reference, else the head of the session's branch.

        Raises `TagExistsError` if a tag or a branch has that name, `TagError` for a name that cannot be one and in a
        store without commits, `UnknownBranchError`, `UnknownCommitError`.
        """
        check_tag_name(name)
        if message is not None and not isinstance(message, str):
            raise Invalid(f"message must be text, not {message!r}")
        repository = self._opened()
        with naming(repository) as db:
            refs = TypedRefs(repository)
            commit = refs.resolve(refs.first if ref is None else ref).commit
            if not commit:
                raise TagError(name, "has no commit to name", hint="commit something first")
            is_tag = db.execute("SELECT 1 FROM tags WHERE name = ?", (name,)).get
            if is_tag or repository.branch_named(name) is not None:
                raise TagExistsError(name, "is there already, or a branch is called that", hint="use another name")
            moment = now_text()
            db.execute("INSERT INTO tags (name, commit_id, message, created_at) VALUES (?, ?, ?, ?)",
                       (name, commit, message, moment))
            return self._tag(repository, name, commit, message, moment)

    def delete(self, name: str) -> None:
        """Take a name away; the commit stays. Raises `UnknownTagError`."""
        repository = self._opened()
        with naming(repository) as db:
            db.execute("DELETE FROM tags WHERE name = ?", (name,))
            if not db.changes():
                raise UnknownTagError(name)
