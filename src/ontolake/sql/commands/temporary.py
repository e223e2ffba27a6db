"""Temporary tables: those of a session, in a database of its own in memory, which no commit and no history has.

A statement that names one is run where its target is: on that database, or on the tables at hand. What it reads on
the other side comes along as rows. Both sides begin and end transactions together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from ontolake.sql import types
from ontolake.sql.errors import DefinitionError, DuplicateNameError, TransactionError, UnsupportedError
from ontolake.sql.history.table_functions import is_historical
from ontolake.sql.results import Result
from ontolake.sql.syntax.definitions import ON_COMMIT
from ontolake.sql.syntax.statements import DIALECT, Parameters, ParsedStatement, name_of, parse_one
from ontolake.sql.types import Kind
from ontolake.sql.write import query_tables

if TYPE_CHECKING:
    from ontolake.sql.catalog.records import SqlCatalog
    from ontolake.sql.database import Database

SCHEMA = "pg_temp"
_RUN = ("select", "insert", "update", "delete", "truncate", "merge", "drop", "alter", "create")
VERSIONS = 100
"""How many commits in memory are kept at most."""
_MARKS = (exp.TemporaryProperty, exp.OnCommitProperty)


class TemporaryTables:
    """The temporary tables of a session, which hide others of the same name."""

    def __init__(self, db: Database, called: query_tables.Called) -> None:
        """`called` finds prepared statements."""
        self._db, self._called = db, called
        self._own: Database | None = None
        self._ends: dict[str, str] = {}
        """What a commit does to tables: delete their rows, or drop them."""
        self._before: dict[str, str] = {}
        self._savepoints: list[tuple[str, dict[str, str]]] = []
        """The names of savepoints, and what was in `_ends` then."""
        self._kept = 0
        """The version of the database in memory before which nothing is kept."""

    @property
    def is_empty(self) -> bool:
        """Whether the session has made none so far."""
        return self._own is None

    def catalog(self) -> SqlCatalog | None:
        """What there is; None if the session has made none so far."""
        return None if self._own is None else self._own.catalog()

    def takes(self, statement: ParsedStatement) -> bool:
        """Whether a statement makes a temporary table or names one."""
        if statement.kind == "create" and is_temporary(statement.tree):
            return True
        return self._own is not None and self._names_own(statement)

    def run(self, statement: ParsedStatement, params: Parameters, *, past: bool) -> Result:
        """Run such a statement. Raises `SqlError`."""
        tree = statement.tree
        if statement.kind == "create" and isinstance(tree, exp.Create) and is_temporary(tree):
            return self._create(statement, tree, params)
        where, changed = self.place(statement, past=past)
        done = where.run(changed, params)
        return done if where is self._db else self._ended(done)

    def place(self, statement: ParsedStatement, *, past: bool = False) -> tuple[Database, ParsedStatement]:
        """Where a statement that names temporary tables is run, and as what: with rows of tables on the other side.

        Raises `SqlError`.
        """
        tree = statement.tree
        if tree is None or statement.kind not in _RUN:
            raise UnsupportedError(f"{statement.kind.upper()} is not supported with a temporary table",
                                   hint="name a table that is not temporary, with its schema")
        if past or is_historical(tree):
            raise UnsupportedError("a temporary table has no history, and is not read together with it",
                                   hint="CREATE TEMP TABLE … AS takes rows of history")
        if shadow := next((each for each in tree.find_all(exp.CTE) if name_of(each.args["alias"].this) in
                           self._names()), None):  # fmt: skip
            raise UnsupportedError(f"{name_of(shadow.args['alias'].this)} is a temporary table and a query of WITH",
                                   hint="use another name in WITH")
        copied = tree.copy()
        targets = _targets(copied)
        own = [node for node in targets if self._is_own(node)]
        if own and len(own) < len(targets):
            raise UnsupportedError(f"{statement.kind.upper()} is not supported for temporary and other tables at once",
                                   hint="use two statements")
        return self._change(statement, copied) if own else self._read(statement, copied)

    # statements

    def _read(self, statement: ParsedStatement, tree: exp.Expr) -> tuple[Database, ParsedStatement]:
        """A statement for the tables at hand, with rows of temporary ones."""
        if isinstance(tree, exp.Create) and not query_tables.is_query_table(tree):
            raise UnsupportedError(f"CREATE {tree.kind} cannot read a temporary table", hint="CREATE TABLE … AS can")
        given: dict[str, pa.Table] = {}
        for node in [node for node in tree.find_all(exp.Table) if self._is_own(node) and not _is_made(node)]:
            name = name_of(node.this)
            given[f"{SCHEMA} {name}"] = self._rows(name)
            _stand_in(node, f"{SCHEMA} {name}")
        return self._db, statement.changed(tree, given)

    def _change(self, statement: ParsedStatement, tree: exp.Expr) -> tuple[Database, ParsedStatement]:
        """A statement for temporary tables, with rows of others."""
        if isinstance(tree, exp.Alter):
            _check_definition(tree)
            for action in tree.args["actions"]:
                if isinstance(action, exp.AlterRename) and self._ends.get(name_of(tree.this.this)):
                    raise UnsupportedError("a temporary table with ON COMMIT cannot be renamed", hint="CREATE another")
        ctes = {name_of(each.args["alias"].this) for each in tree.find_all(exp.CTE)}
        given: dict[str, pa.Table] = {}
        for node in list(tree.find_all(exp.Table)):
            if not isinstance(node.this, exp.Identifier):
                continue
            if self._is_own(node):
                node.set("db", None)
            elif statement.kind in ("insert", "update", "delete", "merge") and (
                    node.args.get("db") or name_of(node.this) not in ctes):
                bare = node.copy()
                for part in ("alias", "joins"):
                    bare.set(part, None)
                name = f"main {len(given)}"
                given[name] = self._db.run(parse_one(f"SELECT * FROM {bare.sql(DIALECT)}"), ()).typed()
                _stand_in(node, name)
        return self._opened(), statement.changed(tree, given)

    def _create(self, statement: ParsedStatement, tree: exp.Create, params: Parameters) -> Result:
        node = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
        transaction = self._db.session.transaction
        if transaction is not None and transaction.is_readonly:
            raise TransactionError("CREATE TABLE cannot be run in a transaction that is read-only", sqlstate="25006")
        if node.args.get("catalog") or name_of(node.args.get("db")) not in ("", SCHEMA):
            raise DefinitionError("a temporary table has no schema of yours", sqlstate="42P16", hint="leave it out")
        _check_definition(tree)
        given: dict[str, pa.Table] = {}
        made = tree.copy()
        if query_tables.is_query_table(tree):
            given["main 0"] = self._answer(statement, tree, params)
            made.set("expression", exp.select("*").from_(exp.Table(this=exp.to_identifier("main 0", quoted=True))))
        place = made.this.this if isinstance(made.this, exp.Schema) else made.this
        place.set("db", None)
        ends = ""
        kept = []
        for each in made.args["properties"].expressions if made.args.get("properties") else ():
            if isinstance(each, exp.OnCommitProperty):
                ends = each.meta.get(ON_COMMIT) or ("delete" if each.args.get("delete") else "")
            if not isinstance(each, (*_MARKS, exp.ExecuteAsProperty)):
                kept.append(each)
        made.set("properties", exp.Properties(expressions=kept) if kept else None)
        name, there = name_of(node.this), self._names()
        done = self._opened().run(statement.changed(made, given), () if given else params)
        if name not in there:
            self._ends[name] = ends
        return self._ended(done)

    def _answer(self, statement: ParsedStatement, tree: exp.Create, params: Parameters) -> pa.Table:
        """The rows of the query that a temporary table is made of."""
        query = query_tables.source(tree, params, self._called)
        found = self._db.run(statement.changed(query, {}, kind="select"), ()).typed()
        if len(set(found.column_names)) < found.num_columns:
            raise DuplicateNameError("the query gives two columns one name", sqlstate="42701", hint="name them with AS")
        for field in found.schema:
            type = types.from_arrow(field.type)
            if type is not None and (type.item or type).kind == Kind.ENUM:
                raise UnsupportedError(f"the column {field.name} of a temporary table cannot be an enum",
                                       hint="CAST it to TEXT")  # fmt: skip
        return found

    # transactions

    def begin(self) -> None:
        """A transaction was begun."""
        self._savepoints.clear()
        self._before = dict(self._ends)
        if self._own is not None:
            self._own.execute("BEGIN")

    def end(self, *, committed: bool) -> None:
        """A transaction was ended."""
        self._savepoints.clear()
        if self._own is not None and self._own.in_transaction:
            if committed:
                self._apply_ends()
            else:
                self._ends = self._before
            self._own.execute("COMMIT" if committed else "ROLLBACK")
            self._forget(self._own)

    def mark(self, kind: str, name: str) -> None:
        """A savepoint was made, gone back to or released, as `kind` says."""
        if kind == "savepoint":
            self._savepoints.append((name, dict(self._ends)))
        else:
            last = max(n for n, (each, _) in enumerate(self._savepoints) if each == name)
            if kind == "rollback to":
                self._ends = dict(self._savepoints[last][1])
            del self._savepoints[last + (kind == "rollback to") :]
        if self._own is not None:
            self._own.execute(f"{kind} {_quoted(name)}")

    def discard(self) -> None:
        """Drop all."""
        for name in self._names():
            self._opened().execute(f"DROP TABLE {_quoted(name)} CASCADE")

    def close(self) -> None:
        """Forget all."""
        if self._own is not None:
            self._own.close()

    def _ended(self, done: Result) -> Result:
        """The result of a statement, after what a commit does if the statement is one of its own."""
        if not self._db.in_transaction and self._own is not None:
            self._apply_ends()
            self._forget(self._own)
        return done

    def _forget(self, own: Database) -> None:
        """Give up old versions of rows now and then: nobody asks for them."""
        if (version := own.version()) - self._kept >= VERSIONS:
            own.retain(version)
            own.gc(dry_run=False)
            self._kept = version

    def _apply_ends(self) -> None:
        assert self._own is not None
        there = self._names()
        self._ends = {name: how for name, how in self._ends.items() if name in there}
        for name, how in self._ends.items():
            if how:
                self._own.execute(f"{'DROP TABLE' if how == 'drop' else 'DELETE FROM'} {_quoted(name)}")

    # names

    def _opened(self) -> Database:
        if self._own is None:
            from ontolake.sql.connecting import open_private

            self._own = open_private(fails_on_error=self._db.session.fails_on_error)
            if self._db.in_transaction:
                self._own.execute("BEGIN")
                for name, _ in self._savepoints:
                    self._own.execute(f"SAVEPOINT {_quoted(name)}")
        return self._own

    def _names(self) -> set[str]:
        return set() if self._own is None else {table.name for table in self._own.catalog().by_id.values()}

    def _rows(self, name: str) -> pa.Table:
        return self._opened().run(parse_one(f"SELECT * FROM {_quoted(name)}"), ()).typed()

    def _is_own(self, node: exp.Table) -> bool:
        """Whether a node names a temporary table."""
        return isinstance(node.this, exp.Identifier) and not node.args.get("catalog") and name_of(
            node.args.get("db")) in ("", SCHEMA) and name_of(node.this) in self._names()  # fmt: skip

    def _names_own(self, statement: ParsedStatement) -> bool:
        if statement.kind == "explain" and statement.inner is not None:
            return self._names_own(statement.inner)
        parts = statement.defining.name if statement.defining is not None else statement.options.get("table")
        if isinstance(parts, list) and parts:
            return parts[-1] in self._names() and parts[:-1] in ([], [SCHEMA])
        tree = statement.tree
        if tree is None or (isinstance(tree, exp.Drop) and str(tree.kind).upper() != "TABLE"):
            return False
        return any(self._is_own(node) and not _is_made(node) for node in tree.find_all(exp.Table))


def is_temporary(tree: exp.Expr | None) -> bool:
    """Whether a statement makes something temporary."""
    if not isinstance(tree, exp.Create) or str(tree.kind).upper() == "VIEW":
        return False
    node = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    properties = tree.args.get("properties")
    marked = properties is not None and any(isinstance(each, exp.TemporaryProperty) for each in properties.expressions)
    return marked or (isinstance(node, exp.Table) and name_of(node.args.get("db")) == SCHEMA)


def _check_definition(tree: exp.Expr) -> None:
    """Raise `UnsupportedError` for what a temporary table cannot have."""
    types = [] if tree.args.get("expression") is not None else tree.find_all(exp.DataType)
    if tree.find(exp.LikeProperty, exp.Reference, exp.ForeignKey) is not None or any(
            each.this == exp.DType.USERDEFINED for each in types):
        raise UnsupportedError("temporary tables have no enums, no foreign keys, and cannot be LIKE another",
                               hint="use columns of TEXT, and CREATE TEMP TABLE … AS … WITH NO DATA")


def _is_made(node: exp.Table) -> bool:
    """Whether a node is the name that CREATE gives."""
    above = node.parent.parent if isinstance(node.parent, exp.Schema) else node.parent
    return isinstance(above, exp.Create) and node.arg_key == "this"


def _targets(tree: exp.Expr) -> list[exp.Table]:
    """The tables that a statement changes."""
    if isinstance(tree, exp.TruncateTable):
        return [each for each in tree.expressions if isinstance(each, exp.Table)]
    if isinstance(tree, exp.Drop):
        return [each for each in tree.args.get("tables") or [tree.this] if isinstance(each, exp.Table)]
    if isinstance(tree, exp.Create):
        table = tree.this.args.get("table") if isinstance(tree.this, exp.Index) else None
        return [table] if isinstance(table, exp.Table) else []
    if not isinstance(tree, exp.DML | exp.Alter | exp.Merge):
        return []
    target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    return [target] if isinstance(target, exp.Table) else []


def _stand_in(node: exp.Table, name: str) -> None:
    """Let a node name rows that come along; the statement goes on calling them what it did."""
    if node.args.get("alias") is None or node.args["alias"].this is None:
        shown = exp.to_identifier(name_of(node.this), quoted=True)
        columns = node.args["alias"].columns if node.args.get("alias") else []
        node.set("alias", exp.TableAlias(this=shown, columns=columns))
    for part in ("catalog", "db", "version"):
        node.set(part, None)
    node.set("this", exp.to_identifier(name, quoted=True))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
