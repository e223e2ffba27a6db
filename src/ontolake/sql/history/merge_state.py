"""The merge under way on a branch, kept in the database: what was called, and what was decided about its conflicts.

The conflicts themselves are worked out anew whenever they are looked at. So nothing of rows is kept but the values that
a user gave: a decision is kept by a salted hash of its conflict, and holds for as long as the conflict is the same.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

from ontolake import faults
from ontolake.errors import Corruption
from ontolake.history import Conflict, Resolution, Value
from ontolake.sql.transactions import SqlSession

MERGE, REVERT = "merge", "revert"

_NAME = "merging"
_TABLE = f"""CREATE TABLE IF NOT EXISTS {_NAME} (
  line INTEGER NOT NULL PRIMARY KEY, -- the id of the branch that is changed
  verb TEXT NOT NULL, -- merge, revert
  source TEXT NOT NULL, -- what is merged or reverted, as JSON
  salt TEXT NOT NULL,
  decisions TEXT NOT NULL -- a JSON object: what settles a conflict, by its hash
)"""


class MergeState(NamedTuple):
    """A call that left conflicts, and what was decided since."""

    verb: str
    source: str | int
    salt: str
    decisions: Mapping[str, Any]

    @classmethod
    def of(cls, verb: str, source: str | int) -> MergeState:
        """The state of a call after which nothing is decided yet."""
        return cls(verb, source, secrets.token_hex(16), {})

    @property
    def title(self) -> str:
        """What is merged, for people."""
        return f"revert of {self.source}" if self.verb == REVERT else str(self.source)

    def is_of(self, verb: str, source: str | int) -> bool:
        """Whether it is the state of this call."""
        return (self.verb, self.source) == (verb, source)

    def resolution(self, conflict: Conflict) -> Resolution | None:
        """What was decided about a conflict."""
        found = self.decisions.get(self._hash(conflict))
        if found is None:
            return None
        take = Value(found["value"]) if isinstance(found, dict) else found
        return Resolution(conflict.table, conflict.key, conflict.field, take)

    def decided(self, conflict: Conflict, resolution: Resolution | None) -> MergeState:
        """The state after a decision, or after one was taken back."""
        decisions = {hash: take for hash, take in self.decisions.items() if hash != self._hash(conflict)}
        if resolution is not None:
            take = resolution.take
            decisions[self._hash(conflict)] = {"value": take.value} if isinstance(take, Value) else take
        return self._replace(decisions=decisions)

    def _hash(self, conflict: Conflict) -> str:
        return hashlib.sha256((self.salt + json.dumps(conflict[:7], default=repr)).encode()).hexdigest()


def stored(session: SqlSession) -> MergeState | None:
    """The merge under way on the branch of a session; None if there is none. Raises `Corruption`."""
    with session.reading():
        if not is_kept(session):
            return None
        row: Any = session.connection.execute(
            f"SELECT verb, source, salt, decisions FROM {_NAME} WHERE line = ?", (session.line,)).fetchone()
    if row is None:
        return None
    verb, source, salt, decisions = row
    try:
        return MergeState(verb, json.loads(source), salt, json.loads(decisions))
    except ValueError as error:
        raise Corruption(f"the merge under way on {session.branch} cannot be read") from error


def store(session: SqlSession, state: MergeState | None) -> None:
    """Keep the merge under way on the branch of a session, or that there is none. Makes no commit.

    Raises `TransactionError` within a transaction and for a session that only reads.
    """
    with session.writing("-- merging"):
        session.connection.execute(_TABLE)
        session.connection.execute(f"DELETE FROM {_NAME} WHERE line = ?", (session.line,))
        if state is not None:
            session.connection.execute(
                f"INSERT INTO {_NAME} VALUES (?, ?, ?, ?, ?)",
                (session.line, state.verb, json.dumps(state.source), state.salt,
                 json.dumps(dict(state.decisions), default=str)))  # fmt: skip
        faults.reach("sql: merge under way written")
        session.keep()


def is_kept(session: SqlSession) -> bool:
    """Whether a merge has ever been under way. Inside a transaction."""
    return session.connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (_NAME,)).fetchone() is not None


def forget(session: SqlSession) -> None:
    """Remove all that was decided, with the values that were given. Inside a transaction that writes."""
    if is_kept(session):
        session.connection.execute(f"DELETE FROM {_NAME}")
