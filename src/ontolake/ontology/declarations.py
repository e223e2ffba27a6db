"""`Declarations`: what a session or a handler says is to be.

It checks objects and keys, and gathers intents. Nothing is written before a commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ontolake.model.entity import Entity, Relation
from ontolake.model.filters import FieldRef, ValueRef
from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology.errors import LayoutLacksError, SchemaValidationError, UnknownKeyError
from ontolake.ontology.intents import Intents, Row
from ontolake.ontology.keys import encoded_key, encoded_keys
from ontolake.ontology.query.builder import QueryStart
from ontolake.ontology.repository import Repository

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
Objects = Entity | Relation[Any, Any] | Iterable[Entity | Relation[Any, Any]]
TypeClass = type[Entity] | type[Relation[Any, Any]]


class Declarations:
    """Declares objects of some types. `intents` has what was declared."""

    def __init__(self, repository: Repository, known: Collection[type]) -> None:
        self.intents = Intents()
        self._repository = repository
        self._known = known

    def info(self, cls: Any) -> TypeInfo:
        """The type of a class. Raises `SchemaValidationError` if it is not one of those known here."""
        if cls not in self._known:
            name = getattr(cls, "__name__", repr(cls))
            raise SchemaValidationError("not one of the types of this session", type_name=name,
                                        hint="name it in entity_types or relation_types")
        return type_info(cls)

    def query(self) -> QueryStart:
        """Begin a query whose `delete` declares."""
        return QueryStart(self._repository, self.info, self.delete)

    def ensure(self, objects: Objects) -> None:
        """Declare that objects are to be as they are now; the last one of a key wins. Raises `SchemaValidationError`,
        and then declares none of them."""
        self.intents.add(self._encoded(objects))

    def _encoded(self, objects: Objects) -> list[tuple[TypeInfo, Row]]:
        given = (objects,) if isinstance(objects, Entity | Relation) else objects
        if isinstance(given, str | bytes | type | Mapping) or not isinstance(given, Iterable):
            hint = "make an object of it: Type(**row)" if isinstance(given, Mapping) else None
            raise SchemaValidationError(f"{given!r} is neither an object of a type nor an iterable of such", hint=hint)
        rows: list[tuple[TypeInfo, Row]] = []
        cls: Any = None
        for obj in given:
            if type(obj) is not cls:
                cls = type(obj)
                info = self.info(cls)
                encode = info.encode
            rows.append((info, encode(obj)))
        return rows

    def ensure_arrow(self, cls: TypeClass, table: pa.Table) -> None:
        """Declare the rows of an Arrow table. Raises `SchemaValidationError` for a column or a value that does not
        fit."""
        from ontolake.ontology.arrow.columns import columns_from_arrow
        from ontolake.ontology.arrow.rows import rows_from_arrow

        info = self.info(cls)
        columns = columns_from_arrow(info, table) if self._repository.takes_columns else None
        if columns is not None:
            self.intents.add_unique(info, columns, columns.unique())
        else:
            self.intents.add_unique(info, *rows_from_arrow(info, table))

    def ensure_all(self, cls: TypeClass, objects: Iterable[Entity | Relation[Any, Any]], cascade: bool) -> None:
        """Declare the complete state of a type. Raises `SchemaValidationError`, `LayoutLacksError`."""
        info = self.info(cls)
        self._check_deletions()
        rows = self._encoded(objects)
        for other, _ in rows:
            if other is not info:
                raise SchemaValidationError(f"ensure_all takes objects of {info.name} alone", type_name=other.name)
        self.intents.complete(info, (row for _, row in rows), bool(cascade))

    def delete(self, what: Any, key: Any = None, *, cascade: bool = False) -> None:
        """Declare that rows are to go: of a type and keys, or of objects. Raises `SchemaValidationError` for a key that
        cannot be one, `LayoutLacksError`."""
        self._check_deletions()
        if isinstance(what, type):
            info = self.info(what)
            if key is None:
                raise SchemaValidationError("delete() needs a key", type_name=info.name,
                                            hint="ensure_all(Type, []) deletes all rows of a type")
            keys = key if isinstance(key, list | set | frozenset) else (key,)
            self.intents.end(info, encoded_keys(info, keys), bool(cascade))
            return
        for info, row in self._encoded(what):
            self.intents.end(info, [row[: len(info.keys)]], bool(cascade))

    def _check_deletions(self) -> None:
        if not self._repository.keeps_deletions:
            raise LayoutLacksError("deletions", self._repository.uri, self._repository.engine_version)

    def get(self, cls: type[T], key: Any) -> T | None:
        """The object of a key as it is stored; None if there is none."""
        info = self.info(cls)
        values = encoded_key(info, key)
        found: Any = self.query().of(info)
        for column, value in zip(info.keys, values, strict=True):
            found = found.where(FieldRef(ValueRef(info.cls, column.name)) == column.decode(value))
        return cast("T | None", found.first())

    def update(self, cls: type[T], key: Any, fields: Mapping[str, Any]) -> T:
        """Declare that some fields of a row, as it is declared or stored, are to change. Returns the object.

        Raises `UnknownKeyError` if there is no such row, `SchemaValidationError` for a field or value that cannot be.
        """
        info = self.info(cls)
        pending = self.intents.pending(info, encoded_key(info, key))
        if isinstance(pending, tuple):
            order = (*info.keys, *info.columns)
            known = {column.name: column.decode(value) for column, value in zip(order, pending, strict=True)}
        else:
            stored = None if pending is False else self.get(cls, key)
            if stored is None:
                raise UnknownKeyError(info.name, key)
            known = {column.name: getattr(stored, column.name) for column in info.all_columns}
        moved = [column.name for column in info.parts or info.keys if column.name in fields and fields[column.name]
                 != known[column.name]]  # fmt: skip
        if moved:
            raise SchemaValidationError("a key stays as it is", type_name=info.name, key=key, field=moved[0],
                                        hint="delete the row, and ensure another one")
        changed = cast("T", info.cls.model_validate({**known, **fields}))
        self.ensure(cast(Any, changed))
        return changed
