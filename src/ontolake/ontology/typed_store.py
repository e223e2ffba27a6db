"""`TypedStore`: a typed store opened as it is, with classes made from the schemas that it holds.

For tools that have no classes at hand, or only some: commands, generic verbs, servers.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from ontolake.errors import Invalid
from ontolake.history import Damage, Garbage
from ontolake.model.restoration import restore
from ontolake.model.schema import diff, is_schema, schema_of
from ontolake.model.types import Kind, TypeInfo, type_info
from ontolake.ontology.config import Config
from ontolake.ontology.errors import QueryError, SchemaOutdatedError, StorageBackendError
from ontolake.ontology.history.verbs import VersionedTypes
from ontolake.ontology.query.builder import QueryStart
from ontolake.ontology.repository import Repository, open_repository


class TypedStore(VersionedTypes):
    """An open typed store and its types: the classes that were given, and restored ones for all others."""

    def __init__(
        self, uri: str, *, classes: Iterable[Any] = (), config: Config | Mapping[str, Any] | None = None,
        engine_version: str | None = None,
    ) -> None:  # fmt: skip
        """Open the store at `uri`. Raises what `open_repository` raises, `SchemaOutdatedError` if a class has another
        schema than the store has for it."""
        self.config = Config.of(config)
        self._declared: dict[tuple[Kind, str], TypeInfo] = {}
        given = {(info.kind, info.name): info for info in map(type_info, classes)}
        self.repository: Repository = open_repository(uri, engine_version=engine_version, config=self.config)
        try:
            self._infos = self._adopted(given)
        except BaseException:
            self.repository.close()
            raise

    def _adopted(self, given: dict[tuple[Kind, str], TypeInfo]) -> dict[tuple[Kind, str], TypeInfo]:
        stored = self.repository.schemas()
        self._versions = {name: version.schema_version_id for name, version in stored.items()}
        for (kind, name), version in stored.items():
            if not is_schema(version.schema):
                raise StorageBackendError(f"the schema of the {kind} type {name} in {self.uri!r} is damaged",
                                          hint="onto verify tells what is damaged; restore it from a copy")
        diffs = [diff(stored[name].schema, schema_of(info.cls)) for name, info in given.items() if name in stored]
        if any(diffs):
            raise SchemaOutdatedError([one for one in diffs if one])
        return self._with([version.schema for version in stored.values()], given)

    def _with(self, schemas: Iterable[Any], known: Mapping[tuple[Kind, str], TypeInfo]
              ) -> dict[tuple[Kind, str], TypeInfo]:
        classes = restore(schemas, {name: info.cls for name, info in known.items()})
        return {name: type_info(cls) for name, cls in sorted(classes.items())}

    def learn(self, schemas: Iterable[Any]) -> None:
        """Know types by their schemas too that the store does not have yet."""
        self._infos = self._with(schemas, self._infos)

    @property
    def types(self) -> Sequence[TypeInfo]:
        """The types, entities first, by name."""
        return tuple(self._infos.values())

    def declare(self, classes: Iterable[Any]) -> None:
        """Know types as code has them, which may be migrated on other branches: merges lift rows by their defaults."""
        self._declared = {(info.kind, info.name): info for info in map(type_info, classes)}

    @property
    def declared(self) -> Sequence[TypeInfo]:
        return tuple({**self._infos, **self._declared}.values())

    @property
    def uri(self) -> str:
        return self.repository.uri

    def find(self, name: str, kind: Kind | None = None) -> TypeInfo:
        """The type of a name. Raises `QueryError`, which names those that sound alike, if there is none."""
        found = [info for info in self.types if info.name == name and kind in (None, info.kind)]
        if len(found) == 1:
            return found[0]
        if found:
            raise QueryError(f"{name} is both an entity and a relation type",
                             hint=f"write entity/{name} or relation/{name}")
        before, slash, rest = name.partition("/")
        if slash and kind is None and before in ("entity", "relation"):
            return self.find(rest, "entity" if before == "entity" else "relation")
        what = f"{kind} type" if kind else "type"
        raise QueryError(f"there is no {what} {name!r} in {self.uri!r}", hint=self._instead(name, kind))

    def _instead(self, name: str, kind: Kind | None) -> str:
        elsewhere = [info.kind for info in self.types if info.name == name]
        if elsewhere:
            return f"{name} is a type of {'entities' if elsewhere[0] == 'entity' else 'relations'}"
        known = [info.name for info in self.types if kind in (None, info.kind)]
        folded = {one.lower(): one for one in known}
        near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.5)
        if near:
            return f"did you mean {folded[near[0]]}?"
        return f"there are {', '.join(known)}" if known else "nothing has been committed yet"

    def is_current(self) -> bool:
        """Whether opening the store now would give the same: no type has changed, and the branch has its name."""
        if self.repository.keeps_branches:
            branched = self._with_branches()
            row = branched.branch_named(self.config.branch)
            if row is None or row.id != branched.branch_id:
                return False
        stored = self.repository.schemas()
        return self._versions == {name: version.schema_version_id for name, version in stored.items()}

    def query(self) -> QueryStart:
        """Begin a query."""
        return QueryStart(self.repository, lambda cls: None)

    def verify(self) -> Iterator[Damage]:
        """Read everything that is stored and yield what cannot be right."""
        from ontolake.ontology.verification import verify

        if self.repository.keeps_branches:
            self.repository.state()  # raises once closed
        return verify(self.repository)

    def gc(self, *, dry_run: bool = True) -> Garbage:
        """Every state of every row can be asked for; what objects of attempts that failed leave behind can go."""
        if not isinstance(dry_run, bool):
            raise Invalid(f"dry_run is True or False, not {dry_run!r}")
        return self.repository.gc(dry_run=dry_run)

    def close(self) -> None:
        self.repository.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self.close()
