"""The prompt of `onto sql URL`: statements that end in a semicolon, and commands that begin with a backslash."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ontolake.cli.common.output import ErrorReport, Heading, Out, say_error
from ontolake.cli.sql import each_result, show
from ontolake.errors import ExitCode, Invalid, OntolakeError
from ontolake.urls import detect

if TYPE_CHECKING:
    from ontolake.sql import Database
    from ontolake.sql.catalog.records import Table

HELP = """\
\\d, \\dt       the tables              \\timing       show how long statements take
\\d NAME       the columns of a table  \\v            the newest version
\\?            this help               \\q            leave, as Ctrl-D does
End a statement with a semicolon."""
WORDS = (
    "SELECT", "INSERT", "INTO", "VALUES", "UPDATE", "SET", "DELETE", "FROM", "WHERE", "GROUP", "BY", "ORDER",
    "LIMIT", "JOIN", "LEFT", "ON", "CREATE", "TABLE", "INDEX", "UNIQUE", "PRIMARY", "KEY", "NOT", "NULL",
    "DEFAULT", "ALTER", "DROP", "ADD", "COLUMN", "BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "EXPLAIN", "ANALYZE",
    "FOR", "SYSTEM_TIME", "AS", "OF", "RETURNING", "CONFLICT", "BIGINT", "TEXT", "BOOLEAN", "TIMESTAMP", "DECIMAL",
    "DATE",
)  # fmt: skip
_HABITS = {"help": "\\?", "quit": "\\q", "exit": "\\q"}
_HISTORY = "ONTO_HISTORY"


class Shell:
    """Reads statements, runs them and shows what they give, until there are no more."""

    def __init__(self, url: str, open_tables: Callable[[], Database]) -> None:
        """The tables are opened when something asks for them, so that nothing is made where nothing is run."""
        self._url = url
        self._open = open_tables
        self._opened: Database | None = None
        self._out = Out(False)
        self._timing = False
        self._failed = 0
        self._words: list[str] = []

    @property
    def _database(self) -> Database:
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def close(self) -> None:
        """Close the tables, if they were opened."""
        if self._opened is not None:
            self._opened.close()

    def run(self) -> int:
        """Talk. An error is shown and the talk goes on. Returns the exit code: that of the first error of a script."""
        from ontolake.sql.syntax.statements import is_whole

        interactive = sys.stdin.isatty()
        if interactive:
            self._prepare()
            there = "nothing there yet" if detect(self._url) is None else f"version {self._database.version()}"
            print(f"{self._url}, {there}. \\? for help.")
        pending = ""
        while True:
            prompt = "" if not interactive else "sql> " if not pending else "...> "
            try:
                line = input(prompt)
            except EOFError:
                break
            except KeyboardInterrupt:
                print()
                pending = ""
                continue
            command = _HABITS.get(line.strip().rstrip(";").lower(), line.strip())
            if not pending and command.startswith("\\"):
                if command in ("\\q", "\\quit"):
                    break
                self._guarded(lambda command=command: self._command(command))
                continue
            pending += line + "\n"
            if ";" in line and is_whole(pending):
                text, pending = pending, ""
                self._guarded(lambda text=text: self._statements(text))
        if pending.strip():
            self._guarded(lambda: self._statements(pending))
        return ExitCode.OK if interactive else self._failed

    def _guarded(self, action: Any) -> None:
        try:
            action()
        except OntolakeError as error:
            hint = error.hint
            position = getattr(error, "position", None)
            if position is not None:
                hint = f"at character {position}" + (f"; {hint}" if hint else "")
            sys.stdout.flush()  # so that an error stands where it happened
            say_error(ErrorReport(type(error).__name__, error.message, hint, error.exit_code), as_json=False)
            self._failed = self._failed or error.exit_code
        except KeyboardInterrupt:
            print()

    def _statements(self, text: str) -> None:
        begun = time.perf_counter()
        for result in each_result(self._database, text):
            took = time.perf_counter() - begun
            show(result, self._out)
            if self._timing:
                print(f"{took * 1000:.2f} ms")
            begun = time.perf_counter()

    def _command(self, line: str) -> None:
        name, _, argument = line.partition(" ")
        if name in ("\\d", "\\dt"):
            self._describe(argument.strip())
        elif name == "\\timing":
            self._timing = not self._timing
            print(f"timing is {'on' if self._timing else 'off'}")
        elif name == "\\v":
            print(self._database.version())
        elif name in ("\\?", "\\h", "\\help"):
            print(HELP)
        else:
            raise Invalid(f"there is no command {name}", hint="\\? shows those that there are")

    def _describe(self, name: str) -> None:
        tables = self._database.catalog().by_full_name
        if not name:
            rows = [(full, len(table.visible), len(table.indexes)) for full, table in sorted(tables.items())]
            self._out.table([Heading("table"), Heading("columns", right=True), Heading("indexes", right=True)], rows)
            return
        found = self._database.find_table(name, self._database.catalog())
        self._show_table(found)

    def _show_table(self, table: Table) -> None:
        rows = []
        said = {each.part_id: each.text for each in table.comments if each.kind in ("table", "column")}
        for column in table.visible:
            notes = ["primary key"] if column in table.primary_key else [] if column.nullable else ["not null"]
            if column.counting:
                notes.append(f"identity, {'always' if column.counting == 'always' else 'by default'}")
            elif column.default_expr is not None:
                notes.append(f"default {column.default_expr}")
            notes += [f"generated as ({column.generated})"] if column.generated else []
            notes += [f"-- {said[column.column_id]}"] if column.column_id in said else []
            rows.append((column.name, str(column.type), ", ".join(notes) or None))
        self._out.heading(table.full_name)
        self._out.table([Heading("column"), Heading("type"), Heading("")], rows)
        for index in table.indexes:
            parts = ", ".join(table.by_id[id].name + (" DESC" if desc else "")
                              for id, desc in zip(index.column_ids, index.desc, strict=True))  # fmt: skip
            more = ", ".join(table.by_id[id].name for id in index.include_ids)
            print(f"{'unique index' if index.unique else 'index'} {index.name} ({parts})"
                  f"{f' with {more}' if more else ''}{f' where {index.predicate}' if index.predicate else ''}, "
                  f"{index.state}")  # fmt: skip
        for check in table.meta.checks:
            print(f"check {check.name} ({check.sql})")
        tables = self._database.catalog().by_id
        for foreign in table.foreign_keys:
            names = ", ".join(table.by_id[id].name for id in foreign.column_ids)
            print(f"foreign key {foreign.name} ({names}) references {tables[foreign.parent_id].full_name}")
        if 0 in said:
            print(f"-- {said[0]}")

    # history and completion

    def _prepare(self) -> None:
        with contextlib.suppress(ImportError):
            import atexit
            import readline

            path = Path(os.environ.get(_HISTORY) or Path.home() / ".onto_sql_history")
            with contextlib.suppress(OSError):
                readline.read_history_file(path)
            readline.set_history_length(1000)
            atexit.register(_save, path)
            readline.set_completer(self._complete)
            readline.set_completer_delims(" \t\n,();=<>+-*/")
            readline.parse_and_bind("tab: complete")

    def _complete(self, text: str, state: int) -> str | None:
        if state == 0:
            names = {*WORDS}
            if self._opened is not None:
                with contextlib.suppress(OntolakeError):
                    for full, table in self._opened.catalog().by_full_name.items():
                        names |= {full, table.name, *table.by_name}
            self._words = sorted(name for name in names if name.lower().startswith(text.lower()))
        return self._words[state] if state < len(self._words) else None


def _save(path: Path) -> None:
    import readline

    with contextlib.suppress(OSError):
        readline.write_history_file(path)
