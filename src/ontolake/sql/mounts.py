"""Schemas of tables that something else keeps, which a database shows beside its own, and what a transaction changes
there. A transaction changes one store: rows of this database, or those of one such schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from sqlglot import exp

from ontolake.errors import OntolakeError
from ontolake.sql.errors import UnknownNameError, UnsupportedError, nearest
from ontolake.sql.plan.foreign import ForeignChange, ForeignSchema, ForeignTable
from ontolake.sql.syntax.statements import NotConstant, constant, name_of

PUBLIC = "public"
"""The schema that names mean that have none."""


class MountedSchemas:
    """The schemas of other keepers that a database shows besides its own."""

    def __init__(self, schemas: Mapping[str, ForeignSchema] | None = None) -> None:
        self._all: dict[str, ForeignSchema] = dict(schemas or {})
        self._changes: dict[str, list[ForeignChange]] = {}
        """What the transaction that is open has changed, by schema."""
        self._marks: list[tuple[str, dict[str, int]]] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, name: str, schema: ForeignSchema) -> None:
        """Show a schema under a name; one that has it already is replaced."""
        self._all[name] = schema

    def items(self) -> Sequence[tuple[str, ForeignSchema]]:
        return list(self._all.items())

    def tables(self) -> list[ForeignTable]:
        """All tables of these schemas that can be read, without their rows."""
        found: list[ForeignTable] = []
        for schema, each in self._all.items():
            with suppress(OntolakeError):  # a store that nobody can read is no reason to show none of the others
                for name in each.names():
                    found.append(ForeignTable(schema, name, each.open(name), len(found), []))
        return found

    def is_mentioned(self, sql: str) -> bool:
        """Whether a statement may be about one of these schemas; cheap, and never wrong about those that are not."""
        lowered = sql.lower()
        return any(name.lower() in lowered or name == PUBLIC for name in self._all)

    def knows(self, node: exp.Table, path: Sequence[str]) -> bool:
        """Whether a node names a table of one of these schemas."""
        return self._place(node, path) is not None

    def find(self, node: exp.Table, path: Sequence[str]) -> ForeignTable | None:
        """The table that a node names, by its schema or by the search path; None if it is not in one of these.

        Raises `UnknownNameError` for a table that is not in the schema that the node names.
        """
        place = self._place(node, path)
        if place is None:
            return None
        schema, name, number = place
        return ForeignTable(schema, name, self._all[schema].open(name, _moment(node)), number,
                            self._changes.setdefault(schema, []))

    def _place(self, node: exp.Table, path: Sequence[str]) -> tuple[str, str, int] | None:
        """The schema and the name of the table that a node names, and its number there."""
        given, name = name_of(node.args.get("db")), name_of(node.this)
        if node.args.get("catalog") or not isinstance(node.this, exp.Identifier):
            return None
        for schema in [given] if given else path:
            if schema not in self._all:
                continue
            names = list(self._all[schema].names())
            found = _named(name, names)
            if found is not None:
                return schema, found, names.index(found)
            if given:
                raise UnknownNameError(f"there is no table {schema}.{name}", hint=nearest(name, names))
        return None

    def check_writable(self, table: ForeignTable) -> None:
        """Raise `SqlError` if a table cannot be changed here."""
        self._all[table.schema].check_writable(table.name)

    def mark(self, kind: str, name: str) -> None:
        """SAVEPOINT, ROLLBACK TO or RELEASE."""
        if kind == "savepoint":
            self._marks.append((name, {schema: len(changes) for schema, changes in self._changes.items()}))
            return
        place = next((n for n in range(len(self._marks) - 1, -1, -1) if self._marks[n][0] == name), None)
        if place is None:
            return
        if kind == "rollback to":
            counts = self._marks[place][1]
            for schema, changes in self._changes.items():
                del changes[counts.get(schema, 0) :]
        del self._marks[place + (kind == "rollback to") :]

    @contextmanager
    def statement(self) -> Iterator[None]:
        """One statement: if it fails, what it has changed is given up, and what came before it stays."""
        counts = {schema: len(changes) for schema, changes in self._changes.items()}
        try:
            yield
        except BaseException:
            for schema, changes in self._changes.items():
                del changes[counts.get(schema, 0) :]
            raise

    def check_alone(self, *, is_dirty: bool) -> None:
        """Raise `UnsupportedError` if a transaction has changed more than one store. `is_dirty` says whether it has
        changed this database."""
        changed = [schema for schema, changes in self._changes.items() if changes]
        if len(changed) + is_dirty > 1:
            raise UnsupportedError("a transaction can change one store only, and this one has changed "
                                   + ", ".join([*(["this database"] if is_dirty else []), *changed]),
                                   hint="use a transaction for each")

    def end(self, *, commit: bool) -> None:
        """The transaction ends: what it has changed elsewhere becomes a commit there, or is given up. Raises
        `SqlError`; nothing is changed then."""
        if not self._all:
            return
        changed = [(schema, changes) for schema, changes in self._changes.items() if changes]
        self._changes, self._marks = {}, []
        try:
            for schema, changes in changed if commit else ():
                self._all[schema].commit(changes)
        finally:
            for each in self._all.values():
                each.forget()


NOTHING_MOUNTED = MountedSchemas()


def _named(name: str, names: Sequence[str]) -> str | None:
    """The table that a name means: the one that is called so, or the only one that is but for capital letters."""
    if name in names:
        return name
    close = [each for each in names if each.lower() == name.lower()]
    return close[0] if len(close) == 1 else None


def _moment(node: exp.Table) -> Any:
    version = node.args.get("version")
    if version is None or version.expression is None:
        return None
    try:
        return constant(version.expression)
    except NotConstant:
        return None
