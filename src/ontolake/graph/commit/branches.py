"""Branches of a graph. Making one writes to the manifest alone; tables fork when they are first written to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from ontolake import faults
from ontolake.graph.arguments import check_flag, check_optional_text, check_text, check_type
from ontolake.graph.commit.lineage import Lineage
from ontolake.graph.commit.manifest import MANIFEST as MANIFEST_PATH
from ontolake.graph.commit.manifest import TableLine
from ontolake.graph.commit.names import OWN
from ontolake.graph.commit.records import MAIN, CommitRecord, GraphState
from ontolake.graph.commit.retention import head_version, require, types_of
from ontolake.graph.commit.tags import TagStore
from ontolake.graph.commit.ulid import new_ulid
from ontolake.graph.errors import BranchError, BranchExistsError, UnknownBranchError, UnknownCommitError, graph_errors
from ontolake.graph.parts import GraphParts
from ontolake.graph.read.resolution import resolve_ref
from ontolake.graph.tables.types import GraphType
from ontolake.history import Branch, ProtectedBranchError, Ref
from ontolake.history.dag import missing
from ontolake.history.names import check_branch_name
from ontolake.history.refs import on_branch


class GraphBranches:
    """The branches of one graph."""

    def __init__(self, parts: GraphParts) -> None:
        self._parts = parts

    def list(self) -> list[Branch[str]]:
        """All that live, main first."""
        manifest, names = self._parts.manifest, self._parts.names
        state = manifest.state(MAIN)
        found = [Branch(MAIN, state.head.id, protected=names.is_protected(MAIN, state.identity))]
        with manifest.listed() as listed:
            shown = names.all()
            called = {line: name for name, line in shown.items()}
            for name, line in shown.items():
                try:
                    found.append(self._described(name, line, listed[line], called))
                except (UnknownBranchError, KeyError):
                    continue  # deleted while we looked
        return found

    def _described(self, name: str, line: str, listed: Any, called: Mapping[str, str]) -> Branch[str]:
        manifest = self._parts.manifest
        parent = listed["parent_branch"]
        base, state = manifest.base_of(line, listed), manifest.state(line)
        return Branch(name, state.head.id, base, MAIN if parent is None else called.get(parent, parent),
                      self._parts.names.is_protected(line, state.identity))

    def _one(self, name: str) -> Branch[str]:
        return next(branch for branch in self.list() if branch.name == name)

    def _check_free(self, name: str) -> None:
        """Raise `BranchExistsError` if a branch or a tag has a name."""
        is_tag = TagStore(self._parts).get(name) is not None
        if is_tag or name == MAIN or name in self._parts.names.all():
            raise BranchExistsError.of(name, is_tag=is_tag)

    def create(self, name: str, *, at: str | Ref | None = None, parent: str | None = None) -> Branch[str]:
        """A branch of `parent`, by default main, at its head, or as it was at a commit; or at another reference, of the
        branch that it names. No table is copied.

        Raises `BranchExistsError` if a branch or a tag has that name, `BranchError` for a name that cannot be one,
        `UnknownBranchError`, `UnknownCommitError`, and of these `RemovedCommitError` after a cleanup.
        """
        check_optional_text(parent=parent)
        check_type((str, Ref, type(None)), "the id of a commit, or a reference such as 'try' or 'main~1'", at=at)
        parts = self._parts
        parts.require_writable()
        with graph_errors():
            check_branch_name(name)
        manifest = parts.manifest
        with manifest.listed() as listed:
            self._check_free(name)
            origin_name, commit = (parent or MAIN, None) if at is None else resolve_ref(parts, on_branch(at, parent))
            state = parts.state(origin_name)
        origin, version = state.branch, state.version
        if commit is not None and commit != state.head.id:
            require(parts, manifest.commit(commit, state.branch), state)
            found = head_version(parts, state, commit)
            if found is None:
                raise UnknownCommitError(commit, origin_name)
            origin, version = found
        line = name
        if name in listed or "/" in name:  # another branch has its line; lines have no folders
            line = f"{OWN}{name.replace('/', '.')}.{new_ulid()}"
        faults.reach("graph: before creating a branch")
        try:
            made = manifest.create_branch(line, origin, version)
        except (OSError, ValueError) as error:
            if line in manifest.branches():
                raise BranchExistsError.of(name) from error
            # What a crash left of a branch without its reference is in the way.
            prefix = f"{MANIFEST_PATH}/tree/{line}/"
            parts.place.store.delete([info.key for info in parts.place.store.list(prefix)])
            made = manifest.create_branch(line, origin, version)
        faults.reach("graph: branch created")
        parts.place.settle_reference(MANIFEST_PATH, line, made)
        parts.tables.forget(line)
        if line != name:
            parts.names.call(line, manifest.identity(line), name)
        base = commit or state.head.id
        return Branch(name, base, base, parts.names.name(origin))

    def _movable(self, name: str, what: str) -> str:
        """The line of a branch that may go. Raises `UnknownBranchError`, `BranchError`, `ProtectedBranchError`."""
        check_text(name=name)
        self._parts.require_writable()
        if name == MAIN:
            raise BranchError(name, f"is the first one, and cannot be {what}", hint="name another branch")
        line = self._parts.names.line(name)
        if self._parts.names.is_protected(line, self._parts.manifest.identity(line)):
            raise ProtectedBranchError(name, what)
        return line

    def rename(self, name: str, new: str) -> Branch[str]:
        """Give a branch another name; its history stays. Raises what `create` and `delete` raise."""
        line = self._movable(name, "renamed")
        with graph_errors():
            check_branch_name(new)
        self._check_free(new)
        self._parts.names.call(line, self._parts.manifest.identity(line), new)
        self._parts.snapshots.clear()
        return self._one(new)

    def protect(self, name: str, protected: bool = True) -> Branch[str]:
        """Let a branch change by merges alone, or end that. Raises `UnknownBranchError`."""
        check_text(name=name)
        check_flag(protected=protected)
        self._parts.require_writable()
        line = self._parts.names.line(name)
        self._parts.names.protect(line, self._parts.manifest.identity(line), protected)
        return self._one(name)

    def delete(self, name: str) -> None:
        """Give a branch up, with what only it shows; tagged commits stay.

        Raises `UnknownBranchError`, `BranchError` for main and for a branch that others were made from, and
        `ProtectedBranchError`.
        """
        parts, manifest = self._parts, self._parts.manifest
        with manifest.listed() as listed:
            line = self._movable(name, "deleted")
            children = sorted(child for child, found in listed.items() if found["parent_branch"] == line)
            if children:
                shown = ", ".join(parts.names.name(child) for child in children)
                raise BranchError(name, f"cannot be deleted: {shown} was made from it", hint="delete that first")
            state = manifest.state(line)
            self._keep_tagged(state)
        faults.reach("graph: before deleting a branch")
        # First the reference, which makes it gone for all; what tables forked for it is swept after.
        manifest.delete_branch(line)
        faults.reach("graph: branch deleted")
        parts.place.settle_reference(MANIFEST_PATH, None, None)
        manifest.forget(line)
        parts.identities.pop(line, None)
        parts.snapshots.clear()
        own = {key: pin.branch for key, pin in state.pins.items()
               if pin.branch is not None and pin.branch == state.line}  # fmt: skip
        needed = self.lines() if own else set()
        for key, fork in own.items():
            if (key, fork) not in needed:
                faults.reach("graph: before deleting a fork")
                self.sweep(state.types[key], fork)
        parts.tables.forget(line)

    def _keep_tagged(self, state: GraphState) -> None:
        """Let main know the commits of a branch that have tags, with all that they were made on."""
        parts, tags = self._parts, TagStore(self._parts)
        known, own = parts.manifest.commits(MAIN), parts.manifest.commits(state.branch)
        for tag in tags.of_lance(state.branch).values():  # Lance would lose it with the branch
            tags.take_over(tag)
        tagged = [commit for commit in tags.commits() if commit in own and commit not in known]
        lineage = Lineage(own, parts.orders)
        wanted = {id: own[id] for commit in tagged for id in missing(lineage, commit, []) if id not in known}
        if wanted:
            types = types_in(wanted.values(), parts, state)
            parts.manifest.adopt(list(wanted.values()), types)

    def lines(self) -> set[TableLine]:
        """The lines of versions of tables that a commit shows which some branch knows, merged ones included."""
        manifest = self._parts.manifest
        found: set[TableLine] = set()
        with manifest.listed() as listed:
            for line in (MAIN, *listed):
                with suppress(UnknownBranchError):  # deleted while we looked
                    found |= manifest.lines(line)
        return found

    def sweep(self, kind: GraphType, line: str) -> None:
        """Delete a line of a table that nothing shows. What fails here is found again by `cleanup`."""
        with suppress(OSError, ValueError):
            self._parts.place.references(kind.location).delete(self._parts.tables.base(kind), line)


def types_in(records: Iterable[CommitRecord], parts: GraphParts, state: GraphState) -> dict[str, GraphType]:
    """The types of commits that a branch knows, by hash."""
    return {pin.schema: types_of(parts, record, state)[pin.schema] for record in records
            for pin in record.pins.values()}  # fmt: skip
