"""Tags of a graph: names for commits, which every cleanup keeps."""

from __future__ import annotations

from ontolake.errors import Invalid, NotFound
from ontolake.graph.arguments import check_optional_text, check_text
from ontolake.graph.commit.manifest import MANIFEST
from ontolake.graph.commit.records import MAIN
from ontolake.graph.commit.retention import head_version, require
from ontolake.graph.errors import UnknownCommitError
from ontolake.graph.parts import GraphParts


class Tags:
    """Names for commits. A tagged commit is kept by every cleanup."""

    def __init__(self, parts: GraphParts) -> None:
        self._parts = parts

    def list(self) -> dict[str, str]:
        """Every tag with its commit."""
        dataset = self._parts.manifest.dataset(MAIN)
        found: dict[str, str] = {}
        for name, tag in sorted(dataset.tags.list().items()):
            branch = tag["branch"] or MAIN
            at = dataset.checkout_version((tag["branch"], tag["version"]))
            found[name] = self._parts.manifest.head_at(branch, at).id
        return found

    def get(self, name: str) -> str | None:
        """The commit that a tag names, or None."""
        check_text(name=name)
        return self.list().get(name)

    def create(self, name: str, commit: str | None = None, *, branch: str = MAIN) -> None:
        """Name a commit of a branch, by default its head. Raises `Invalid`, `UnknownCommitError`."""
        check_text(name=name)
        check_optional_text(commit=commit)
        parts = self._parts
        parts.require_writable()
        state = parts.state(branch)
        if not name or len(name) == 26 or not all(c.isalnum() or c in "._-" for c in name) or name in self.list():
            raise Invalid(f"a tag cannot be called {name!r}", hint="use letters, digits, '.', '_' and '-', and a name "
                          "that is not taken and not 26 characters long")  # fmt: skip
        require(parts, parts.manifest.commit(commit or state.head.id, branch), state)
        found = head_version(parts, state, commit or state.head.id)
        if found is None:
            raise UnknownCommitError(str(commit), branch)
        line, version = found
        dataset = parts.manifest.dataset(MAIN)
        dataset.tags.create(name, (None if line == MAIN else line, version))
        parts.place.settle_reference(MANIFEST, name, None, "tags")

    def delete(self, name: str) -> None:
        """Take a name away. Raises `NotFound`."""
        check_text(name=name)
        self._parts.require_writable()
        if name not in self.list():
            raise NotFound(f"there is no tag {name!r}")
        self._parts.manifest.dataset(MAIN).tags.delete(name)
        self._parts.place.settle_reference(MANIFEST, None, None, "tags")
