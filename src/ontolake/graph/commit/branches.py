"""Branches of a graph. Making one writes to the manifest alone; tables fork when they are first written to."""

from __future__ import annotations

import re
from typing import Any

from ontolake import faults
from ontolake.graph.arguments import check_optional_text, check_text
from ontolake.graph.commit.manifest import MANIFEST as MANIFEST_PATH
from ontolake.graph.commit.records import MAIN
from ontolake.graph.commit.retention import head_version, require
from ontolake.graph.errors import BranchError, BranchExistsError, UnknownBranchError, UnknownCommitError
from ontolake.graph.parts import GraphParts
from ontolake.history import Branch

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Branches:
    """The branches of one graph."""

    def __init__(self, parts: GraphParts) -> None:
        self._parts = parts

    def list(self) -> list[Branch[str]]:
        """All that live, main first."""
        manifest = self._parts.manifest
        found = [Branch(MAIN, manifest.state(MAIN).head.id)]
        for name, listed in sorted(manifest.branches().items()):
            try:
                found.append(self._described(name, listed))
            except UnknownBranchError:
                continue  # deleted while we looked
        return found

    def _described(self, name: str, listed: Any) -> Branch[str]:
        manifest = self._parts.manifest
        parent = listed["parent_branch"]
        base = manifest.base_of(name, listed)
        return Branch(name, manifest.state(name).head.id, base, parent or MAIN)

    def create(self, name: str, *, at: str | None = None, parent: str = MAIN) -> Branch[str]:
        """A branch of `parent` at its head, or as it was at a commit. No table is copied.

        Raises `BranchExistsError`, `BranchError` for a name that cannot be one, `UnknownBranchError`,
        `UnknownCommitError`, and of these `RemovedCommitError` after a cleanup.
        """
        check_text(name=name, parent=parent)
        check_optional_text(at=at)
        parts = self._parts
        parts.require_writable()
        if not _NAME.fullmatch(name) or name == MAIN or name.endswith((".lock", ".")) or (
            ".." in name):
            raise BranchError(name, "cannot be called that",
                              hint="use letters, digits, '.', '_' and '-', beginning with a letter or digit; "
                              f"{MAIN!r} is reserved")
        manifest = parts.manifest
        state = parts.state(parent)
        origin, version = parent, state.version
        if at is not None and at != state.head.id:
            require(parts, manifest.commit(at, parent), state)
            found = head_version(parts, state, at)
            if found is None:
                raise UnknownCommitError(at, parent)
            origin, version = found
        faults.reach("graph: before creating a branch")
        try:
            made = manifest.create_branch(name, origin, version)
        except (OSError, ValueError) as error:
            if name in manifest.branches():
                raise BranchExistsError(name, "is there already",
                                        hint="delete it first, or choose another name") from error
            # What a crash left of a branch without its reference is in the way.
            prefix = f"{MANIFEST_PATH}/tree/{name}/"
            parts.place.store.delete([info.key for info in parts.place.store.list(prefix)])
            made = manifest.create_branch(name, origin, version)
        faults.reach("graph: branch created")
        parts.place.settle_reference(MANIFEST_PATH, name, made)
        parts.tables.forget(name)
        base = at or state.head.id
        return Branch(name, base, base, origin)

    def delete(self, name: str) -> None:
        """Give a branch up, with what only it shows.

        Raises `UnknownBranchError`, and `BranchError` for main and for a branch that others were made from.
        """
        check_text(name=name)
        parts = self._parts
        parts.require_writable()
        if name == MAIN:
            raise BranchError(name, "cannot be deleted", hint="it is the graph's first branch")
        manifest = parts.manifest
        listed = manifest.branches()
        if name not in listed:
            raise UnknownBranchError(name)
        children = sorted(child for child, found in listed.items() if found["parent_branch"] == name)
        if children:
            raise BranchError(name, f"cannot be deleted: {', '.join(children)} was made from it",
                              hint="delete that first")
        state = manifest.state(name)
        faults.reach("graph: before deleting a branch")
        # First the reference, which makes it gone for all; what tables forked for it is swept after.
        manifest.delete_branch(name)
        faults.reach("graph: branch deleted")
        parts.place.settle_reference(MANIFEST_PATH, None, None)
        manifest.forget(name)
        parts.identities.pop(name, None)
        parts.snapshots.clear()
        needed = self.lines()
        for key, pin in state.pins.items():
            if pin.branch == state.line and (key, pin.branch) not in needed:
                faults.reach("graph: before deleting a fork")
                self.sweep(state.types[key], pin.branch)
        parts.tables.forget(name)

    def lines(self) -> set[tuple[str, str | None]]:
        """The lines of versions of tables that a commit shows which some branch knows, merged ones included."""
        manifest = self._parts.manifest
        found: set[tuple[str, str | None]] = set()
        for name in (MAIN, *manifest.branches()):
            try:
                found.update((key, pin.branch) for record in manifest.commits(name).values()
                             for key, pin in record.pins.items())
            except UnknownBranchError:
                continue  # deleted while we looked
        return found

    def sweep(self, kind: Any, line: str | None) -> None:
        """Delete a line of a table that nothing shows. What fails here is found again by `cleanup`."""
        base = self._parts.tables.base(kind)
        try:
            if line in base.branches.list():
                base.branches.delete(line)
        except (OSError, ValueError):
            return
