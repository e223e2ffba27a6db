"""The states of one row, and who wrote each of its fields. Reads the versions of one key, not the commits between."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from ontolake.errors import NotFound
from ontolake.history import Commit, RowVersion
from ontolake.history.blame import blame
from ontolake.model.types import TypeInfo
from ontolake.ontology.history.states import Name, StoreStates
from ontolake.ontology.keys import encoded_key
from ontolake.ontology.repository.branched import KeyState

Chain = tuple[list[int], list[tuple[TypeInfo, KeyState]]]


class RowStates:
    """The versions of a row as the history of a commit has them."""

    def __init__(self, states: StoreStates, head: int, name: Name, key: Any) -> None:
        """Raises `NotFound` for a type that is not there, `SchemaValidationError` for what cannot be its key."""
        self._states, self._head, self._name = states, head, name
        versions = states.repository.holding(head).schema_versions(*name)
        if not versions:
            raise NotFound(f"there is no table {name[0]}/{name[1]} at commit {head}")
        self._key = encoded_key(states.info(name, versions[-1].schema_version_id), key)
        self._chains: dict[int, Chain] = {}

    def _chain(self, commit: int) -> Chain:
        """What was written for the key on the branch of a commit and where that came from, oldest first."""
        branch = self._states.repository.branch_of(commit)
        if branch not in self._chains:
            last = self._states.repository.branch_row(branch).head_commit_id
            found = list(self._states.chain(self._name, self._key, max(last, commit)))
            self._chains[branch] = [state.commit for _, state in found], found
        return self._chains[branch]

    def _at(self, commit: int) -> tuple[TypeInfo, KeyState] | None:
        commits, found = self._chain(commit)
        place = bisect_right(commits, commit) - 1
        return None if place < 0 else found[place]

    def _wrote(self, commit: int) -> int | None:
        found = self._at(commit)
        return None if found is None else found[1].commit

    def _read(self, commit: int) -> dict[str, Any]:
        found = self._at(commit)
        if found is None or found[1].row is None:
            return {}
        info, state = found
        assert state.row is not None
        return {column.stored: column.decode(value)
                for column, value in zip((*info.keys, *info.columns), state.row, strict=True)}

    def states(self) -> Iterator[RowVersion[int]]:
        """All states, newest first. A merge counts if it gave the row a state that none of its parents had."""
        seen: set[int] = set()
        waiting, found = [self._head], []
        while waiting:
            at = self._wrote(waiting.pop())
            if at is None or at in seen:
                continue
            seen.add(at)
            parents = self._states.dag.parents(at)
            if len(parents) < 2 or all(not _same(self._read(parent), self._read(at)) for parent in parents):
                found.append(at)
            waiting += parents
        for commit in sorted(found, reverse=True):
            yield RowVersion(self._states.repository.commit(commit), self._read(commit) or None)

    def blame(self) -> dict[str, Commit[int]]:
        """For each field the commit that wrote its value. Raises `NotFound` if the row is not there."""
        fields = self._read(self._head)
        if not fields:
            raise NotFound(f"{self._name[1]} has no such row at commit {self._head}")
        authors = blame(self._head, fields, parents=self._states.dag.parents, read=self._read, wrote=self._wrote,
                        same=_same)
        return {name: self._states.repository.commit(commit) for name, commit in authors.items()}


def _same(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))
