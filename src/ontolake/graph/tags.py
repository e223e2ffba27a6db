"""`graph.tags`: names for commits. A tagged commit is kept by every cleanup, also when its branch is deleted."""

from __future__ import annotations

from ontolake.graph.arguments import check_optional_text, check_text
from ontolake.graph.commit.retention import require
from ontolake.graph.commit.tags import TagStore
from ontolake.graph.commit.ulid import is_ulid
from ontolake.graph.parts import GraphParts
from ontolake.graph.read.resolution import find_commit, resolve_ref
from ontolake.history import Tag, TagError, TagExistsError
from ontolake.history.names import check_tag_name


class GraphTags:
    """The tags of one graph."""

    def __init__(self, parts: GraphParts) -> None:
        self._parts = parts
        self._stored = TagStore(parts)

    def list(self) -> list[Tag[str]]:
        """All tags, by name."""
        return [*self._stored.all().values()]

    def get(self, name: str) -> str | None:
        """The commit that a tag names, or None."""
        check_text(name=name)
        tag = self._stored.get(name)
        return None if tag is None else tag.commit

    def create(
        self, name: str, ref: str | None = None, *, branch: str | None = None, message: str | None = None
    ) -> Tag[str]:  # fmt: skip
        """Name a commit: that of a reference, else the head of a branch, else that of main.

        With both, the reference is a commit of the branch. Raises `TagExistsError` if a tag or a branch has that name,
        `TagError` for a name that cannot be one, `UnknownBranchError`, `UnknownCommitError`.
        """
        check_tag_name(name)
        check_optional_text(ref=ref, branch=branch, message=message)
        parts = self._parts
        parts.require_writable()
        if is_ulid(name):
            raise TagError(name, "cannot be called that: it may be the id of a commit", hint="choose another name")
        is_branch = name == "main" or name in parts.names.all()
        if is_branch or self._stored.get(name) is not None:
            raise TagExistsError.of(name, is_branch=is_branch)
        if ref is not None and branch is not None:
            state, record = find_commit(parts, ref, branch)
        else:
            point = resolve_ref(parts, ref if ref is not None else "main" if branch is None else branch)
            state, record = find_commit(parts, point.commit, point.branch)
        require(parts, record, state)
        return self._stored.put(name, record.id, parts.names.name(state.branch), message)

    def delete(self, name: str) -> None:
        """Take a name away; the commit stays. Raises `UnknownTagError`."""
        check_text(name=name)
        self._parts.require_writable()
        self._stored.delete(name)
