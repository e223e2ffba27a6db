"""The names of branches and tags in sqlite/v3, which change in write transactions that make no commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from ontolake import faults
from ontolake.history.names import is_name
from ontolake.ontology.repository.branched import BranchRow, Names, TagRow
from ontolake.ontology.repository.sqlite.beside import write_transaction
from ontolake.ontology.repository.times import now_text, parse_time

if TYPE_CHECKING:
    from ontolake.ontology.repository.sqlite.v3 import SqliteRepositoryV3

T = TypeVar("T")
_BRANCH = ("SELECT id, name, parent_id, base_commit_id, head_commit_id, protected, deleted_at IS NOT NULL, "
           "collected_at IS NOT NULL FROM branches")
_TAG = "SELECT name, commit_id, message, created_at FROM tags"


def branch_rows(db: apsw.Connection) -> list[BranchRow]:
    """The branches that live, in the order in which they were made."""
    return [_branch(row) for row in db.execute(f"{_BRANCH} WHERE deleted_at IS NULL ORDER BY id")]


def branch_named(db: apsw.Connection, name: str) -> BranchRow | None:
    """A branch that lives."""
    row = db.execute(f"{_BRANCH} WHERE name = ? AND deleted_at IS NULL", (name,)).fetchone() if is_name(name) else None
    return None if row is None else _branch(row)


def branch_row(db: apsw.Connection, id: int) -> BranchRow:
    """A branch, whether it lives or not."""
    return _branch(db.execute(f"{_BRANCH} WHERE id = ?", (id,)).fetchone())


def _branch(row: Any) -> BranchRow:
    return BranchRow(*row[:5], *map(bool, row[5:]))


def tag_rows(db: apsw.Connection) -> list[TagRow]:
    """All tags, by name."""
    return [_tag(row) for row in db.execute(f"{_TAG} ORDER BY name")]


def tag_named(db: apsw.Connection, name: str) -> TagRow | None:
    """A tag."""
    row = db.execute(f"{_TAG} WHERE name = ?", (name,)).fetchone() if is_name(name) else None
    return None if row is None else _tag(row)


def _tag(row: Any) -> TagRow:
    name, commit, message, at = row
    return TagRow(name, commit, message, parse_time(at))


def change_names(repository: SqliteRepositoryV3, change: Callable[[Names], T]) -> T:
    """Change names in one write transaction. Raises what `BranchedRepository.change_names` raises."""
    repository.check_writable()
    repository.db.get_autocommit()  # raises once closed
    with write_transaction(repository.db, repository.uri):
        found = change(SqliteNames(repository.db))
        faults.reach("ontology: names written, not yet durable")
    faults.reach("ontology: names durable")
    return found


class SqliteNames:
    """Changes names inside a transaction: a `Names`."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    def add_branch(self, name: str, parent_id: int, base: int) -> BranchRow:
        self._db.execute("INSERT INTO branches (name, parent_id, base_commit_id, head_commit_id, created_at) "
                         "VALUES (?, ?, ?, ?, ?)", (name, parent_id, base, base, now_text()))
        return branch_row(self._db, self._db.last_insert_rowid())

    def change_branch(
        self, id: int, *, name: str | None = None, protected: bool | None = None, deleted: bool = False
    ) -> None:  # fmt: skip
        self._db.execute("UPDATE branches SET name = coalesce(?, name), protected = coalesce(?, protected), "
                         "deleted_at = coalesce(?, deleted_at) WHERE id = ?",
                         (name, None if protected is None else int(protected), now_text() if deleted else None, id))

    def add_tag(self, name: str, commit: int, message: str | None) -> TagRow:
        moment = now_text()
        self._db.execute("INSERT INTO tags (name, commit_id, message, created_at) VALUES (?, ?, ?, ?)",
                         (name, commit, message, moment))
        return TagRow(name, commit, message, parse_time(moment))

    def drop_tag(self, name: str) -> bool:
        self._db.execute("DELETE FROM tags WHERE name = ?", (name,))
        return bool(self._db.changes())
