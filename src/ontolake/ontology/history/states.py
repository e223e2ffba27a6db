"""Rows of typed stores as commits had them, by key: what merges, differences and histories are made of."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from ontolake.history.dag import missing
from ontolake.history.metadata import LEFT_OUT
from ontolake.model.restoration import restore
from ontolake.model.types import Kind, TypeInfo, type_info
from ontolake.ontology.history.references import TypedDag
from ontolake.ontology.repository.branched import BranchedRepository, KeyState
from ontolake.ontology.repository.protocol import Row, SchemaVersion

Name = tuple[Kind, str]


@lru_cache(maxsize=256)
def _info(name: Name, schema: str) -> TypeInfo:
    """A class for a schema. To build one takes longer than to merge hundreds of rows."""
    return type_info(restore([json.loads(schema)])[name])


class StoreStates:
    """Reads rows of any version, by key and commit, through one repository."""

    def __init__(self, repository: BranchedRepository) -> None:
        self.repository = repository
        self.dag = TypedDag(repository)
        self._reader = repository.states
        self._infos: dict[tuple[Name, int], TypeInfo] = {}
        self._schemas: dict[tuple[Name, int], SchemaVersion] = {}
        self._versions: dict[int, Mapping[Name, int]] = {}

    def versions_at(self, commit: int) -> Mapping[Name, int]:
        """The schema version that each type had at a commit."""
        if commit in self._versions:
            return self._versions[commit]
        there = self.repository.holding(commit)
        found: dict[Name, int] = {}
        for name in there.schemas():
            known = [(since, version) for version, since in there.activations(*name).items() if since <= commit]
            if known:
                found[name] = max(known)[1]
        self._versions[commit] = found
        return found

    def version(self, name: Name, version: int) -> SchemaVersion:
        """A version of a type."""
        if (name, version) not in self._schemas:
            self._schemas |= {(name, one.schema_version_id): one for one in self.repository.every_version(*name)}
        return self._schemas[name, version]

    def info(self, name: Name, version: int) -> TypeInfo:
        """A class for the rows of a version, whose relations lead to classes of the store."""
        found = self._infos.get((name, version))
        if found is None:
            found = self._infos[name, version] = _info(name, json.dumps(self.version(name, version).schema))
        return found

    def apart(self, pairs: Iterable[tuple[int, int]]) -> set[int]:
        """The commits that one of two has in its history and the other has not, whose rows may differ therefore.

        What a merge left out of its source differs, too, though both sides may have the commits that wrote it: these
        are among them.
        """
        found: set[int] = set()
        for one, other in pairs:
            found.update(missing(self.dag, one, [other]), missing(self.dag, other, [one]))
        waiting = list(found)
        while waiting:
            commit = waiting.pop()
            parents = self.dag.parents(commit)
            if len(parents) > 1 and LEFT_OUT in self.repository.commit(commit).metadata:
                more = set(missing(self.dag, parents[1], [parents[0]])) - found
                found |= more
                waiting += more
        return found

    def touched(self, info: TypeInfo, version: int, commits: Collection[int]) -> list[Row]:
        """The keys of a version that some commits wrote, sorted."""
        return self._reader.touched(info, version, commits)

    def rows(self, info: TypeInfo, version: int, keys: Sequence[Row], commit: int) -> list[Row]:
        """The rows of these keys at a commit, keys first; none for a key that was not there."""
        return self._reader.rows(info, version, keys, commit) if keys and commit else []

    def chain(self, name: Name, key: Row, commit: int) -> Iterator[tuple[TypeInfo, KeyState]]:
        """All that was written for a key along the first parents of a commit, oldest first, by any schema version."""
        found: list[tuple[TypeInfo, KeyState]] = []
        for version in self.repository.holding(commit).schema_versions(*name):
            info = self.info(name, version.schema_version_id)
            written = self._reader.written(info, version.schema_version_id, key, commit)
            found += [(info, state) for state in written]
        yield from sorted(found, key=lambda item: item[1].commit)

    def live_relations(self, info: TypeInfo, version: int, side: str, keys: Collection[Row], commit: int) -> list[Row]:
        """The keys of relations that lead to some entities at a commit."""
        return self._reader.live_relations(info, version, side, keys, commit)
