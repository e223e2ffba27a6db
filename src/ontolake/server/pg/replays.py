"""Running a transaction again that has lost a race, where its client cannot tell the difference.

A transaction that is refused at its end (40001) because another has committed first is run again on the newest state.
If every statement gives what the client was told already, the transaction is as good as one that had begun later, and
is committed; otherwise the client gets the refusal. So clients that add to one counter all succeed, as they do in
PostgreSQL, and one that has read what changed since does not.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ontolake.sql import SerializationError, SqlConnection, SqlError
from ontolake.sql.results import Result
from ontolake.sql.syntax.statements import Parameters, ParsedStatement

MOST_STATEMENTS, MOST_ROWS = 500, 2_000
"""A transaction that has run more, or read more rows, is not run again."""
_TRIES = 10
_REPEATED = frozenset({"select", "insert", "update", "delete", "merge", "chain"})
_IDLE = frozenset({"show", "explain", "notify", "listen", "unlisten", "begin", "begin read only", "upkeep"})
"""Statements that need not be run again."""


class TransactionScript:
    """The statements of a transaction, and what its client was told."""

    def __init__(self) -> None:
        self._steps: list[tuple[ParsedStatement, Parameters, Result]] = []
        self._rows = 0
        self.is_repeatable = True

    def add(self, statement: ParsedStatement, params: Parameters, result: Result) -> None:
        """Note a statement that was run."""
        if statement.kind in _IDLE or not self.is_repeatable:
            return
        self._rows += result.count if result.columns else 0
        if statement.kind not in _REPEATED or len(self._steps) >= MOST_STATEMENTS or self._rows > MOST_ROWS:
            self.give_up()
        else:
            self._steps.append((statement, params, result))

    def give_up(self) -> None:
        """Something was done that cannot be done again."""
        self.is_repeatable = False
        self._steps.clear()

    def run(self, connection: SqlConnection, ends: Sequence[ParsedStatement], turn: threading.Lock) -> Result | None:
        """Run the transaction again, by the statements that begin and end one. Those that do so take turns.

        Returns what ending it gives; None if a statement gives something else now, or if it loses the race each time.
        """
        if not self.is_repeatable:
            return None
        begin, commit, rollback = ends
        with turn:
            for _ in range(_TRIES):
                connection.run(begin, ())
                try:
                    if not all(_same(told, connection.run(statement, params))
                               for statement, params, told in self._steps):
                        connection.run(rollback, ())
                        return None
                    return connection.run(commit, ())
                except SerializationError:
                    continue
                except SqlError:  # a statement fails now, which the client was not told
                    if connection.status != "I":
                        connection.run(rollback, ())
                    return None
        return None


def _same(told: Result, found: Result) -> bool:
    """Whether two answers are equal."""
    if (told.status, told.count, list(told.columns)) != (found.status, found.count, list(found.columns)):
        return False
    one, other = told.stored(), found.stored()
    if one is not None and other is not None:
        return [list(row) for row in one] == [list(row) for row in other]
    return not told.columns or told.typed().equals(found.typed())
