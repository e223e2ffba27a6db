"""What the names of a statement mean: tables, views and versions, by the search path and a catalog."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ontolake.sql.catalog.objects import ViewMeta
from ontolake.sql.catalog.records import SqlCatalog, Table
from ontolake.sql.errors import SqlError, SqlSyntaxError, UnsupportedError
from ontolake.sql.mounts import NOTHING_MOUNTED, MountedSchemas
from ontolake.sql.plan import view_targets, views
from ontolake.sql.plan.queries import QueryPlan, find_in
from ontolake.sql.syntax.statements import NotConstant, ParsedStatement, constant, name_of, parse_one, position_of


class StatementNames:
    """The names of one statement. Called with a node, it gives the table and the version to read it at."""

    def __init__(
        self, statement: ParsedStatement, catalog: SqlCatalog, at: int | None, database: str | None,
        path: Sequence[str], catalog_at: Callable[[int], SqlCatalog], version: Callable[[Any], int],
        mounted: MountedSchemas = NOTHING_MOUNTED,
    ) -> None:  # fmt: skip
        """`catalog_at` gives the catalog of a version, `version` the version that a moment of the user means.
        `mounted` are schemas that something else keeps."""
        self._statement, self._catalog, self._at = statement, catalog, at
        self._database, self._path = database, path
        self._catalog_at, self._version, self._mounted = catalog_at, version, mounted

    def __call__(self, node: exp.Table) -> tuple[Table, int | None]:
        """The table that a node names, and its version. Raises `UnknownNameError`, `UnsupportedError`."""
        version = node.args.get("version")
        if self._mounted and (foreign := self._mounted.find(node, self._path)) is not None:
            return foreign, None
        if version is None:
            return self.table(node, self._catalog), self._at
        if version.args.get("kind") != "AS OF" or version.expression is None:
            raise UnsupportedError("only FOR SYSTEM_TIME AS OF is supported")
        try:
            moment = self._version(constant(version.expression))
        except Exception as error:
            if isinstance(error, SqlError):
                raise
            raise UnsupportedError("FOR SYSTEM_TIME AS OF needs a version or a time that stands there") from error
        return self.table(node, self._catalog_at(moment)), moment

    def table(self, node: exp.Table, catalog: SqlCatalog) -> Table:
        """The table of a catalog that a node names. Raises `UnknownNameError`, `UnsupportedError` for a view."""
        if len(self._path) > 1 and not node.args.get("db"):
            database = self._database or catalog.default_database()
            for schema in self._path:
                if catalog.has(database, schema, name_of(node.this)):
                    return find_in(catalog, node, self._database, schema, self._statement)
        if (view := self.view(node)) is not None:
            raise UnsupportedError(f"the view {view.name} cannot be changed", hint="change the tables that it reads",
                                   position=position_of(node, self._statement))  # fmt: skip
        return find_in(catalog, node, self._database, self._path[0], self._statement)

    def view(self, node: exp.Table) -> ViewMeta | None:
        """The view that a node names, if it is one."""
        if self._mounted and self._mounted.knows(node, self._path):
            return None
        catalog, version = self._catalog, node.args.get("version")
        if version is not None and version.args.get("kind") == "AS OF" and version.expression is not None:
            with suppress(NotConstant):
                catalog = self._catalog_at(self._version(constant(version.expression)))
        database = name_of(node.args.get("catalog")) or self._database or catalog.default_database()
        for schema in [name_of(node.args.get("db"))] if node.args.get("db") else self._path:
            if catalog.has(database, schema, name_of(node.this)):
                return None
            if (found := catalog.view(database, schema, name_of(node.this))) is not None:
                return found
        return None

    def expanded(self, tree: exp.Expr) -> exp.Expr:
        """A statement with the queries of views in place of their names, and the tables of views that it changes."""
        known = tree is self._statement.tree
        if not self._catalog.has_views and not (self._statement.is_versioned if known else tree.find(exp.Version)):
            return tree

        def view(node: exp.Table) -> ViewMeta | None:
            changed = isinstance(node.parent, exp.DML | exp.Schema | exp.TruncateTable)
            return None if changed and node.arg_key in ("this", "expressions") else self.view(node)

        return views.expanded(view_targets.retargeted(tree, self.view), view)

    def qualified(self, node: exp.Table) -> tuple[str, str, str]:
        """The database, schema and name of the table or view that a node names. Raises `UnknownNameError`."""
        view = self.view(node)
        if self._mounted and self._mounted.knows(node, self._path):
            raise UnsupportedError(f"{name_of(node.this)} is kept elsewhere, and cannot be named in a definition",
                                   position=position_of(node, self._statement))
        full = self(node)[0].full_name if view is None else self._catalog.object_name(view)
        database, schema, name = full.split(".", 2)
        return database, schema, name

    def described(self, query: exp.Expr) -> pa.Schema:
        """The names and types of the columns that a query gives. Raises `SqlError`."""
        return QueryPlan(self._statement, self.expanded(query), self).schema(self._catalog)


def table_node(table: str) -> tuple[ParsedStatement, exp.Table]:
    """The node of a table's name, and a statement that has it. Raises `SqlSyntaxError` if it names no table."""
    statement = parse_one(f"SELECT * FROM {table}")
    assert statement.tree is not None
    node = statement.tree.find(exp.Table)
    if node is None or not name_of(node.this):
        raise SqlSyntaxError(f"{table!r} names no table")
    return statement, node
