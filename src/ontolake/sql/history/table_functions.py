"""The history in SQL: `onto_log()`, `onto_diff(…)` and the like as tables of a query, and all versions of a table.

A query that reads such a table is run over whole tables: what stands beside it is read as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ontolake.history import ChangeKind
from ontolake.history.metadata import STATEMENT
from ontolake.sql.catalog.records import Table
from ontolake.sql.errors import SqlError, UnknownNameError, UnsupportedError, nearest
from ontolake.sql.history import conflict_table
from ontolake.sql.keyspace.vectors import stored_array
from ontolake.sql.plan import execution, scans
from ontolake.sql.plan.access import AccessPath
from ontolake.sql.plan.queries import run_over
from ontolake.sql.results import Result
from ontolake.sql.syntax.statements import NotConstant, Parameters, bound, constant, name_of
from ontolake.sql.write.rows import decoded

if TYPE_CHECKING:
    from ontolake.sql.database import Database

_TIME = pa.timestamp("us", "UTC")
_COMMIT = [("commit_id", pa.int64()), ("time", _TIME), ("author", pa.string()), ("message", pa.string())]
_LOG = pa.schema([*_COMMIT, ("parent", pa.int64()), ("merged", pa.int64()), ("statement", pa.string())])
_BRANCHES = pa.schema([("name", pa.string()), ("head", pa.int64()), ("base", pa.int64()), ("parent", pa.string()),
                       ("protected", pa.bool_())])  # fmt: skip
_TAGS = pa.schema([("name", pa.string()), ("commit_id", pa.int64()), ("branch", pa.string()), ("time", _TIME),
                   ("message", pa.string())])  # fmt: skip
_BLAME = pa.schema([("column_name", pa.string()), *_COMMIT])


def is_historical(tree: exp.Expr) -> bool:
    """Whether a query reads history as a table, or a table over a span of time, or as of a value to be computed."""
    return any((isinstance(node.this, exp.Anonymous) and str(node.this.this).lower().startswith("onto_"))
               or conflict_table.is_target(node)
               or (node.args.get("version") is not None and not _is_fixed(node.args["version"]))
               for node in tree.find_all(exp.Table))  # fmt: skip


def _is_fixed(version: exp.Expr) -> bool:
    if version.args.get("kind") != "AS OF" or version.expression is None:
        return False
    try:
        constant(version.expression)
    except NotConstant:
        return False
    return True


def value_of(node: exp.Expr) -> Any:
    """The value of an expression without columns. Raises `SqlError`."""
    try:
        return constant(node)
    except NotConstant:
        return execution.run(exp.select(exp.alias_(node.copy(), "v")), {}).column(0)[0].as_py()


class HistoricalQuery:
    """Runs a query that reads history, inside a transaction."""

    def __init__(self, db: Database, find: Callable[[exp.Table], tuple[Table, int | None]],
                 version: Callable[[Any], int]) -> None:  # fmt: skip
        """`find` gives a table and the version to read it at, `version` what a moment of the user means."""
        self._db, self._find, self._version = db, find, version

    def run(self, tree: exp.Expr, parameters: Parameters) -> Result:
        """The rows. Raises `SqlError`."""
        copy = bound(tree, parameters)
        expressions = {name_of(each.args["alias"].this) for each in copy.find_all(exp.CTE)}
        tables: dict[str, pa.Table] = {}
        for number, node in enumerate(list(copy.find_all(exp.Table))):
            if not node.args.get("db") and isinstance(node.this, exp.Identifier) and name_of(node.this) in expressions:
                continue
            name = f"h{number}"
            tables[name] = self._read(node)
            alias = node.args.get("alias")
            shown = node.this.this if isinstance(node.this, exp.Anonymous) else name_of(node.this)
            node.set("alias", alias or exp.TableAlias(this=exp.to_identifier(shown, quoted=True)))
            node.set("this", exp.to_identifier(name))
            for part in ("db", "catalog", "version"):
                node.set(part, None)
        return run_over(copy, tables)

    def _read(self, node: exp.Table) -> pa.Table:
        if isinstance(node.this, exp.Anonymous):
            return self._called(str(node.this.this).lower(), [value_of(each) for each in node.this.expressions])
        if conflict_table.is_target(node):
            return self._db.conflicts.read()
        version = node.args.get("version")
        if version is not None and version.args.get("kind") != "AS OF":
            node.set("version", None)
            table, _ = self._find(node)
            return self._versions(table, version)
        if version is not None:
            version.set("expression", exp.Literal.number(self._version(value_of(version.expression))))
        table, at = self._find(node)
        access = AccessPath("full scan", table, None, [table.span], frozenset())
        return scans.read_table(self._db.session.keyspace, access, table.visible, at)

    def _versions(self, table: Table, version: exp.Expr) -> pa.Table:
        """The versions of rows that lived in a span of time; without one, all of them."""
        kind = version.args.get("kind")
        if kind == "ALL":
            return self._all(table, None, None)
        if kind not in ("BETWEEN", "FROM") or version.expression is None:
            raise UnsupportedError("this form of FOR SYSTEM_TIME is not supported",
                                   hint="write AS OF, BETWEEN … AND …, FROM … TO …, or ALL")
        first, last = (self._version(value_of(each)) for each in version.expression.expressions)
        return self._all(table, first, last if kind == "BETWEEN" else last - 1)

    def _all(self, table: Table, first: int | None, last: int | None) -> pa.Table:
        """Versions of rows with the commits that wrote and ended them; none of those that ended before `first`."""
        found = self._db.session.keyspace.versions_in(table.span)
        found = [row for row in found if (last is None or row[0] <= last)
                 and (first is None or row[1] is None or row[1] > first)]  # fmt: skip
        found.sort(key=lambda row: row[0])
        values = decoded(table, [row[2] for row in found])
        columns = [values.columns[table.place[column.column_id]] if found else stored_array(column.type, [])
                   for column in table.visible]  # fmt: skip
        wrote, ended = (pa.array([row[side] for row in found], pa.int64()) for side in (0, 1))
        return pa.table(
            [*columns, wrote, ended],
            names=[*(column.name for column in table.visible), "commit_id", "until_commit"])

    # functions

    def _called(self, name: str, arguments: Sequence[Any]) -> pa.Table:
        functions: dict[str, tuple[Callable[..., pa.Table], int, int]] = {
            "onto_log": (self._log, 0, 1), "onto_branches": (self._branches, 0, 0), "onto_tags": (self._tags, 0, 0),
            "onto_diff": (self._diff, 3, 3), "onto_history": (self._history, 1, 1), "onto_blame": (self._blame, 2, 3),
        }  # fmt: skip
        if name not in functions:
            raise UnknownNameError(f"there is no table function {name}", sqlstate="42883",
                                   hint=nearest(name, functions))
        function, least, most = functions[name]
        if not least <= len(arguments) <= most:
            raise SqlError(f"{name} takes {least if least == most else f'{least} to {most}'} arguments, not "
                           f"{len(arguments)}", sqlstate="42883")
        return function(*arguments)

    def _log(self, branch: str | None = None) -> pa.Table:
        rows = []
        for one in self._db.commits(branch=branch):
            parents = (*one.parents, None, None)
            rows.append({"commit_id": one.id, "time": one.time, "author": one.author, "message": one.message,
                         "parent": parents[0], "merged": parents[1], "statement": one.metadata.get(STATEMENT)})
        return pa.Table.from_pylist(rows, _LOG)

    def _branches(self) -> pa.Table:
        return pa.Table.from_pylist([one._asdict() for one in self._db.branches.list()], _BRANCHES)

    def _tags(self) -> pa.Table:
        return pa.Table.from_pylist([{**one._asdict(), "commit_id": one.commit} for one in self._db.tags.list()], _TAGS)

    def _diff(self, before: str, after: str, name: str) -> pa.Table:
        first, last = self._db.at(before), self._db.at(after)
        session = self._db.session
        wanted = self._db.find_table(name, session.catalog()).full_name
        found = [change for change in self._db.diff(first, last) if change.table == wanted
                 and change.kind is not ChangeKind.SCHEMA]
        table = session.catalog().by_full_name[wanted]
        arrays, names = [pa.array([change.kind.value for change in found], pa.string())], ["kind"]
        for side in ("before", "after"):
            for column in table.visible:
                rows = [getattr(change, side) or {} for change in found]
                stored = [None if row.get(column.name) is None else column.type.store(row[column.name]) for row in rows]
                arrays.append(stored_array(column.type, stored))
                names.append(f"{side}_{column.name}")
        return pa.table(arrays, names=names)

    def _history(self, name: str) -> pa.Table:
        """All versions of a table with what is known of their commits."""
        versions = self._all(self._db.find_table(name, self._db.session.catalog()), None, None)
        log = self._log()
        place = {id: number for number, id in enumerate(log.column("commit_id").to_pylist())}
        at = pa.array([place.get(id) for id in versions.column("commit_id").to_pylist()], pa.int64())
        for column in ("time", "author", "message"):
            versions = versions.append_column(column, pc.take(log.column(column), at))
        return versions.take(pa.array(np.arange(versions.num_rows)[::-1]))

    def _blame(self, name: str, key: Any, ref: str | None = None) -> pa.Table:
        table = self._db.find_table(name, self._db.session.catalog())
        blamed = self._db.blame(table.full_name, key, ref=ref)
        return pa.Table.from_pylist([
            {"column_name": column, "commit_id": one.id, "time": one.time, "author": one.author, "message": one.message}
            for column, one in blamed.items()], _BLAME)
