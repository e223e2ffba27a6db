"""Statements whose WITH writes: all parts read what was there before any of them wrote, as in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
from sqlglot import exp

from ontolake.sql.errors import SqlError, UnsupportedError
from ontolake.sql.results import Result
from ontolake.sql.syntax.statements import name_of
from ontolake.sql.write.dml import Changer
from ontolake.sql.write.row_writer import Writer
from ontolake.sql.write.rows import Rows
from ontolake.sql.write.trees import with_ctes

MakeChanger = Callable[[Mapping[str, pa.Table], Writer], Changer]
"""Makes what runs one part, which sees the results of the others under their names."""


class PendingChanges:
    """Changes of rows that are to be made later. A row that one part changed is left alone by later parts."""

    def __init__(self) -> None:
        self._changes: list[tuple[Rows | None, Rows | None]] = []

    def insert(self, new: Rows) -> None:
        self._changes.append((None, new.complete()))

    def update(self, old: Rows, new: Rows) -> None:
        self._changes.append((old, new.complete()))

    def delete(self, old: Rows) -> None:
        self._changes.append((old, None))

    def apply(self, writer: Writer) -> None:
        """Make the changes in their order."""
        changed: set[bytes] = set()
        for old, new in self._changes:
            if old is None:
                assert new is not None
                writer.insert(new)
                continue
            keys = old.keys()
            left = [n for n, key in enumerate(keys) if key not in changed]
            changed.update(keys)
            if len(left) < len(keys):
                old, new = old.take(left), None if new is None else new.take(left)
            if new is None:
                writer.delete(old)
            else:
                writer.update(old, new)


def run_chain(tree: exp.Expr, make: MakeChanger, writer: Writer) -> Result:
    """Run a statement whose WITH writes. Returns what its last part gives."""
    pending, given = PendingChanges(), dict[str, pa.Table]()
    main = tree.copy()
    held = main.args["with_"]
    silent: set[str] = set()
    before = exp.With(expressions=[], recursive=held.args.get("recursive"))
    for part in list(held.expressions):
        _check_named(part.this, silent)
        if not isinstance(part.this, exp.DML):
            before.append("expressions", part.copy())
            continue
        alias = part.args["alias"]
        name = name_of(alias.this)
        inner = with_ctes(part.this, exp.Select(with_=before)) if before.expressions else part.this
        result = make(given, pending).run(inner)
        if not result.columns:
            silent.add(name)
            continue
        rows = result.typed()
        shown = [name_of(each) for each in alias.columns]
        if len(shown) > rows.num_columns:
            raise SqlError(f"{name} has {rows.num_columns} columns, and {len(shown)} names were given",
                           sqlstate="42P10")
        given[name] = rows.rename_columns([*shown, *rows.column_names[len(shown) :]])
    main.set("with_", before if before.expressions else None)
    _check_named(main, silent)
    done = make(given, pending).run(main)
    pending.apply(writer)
    return done


def _check_named(tree: exp.Expr, silent: set[str]) -> None:
    """Raise `UnsupportedError` if a query reads a part that gives no rows."""
    for node in tree.find_all(exp.Table) if silent else ():
        if not node.args.get("db") and name_of(node.this) in silent:
            raise UnsupportedError(f"{name_of(node.this)} has no RETURNING", hint="add one, or do not read it")
