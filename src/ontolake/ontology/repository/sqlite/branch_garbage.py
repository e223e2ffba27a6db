"""Rows of deleted branches that nothing leads to any more: no branch, no tag, and no merge that is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ontolake import faults
from ontolake.history import Garbage
from ontolake.ontology.query.compiler.latest import BRANCH, quoted
from ontolake.ontology.repository.branched import reached
from ontolake.ontology.repository.sqlite.beside import write_transaction
from ontolake.ontology.repository.sqlite.columns import renew
from ontolake.ontology.repository.sqlite.tables import elsewhere, superseded
from ontolake.ontology.repository.times import now_text

if TYPE_CHECKING:
    from ontolake.ontology.repository.sqlite.v3 import SqliteRepositoryV3


def collect(repository: SqliteRepositoryV3, *, dry_run: bool) -> Garbage:
    """Remove these rows, or count them. Commits keep their ids, and say no more than that they were there."""
    if dry_run:
        with repository.reading():
            return Garbage(sum(_rows(repository, id, remove=False) for id in _unreachable(repository)), 0)
    repository.check_writable()
    with write_transaction(repository.db, repository.uri):
        removed = 0
        for id in _unreachable(repository):
            removed += _rows(repository, id, remove=True)
            repository.db.execute("UPDATE branches SET collected_at = ? WHERE id = ?", (now_text(), id))
            faults.reach("ontology: rows of a branch collected")
        if removed:
            renew(repository.db)
    if removed:
        repository.drop_columns()
    return Garbage(removed, 0)


def _unreachable(repository: SqliteRepositoryV3) -> list[int]:
    """The deleted branches that no lineage, no tag and no merge of a branch that is kept leads to."""
    bases: dict[int, int] = dict(repository.db.execute(
        "SELECT b.id, c.branch_id FROM branches AS b JOIN commits AS c ON c.id = b.base_commit_id"))
    merged: Any = repository.db.execute(
        "SELECT DISTINCT c.branch_id, m.branch_id FROM commits AS c JOIN commits AS m ON m.id = c.second_parent_id")
    leads: dict[int, set[int]] = {}
    for branch, other in [*merged, *bases.items()]:
        leads.setdefault(branch, set()).add(other)
    waiting = [row.id for row in repository.branch_rows()]
    waiting += [id for (id,) in repository.db.execute(
        "SELECT c.branch_id FROM tags AS t JOIN commits AS c ON c.id = t.commit_id")]
    kept = reached(waiting, leads)
    gone = repository.db.execute("SELECT id FROM branches WHERE deleted_at IS NOT NULL AND collected_at IS NULL")
    return [id for (id,) in gone if id not in kept]


def _rows(repository: SqliteRepositoryV3, branch: int, *, remove: bool) -> int:
    """How many rows a branch wrote; they go if they are to."""
    db, found = repository.db, 0
    tables: Any = db.execute("SELECT DISTINCT table_name FROM type_layout_catalog").fetchall()
    for (name,) in tables:
        table = f"main.{quoted(name)}"
        if not remove:
            found += int(db.execute(f"SELECT count(*) FROM {table} WHERE {BRANCH} = ?", (branch,)).get or 0)
            continue
        written = f"SELECT row_id FROM {table} WHERE {BRANCH} = ?1"
        db.execute(f"DELETE FROM {elsewhere(name)} WHERE branch_id = ?1 OR row_id IN ({written})", (branch,))
        db.execute(f"DELETE FROM {superseded(name)} WHERE row_id IN ({written})", (branch,))
        db.execute(f"DELETE FROM {table} WHERE {BRANCH} = ?", (branch,))
        found += db.changes()
    return found
