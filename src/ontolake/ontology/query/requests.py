"""Queries as people and programs send them in text, about a store whose classes they do not have.

Commands and servers read them here: a moment, the types as they were then, filters, orders and ways over relations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

from ontolake.errors import NotFound
from ontolake.model.filters import FieldRef, ValueRef
from ontolake.model.types import Kind, TypeInfo, type_info
from ontolake.ontology.errors import QueryError
from ontolake.ontology.migration.past import era_at, outdated, types_at
from ontolake.ontology.query.bounds import check_commits
from ontolake.ontology.query.builder import Query
from ontolake.ontology.query.text import parse_order, parse_where, read_value
from ontolake.ontology.typed_store import TypedStore

SchemaChoice = Literal["stored", "current"]
"""How rows from before a migration are read."""


class QueryText(NamedTuple):
    """What a query narrows and orders its rows by, as text."""

    where: Sequence[str] = ()
    order_by: Sequence[str] = ()
    limit: int | None = None
    offset: int | None = None
    history: bool = False


class QueryMoment:
    """The moment that a query asks about, and the types as it reads them. Raises `UnknownCommitError`."""

    def __init__(self, store: TypedStore, as_of: int | None, schema: SchemaChoice = "stored") -> None:
        check_commits(store.repository, as_of)
        self.store = store
        self.as_of = as_of
        self._schema = schema
        self._types: Mapping[tuple[Kind, str], TypeInfo] = {}
        if as_of is not None and schema == "stored":
            self._types = types_at(store.repository, store.types, as_of)

    def find(self, name: str, kind: Kind) -> TypeInfo:
        """The type of a name, as the commit has it if rows are read by the schema of their time."""
        found = self.store.find(name, kind)
        return self._types.get((kind, found.name), found)

    def start(self, info: TypeInfo) -> Query[Any]:
        """A query of a type at the moment."""
        start, cls = self.store.query(), cast("Any", info.cls)
        query: Query[Any] = start.entities(cls) if info.kind == "entity" else start.relations(cls)
        return query if self.as_of is None else query.as_of(self.as_of, schema=self._schema)

    def select(self, name: str, kind: Kind, text: QueryText) -> Query[Any]:
        """A query for rows of a type. Raises `QueryError`."""
        info = self.find(name, kind)
        query = self.start(info).where(*(parse_where(one, info) for one in text.where))
        return _bounded(query.order_by(*(parse_order(one, info) for one in text.order_by)), text)

    def traverse(self, name: str, key: str, via: Sequence[str], text: QueryText) -> Query[Any]:
        """A query for ways from one entity over relations; filters are about where they end.

        Raises `NotFound` if the entity is not there, `QueryError`.
        """
        info = self.find(name, "entity")
        key_is = FieldRef[Any](ValueRef(info.cls, info.keys[0].name)) == read_value(info.keys[0], key)
        query = self.start(info).where(key_is)
        if query.first() is None:
            when = f" as of commit {self.as_of}" if self.as_of is not None else ""
            raise NotFound(f"there is no {info.name} {key!r}{when}", hint=f"see onto query entities {info.name}")
        for step in via:
            relation, _, way = step.partition(":")
            if way not in ("", "forward", "reverse"):
                raise QueryError(f"{step!r}: a relation is taken forward or in reverse",
                                 hint="write RELATION, RELATION:forward or RELATION:reverse")
            direction: Any = way or None
            query = query.via(cast("Any", self.find(relation, "relation").cls), direction=direction)
        end = type_info(query.types[-1])
        return _bounded(query.where(*(parse_where(one, end) for one in text.where)), text)

    def diagnostics(self, query: Query[Any]) -> dict[str, Any]:
        """What to warn of: a moment before the current schema of a type, and a history that lacks earlier states."""
        repository, found = self.store.repository.holding(self.as_of or 0), dict[str, Any]()
        infos = [type_info(cls) for cls in query.types]
        since = max([*(repository.activation(info) for info in infos),
                     *(era.since for era in outdated(repository, infos, self.as_of or 0))], default=0)
        if self.as_of is not None and self.as_of < since:
            found = {"reason": "commit_before_activation", "activation_commit_id": since}
        begun = self._begun(infos[0])
        return {**found, "history_begins_at": begun} if query.has_history and begun else found

    def _begun(self, info: TypeInfo) -> int:
        """The commit with which the history of a type begins, if there are states before it that it leaves out."""
        repository = self.store.repository
        if self._schema == "current" and self.as_of is not None:
            return 0
        if self.as_of is None and not repository.activation(info):
            return 0  # states of all versions are shown
        era = era_at(repository, info.kind, info.name, repository.head() if self.as_of is None else self.as_of)
        return 0 if era is None else era.since


def _bounded(query: Query[Any], text: QueryText) -> Query[Any]:
    if text.limit is not None:
        query = query.limit(text.limit)
    if text.offset is not None:
        query = query.offset(text.offset)
    return query.with_history() if text.history else query
