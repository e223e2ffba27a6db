"""Runs the commands of a session: what they keep lives as long as the handle, and makes no commit."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from ontolake.sql.commands.cursors import Cursors
from ontolake.sql.commands.prepared import PreparedStatements
from ontolake.sql.commands.settings import Settings
from ontolake.sql.commands.temporary import TemporaryTables
from ontolake.sql.errors import SqlSyntaxError, TransactionError, UnsupportedError
from ontolake.sql.history.table_functions import value_of
from ontolake.sql.results import Result
from ontolake.sql.syntax.statements import Parameters, ParsedStatement, bound

if TYPE_CHECKING:
    from ontolake.sql.database import Database

_UPKEEP = {
    "VACUUM": "VACUUM has nothing to do: Database.gc() and onto gc remove what nobody can read any more",
    "ANALYZE": "ANALYZE has nothing to do: ranges of keys are counted when a query needs them",
    "CLUSTER": "CLUSTER has nothing to do: rows are in the order of their primary key",
    "REINDEX": "REINDEX has nothing to do: Database.verify() and onto verify check all indexes",
    "CHECKPOINT": "",
}
"""What to say of commands of upkeep that PostgreSQL needs."""


_NEWS = {"listen": "Database.changes() tells what others have committed", "unlisten": "nothing is listened to",
         "notify": "every commit is news by itself"}  # fmt: skip
"""What to do instead of commands that need a server."""


class KeptCommands:
    """What belongs to the session of a connection."""

    commands: SessionCommands | None = None


class ThreadKeptCommands(threading.local, KeptCommands):
    """What belongs to the session of a thread."""


class SessionCommands:
    """The prepared statements, cursors and settings of a handle, and the commands about them."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.prepared = PreparedStatements()
        self.cursors = Cursors()
        self.temporary = TemporaryTables(db, self.called)
        self.settings = Settings(search_path=db.schema, **db.defaults)
        self._before: frozenset[str] = frozenset()
        """The cursors that were there when the transaction began."""
        self._runs: dict[str, Callable[[ParsedStatement, Parameters], Result]] = {
            "prepare": self._prepare, "execute": self._execute, "deallocate": self._deallocate,
            "declare": self._declare, "fetch": self._fetch, "move": self._fetch, "close": self._close,
            "set": self._set, "show": self._show, "reset": self._reset, "discard": self._discard,
            "upkeep": self._upkeep, "lock": self._lock, "set transaction": self._set_transaction,
            "set characteristics": self._set_characteristics, **dict.fromkeys(_NEWS, _refuse_news),
        }  # fmt: skip

    def knows(self, kind: str) -> bool:
        return kind in self._runs

    def run(self, statement: ParsedStatement, params: Parameters) -> Result:
        """Run a command. Raises `SqlError`."""
        return self._runs[statement.kind](statement, params)

    def began(self) -> None:
        """A transaction was begun."""
        self._before = self.cursors.names()
        self.settings.begin()
        self.temporary.begin()

    def ended(self, *, committed: bool) -> None:
        """A transaction was ended."""
        self.cursors.end_transaction(committed=committed, before=self._before)
        self.settings.end(committed=committed)
        self.temporary.end(committed=committed)
        self.follow_path()

    # prepared statements

    def _prepare(self, statement: ParsedStatement, params: Parameters) -> Result:
        self.prepared.prepare(statement.names[0], statement.options["statement"], statement.options["types"])
        return Result("PREPARE", 0)

    def _execute(self, statement: ParsedStatement, params: Parameters) -> Result:
        inner, values = self.bound(statement, params)
        return self._db.run(inner, values)

    def bound(self, statement: ParsedStatement, params: Parameters) -> tuple[ParsedStatement, tuple[Any, ...]]:
        """The statement that an EXECUTE means, and its parameters."""
        tree = statement.tree
        return self.called(statement.names[0], tree.expressions if isinstance(tree, exp.Select) else (), params)

    def called(
        self, name: str, nodes: Sequence[exp.Expr], params: Parameters
    ) -> tuple[ParsedStatement, tuple[Any, ...]]:
        """The prepared statement of a name, and the values for its parameters that nodes stand for."""
        found = self.prepared.find(name)
        for node in nodes:
            if node.find(exp.Column, exp.Query) is not None:
                raise UnsupportedError("EXECUTE takes values without columns and queries")
        return found.statement, found.bound([value_of(bound(node, params)) for node in nodes])

    def _deallocate(self, statement: ParsedStatement, params: Parameters) -> Result:
        self.prepared.deallocate(statement.names[0] if statement.names else None)
        return Result("DEALLOCATE" if statement.names else "DEALLOCATE ALL", 0)

    # cursors

    def _declare(self, statement: ParsedStatement, params: Parameters) -> Result:
        options, inner = statement.options, statement.inner
        assert inner is not None
        if inner.kind != "select":
            raise SqlSyntaxError(f"a cursor is for a query, not for {inner.kind.upper()}")
        if not options["hold"] and not self._db.in_transaction:
            raise TransactionError("DECLARE CURSOR needs a transaction", sqlstate="25P01",
                                   hint="BEGIN one, or declare the cursor WITH HOLD")
        self.cursors.check_free(statement.names[0])
        rows = self._db.run(inner, params).typed()
        self.cursors.declare(statement.names[0], rows, scroll=options["scroll"] is not False, hold=options["hold"])
        return Result("DECLARE CURSOR", 0)

    def _fetch(self, statement: ParsedStatement, params: Parameters) -> Result:
        move = self.cursors.fetch if statement.kind == "fetch" else self.cursors.move
        return move(statement.names[0], statement.options["way"], statement.options["count"])

    def _close(self, statement: ParsedStatement, params: Parameters) -> Result:
        self.cursors.close(statement.names[0] if statement.names else None)
        return Result("CLOSE CURSOR" if statement.names else "CLOSE CURSOR ALL", 0)

    # settings

    def _set(self, statement: ParsedStatement, params: Parameters) -> Result:
        self.settings.set(statement.names[0], statement.options["values"], local=statement.options["local"])
        self.follow_path()
        done = Result("SET", 0)
        if statement.options["local"] and not self._db.in_transaction:
            done.notices = ("SET LOCAL has no effect outside a transaction",)
        return done

    def follow_path(self) -> None:
        """Let names mean what the search path says."""
        names = [name.strip().strip('"') for name in self.settings.get("search_path").split(",")]
        self._db.follow([name for name in names if name and name != "$user"])

    def _show(self, statement: ParsedStatement, params: Parameters) -> Result:
        if not statement.names:
            found = self.settings.all()
            table = pa.table({"name": list(found), "setting": list(found.values()),
                              "description": pa.array([""] * len(found), pa.string())})  # fmt: skip
            return Result("SHOW", len(found), table=table)
        name = statement.names[0]
        shown = {"timezone": "TimeZone", "datestyle": "DateStyle", "intervalstyle": "IntervalStyle"}.get(name, name)
        return Result("SHOW", 1, table=pa.table({shown: [self.settings.get(name)]}))

    def _reset(self, statement: ParsedStatement, params: Parameters) -> Result:
        if statement.names:
            self.settings.set(statement.names[0], None)
        else:
            self.settings.reset()
        self.follow_path()
        return Result("RESET", 0)

    def _discard(self, statement: ParsedStatement, params: Parameters) -> Result:
        what = statement.names[0]
        if what == "all":
            if self._db.in_transaction:
                raise TransactionError("DISCARD ALL cannot be run in a transaction", sqlstate="25001",
                                       hint="COMMIT it first")
            self.cursors.close(None)
            self.settings.reset()
            self.follow_path()
        if what == "all" or what.startswith("temp"):
            self.temporary.discard()
        if what in ("all", "plans"):
            self.prepared.deallocate(None)
        return Result(f"DISCARD {'TEMP' if what.startswith('temp') else what.upper()}", 0)

    def _set_transaction(self, statement: ParsedStatement, params: Parameters) -> Result:
        modes = _modes(statement.options["modes"])
        done = Result("SET", 0)
        if not self._db.in_transaction:
            done.notices = ("SET TRANSACTION has no effect outside a transaction",)
        elif "READ ONLY" in modes:
            self._db.session.read_only()
        return done

    def _set_characteristics(self, statement: ParsedStatement, params: Parameters) -> Result:
        modes = _modes(statement.options["modes"])
        for mode in modes:
            if mode.startswith("READ ") and mode.endswith(("ONLY", "WRITE")):
                self.settings.set("default_transaction_read_only", ["on" if mode == "READ ONLY" else "off"])
            elif mode.startswith("ISOLATION LEVEL "):
                self.settings.set("default_transaction_isolation", [mode.removeprefix("ISOLATION LEVEL ")])
        return Result("SET", 0)

    # upkeep

    def _upkeep(self, statement: ParsedStatement, params: Parameters) -> Result:
        kind = statement.names[0]
        if kind == "VACUUM" and self._db.in_transaction:
            raise TransactionError("VACUUM cannot be run in a transaction", sqlstate="25001", hint="COMMIT it first")
        if kind in ("VACUUM", "ANALYZE"):
            self._check_tables(statement.options["tables"])
        done = Result(kind, 0)
        done.notices = (_UPKEEP[kind],) if _UPKEEP[kind] else ()
        return done

    def _lock(self, statement: ParsedStatement, params: Parameters) -> Result:
        if not self._db.in_transaction:
            raise TransactionError("LOCK TABLE needs a transaction", sqlstate="25P01", hint="BEGIN one")
        self._check_tables(statement.options["tables"])
        done = Result("LOCK TABLE", 0)
        done.notices = ("LOCK TABLE does not make others wait: of two transactions that touch the same rows one gets "
                        "40001",)  # fmt: skip
        return done

    def _check_tables(self, tables: Sequence[Sequence[str]]) -> None:
        """Raise `UnknownNameError` for a table that is not there."""
        catalog = self._db.catalog()
        for names in tables:
            quoted = ".".join('"' + name.replace('"', '""') + '"' for name in names)
            self._db.find_table(quoted, catalog)


def _refuse_news(statement: ParsedStatement, params: Parameters) -> Result:
    raise UnsupportedError(f"{statement.kind.upper()} is not supported", position=statement.position(0),
                           hint=_NEWS[statement.kind])  # fmt: skip


_MODE = re.compile(r"ISOLATION LEVEL (?:SERIALIZABLE|REPEATABLE READ|READ COMMITTED|READ UNCOMMITTED)"
                   r"|READ ONLY|READ WRITE|(?:NOT )?DEFERRABLE")  # fmt: skip


def _modes(text: str) -> list[str]:
    """The modes of a transaction. Raises `SqlSyntaxError`."""
    found = _MODE.findall(text)
    if " ".join(found) != text:
        raise SqlSyntaxError(f"{text} is no mode of a transaction")
    return found
