"""What users write for a version: its number, a time, a tag or another reference."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from ontolake.errors import Invalid, NotFound
from ontolake.history import Ref
from ontolake.sql.errors import SqlError
from ontolake.sql.types import TIMESTAMPTZ

if TYPE_CHECKING:
    from ontolake.sql.database import Database


def version_of(self: Database, moment: Any) -> int:
    """The version that is meant. Raises `SqlError` if it cannot be read."""
    session = self.session
    if isinstance(moment, int) and not isinstance(moment, bool):
        return session.check_version(moment)
    if isinstance(moment, str) and not moment[:1].isdigit():
        return _named(self, moment)
    if not isinstance(moment, str | date) and type(moment).__name__ != "datetime64":
        raise SqlError(f"{moment!r} is neither a version nor a time", sqlstate="22023")
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    stored = TIMESTAMPTZ.store(moment)
    assert isinstance(stored, int)
    return session.check_version(session.version_at(stored))


def _named(self: Database, text: str) -> int:
    """The version that a tag or another reference names. Raises `SqlError` if this branch does not have it."""
    with self._references() as references:
        try:
            node = references.resolve(Ref.parse(text)).commit
        except (NotFound, Invalid) as error:
            raise SqlError(f"{text!r} is neither a time nor a tag or commit: {error.message}",
                           sqlstate="22023") from error
        if not references.lines.has(self.session.line, node):
            raise SqlError(f"{text!r} names a commit that the branch {self.branch} does not have",
                           sqlstate="22023", hint="open the branch that has it, or use at()")
    return self.session.check_version(node[1])
