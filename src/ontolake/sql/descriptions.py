"""What a statement takes and gives, worked out without running it: the types of its parameters and columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ontolake.sql.catalog.objects import EnumMeta
from ontolake.sql.catalog.records import SqlCatalog
from ontolake.sql.executor.parameter_types import ParameterTypes, learned
from ontolake.sql.executor.pg_types import TEXT, PgType, from_arrow
from ontolake.sql.executor.scopes import Output
from ontolake.sql.syntax.statements import ParsedStatement, parse_one
from ontolake.sql.types import oids
from ontolake.sql.write.described_changes import StatementOutputs

if TYPE_CHECKING:
    from ontolake.sql.database import Database

_ALL_SETTINGS = ["name", "setting", "description"]
_SETTINGS = {"timezone": "TimeZone", "datestyle": "DateStyle", "intervalstyle": "IntervalStyle"}


class ColumnDescription(NamedTuple):
    """A column of an answer: its name, and its type as PostgreSQL numbers it."""

    name: str
    oid: int
    size: int
    modifier: int


class StatementDescription(NamedTuple):
    """What a statement takes and gives. `columns` is None for one that gives no rows."""

    parameters: tuple[int, ...]
    """The oids of the types of parameters."""
    columns: tuple[ColumnDescription, ...] | None


def describe(
    self: Database, statement: str | ParsedStatement, parameter_oids: Sequence[int] = ()
) -> StatementDescription:
    """What a statement takes and gives, without running it. `parameter_oids` are types of parameters that are known
    already, 0 for one that is not. A parameter of which nothing is known is text. Raises `SqlError`."""
    found = parse_one(statement) if isinstance(statement, str) else statement
    with self.session.reading():
        catalog = self.session.catalog()
        numbers = TypeNumbers(catalog)
        known = {place: type for place, oid in enumerate(parameter_oids) if (type := numbers.type(oid)) is not None}
        with learned(ParameterTypes(known)) as types:
            outputs = _outputs(self, found, catalog)
        count = max(_parameter_count(found), len(parameter_oids))
    columns = None if outputs is None else tuple(
        ColumnDescription(each.name, *numbers.of(each.type)) for each in outputs)  # fmt: skip
    given = (*(0 if oid == oids.BY_NAME["unknown"].oid else oid for oid in parameter_oids), *[0] * count)
    return StatementDescription(tuple(given[place] or numbers.of(types.known.get(place, TEXT))[0]
                                      for place in range(count)), columns)  # fmt: skip


def _parameter_count(statement: ParsedStatement) -> int:
    return statement.parameter_count if statement.inner is None else _parameter_count(statement.inner)


def _outputs(db: Database, statement: ParsedStatement, catalog: SqlCatalog) -> list[Output] | None:
    """The columns that a statement gives; None if it gives no rows."""
    kind = statement.kind
    if kind in ("select", "insert", "update", "delete", "merge", "chain"):
        temporary = db.commands.temporary
        where, statement = temporary.place(statement) if temporary.takes(statement) else (db, statement)
        with where.session.reading():
            known = catalog if where is db else where.session.catalog()
            if kind == "select" and statement.is_system:
                return where.plan_of(statement, None).outputs(known)
            names = where.names_of(statement, known, None)
            return StatementOutputs(where, names, known, where.version_of).of(statement)
    if kind == "explain":
        assert statement.inner is not None
        if statement.inner.parameter_count:
            _outputs(db, statement.inner, catalog)  # for the types of its parameters
        return [Output("QUERY PLAN", TEXT)]
    if kind == "show":
        shown = [_SETTINGS.get(name, name) for name in statement.names] or _ALL_SETTINGS
        return [Output(name, TEXT) for name in shown]
    if kind == "fetch":
        rows = db.commands.cursors.find(statement.names[0]).rows
        return [Output(field.name, from_arrow(field.type)) for field in rows.schema]
    if kind == "execute":
        return _outputs(db, db.commands.prepared.find(statement.names[0]).statement, catalog)
    if kind == "call":
        from ontolake.sql.history.procedures import COLUMNS

        return [Output(name, PgType(type)) for name, type in COLUMNS.get(statement.names[0], ())]
    if kind in ("copy", "declare") and statement.inner is not None and statement.inner.parameter_count:
        _outputs(db, statement.inner, catalog)
    return None


class TypeNumbers:
    """PostgreSQL's numbers of the executor's types, with those of the enums of a catalog."""

    def __init__(self, catalog: SqlCatalog) -> None:
        enums = [each.type for each in catalog.objects.values() if isinstance(each, EnumMeta)]
        self._enums = {each.name: each for each in enums}

    def of(self, type: PgType) -> tuple[int, int, int]:
        """The oid, the size and the modifier of a type."""
        if type.name in oids.VECTORS:
            return oids.BY_NAME[type.name].oid, -1, -1
        item = type.element if type.is_array else type
        if item.name in self._enums:
            oid = oids.type_oid(self._enums[item.name])
            return (oids.array_oid(oid), -1, -1) if type.is_array else (oid, 4, -1)
        found = oids.BY_NAME.get("text" if item.name in ("unknown", "record") else item.name, oids.BY_NAME["text"])
        modifier = item.length + 4 if item.length else item.modifier
        return (found.array_oid, -1, modifier) if type.is_array else (found.oid, found.size, modifier)

    def type(self, oid: int) -> PgType | None:
        """The type with an oid; None if it is not known."""
        if (found := oids.BY_OID.get(oid)) is not None:
            return None if found.name == "unknown" else PgType(found.name)
        if (found := oids.BY_ARRAY_OID.get(oid)) is not None:
            return PgType(found.name).array
        for each in self._enums.values():
            own = oids.type_oid(each)
            if oid in (own, oids.array_oid(own)):
                named = PgType(each.name, labels=each.labels)
                return named if oid == own else named.array
        return None

