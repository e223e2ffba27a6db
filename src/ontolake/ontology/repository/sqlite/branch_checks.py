"""What can be wrong with the branches of sqlite/v3: commits, heads, tags, and which row replaced which."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import apsw

from ontolake.history import Damage
from ontolake.model.stored import StoredType
from ontolake.ontology.query.compiler.latest import BRANCH, newest_of, not_superseded_on, quoted
from ontolake.ontology.query.compiler.statements import key_columns
from ontolake.ontology.repository.sqlite.tables import successors

if TYPE_CHECKING:
    from ontolake.ontology.repository.sqlite.v3 import SqliteRepositoryV3

_SHOWN = 5


def check_branches(repository: SqliteRepositoryV3) -> Iterator[Damage]:
    """Damage in how commits, branches, tags and rows refer to each other."""
    db = repository.db
    yield from _told(db, "SELECT id FROM commits WHERE branch_id NOT IN (SELECT id FROM branches)", "commit",
                     "it is on a branch that is not there")
    for column in ("parent_id", "second_parent_id"):
        yield from _told(db, f"SELECT id FROM commits WHERE {column} NOT IN (SELECT id FROM commits) "
                             f"OR {column} >= id", "commit", "its parent is not there or came later")
    yield from _told(db, "SELECT name FROM branches AS b WHERE head_commit_id IS NOT (SELECT coalesce(max(id), "
                         "b.base_commit_id) FROM commits WHERE branch_id = b.id)", "branch",
                     "its head is not its last commit")
    yield from _told(db, "SELECT name FROM branches WHERE base_commit_id <> 0 AND base_commit_id NOT IN "
                         "(SELECT id FROM commits)", "branch", "it begins at a commit that is not there")
    yield from _told(db, "SELECT name FROM tags WHERE commit_id NOT IN (SELECT id FROM commits)", "tag",
                     "its commit is not there")
    yield from _told(db, "SELECT type_name FROM type_layout_catalog AS c GROUP BY type_kind, type_name, branch_id "
                         "HAVING sum(is_current) > 1 OR (sum(is_current) = 0 AND EXISTS (SELECT 1 FROM schema_registry "
                         "AS r WHERE r.type_kind = c.type_kind AND r.type_name = c.type_name))", "catalog, type",
                     "a branch has no current version of it, or several")
    for kind, name in sorted({*repository.schemas(), *repository.dropped()}):
        for version in repository.every_version(kind, name):
            table: Any = db.execute("SELECT table_name FROM type_layout_catalog WHERE type_kind = ? AND type_name = ? "
                                    "AND schema_version_id = ? LIMIT 1", (kind, name, version.schema_version_id)).get
            if table is not None:
                yield from _rows(repository, str(table), StoredType(version.schema))


def _told(db: apsw.Connection, sql: str, what: str, problem: str) -> Iterator[Damage]:
    rows: Any = db.execute(f"{sql} LIMIT {_SHOWN}")
    yield from (Damage(f"{what} {name}", problem) for (name,) in rows.fetchall())


def _rows(repository: SqliteRepositoryV3, table: str, stored: StoredType) -> Iterator[Damage]:
    """Rows are on the branches of their commits, and both ways to find the latest ones agree on every branch."""
    db, name, keys = repository.db, f"main.{quoted(table)}", key_columns(stored)
    try:
        yield from _told(db, f"SELECT t.row_id FROM {name} AS t WHERE t.{BRANCH} IS NOT (SELECT branch_id FROM commits "
                             "WHERE id = t.commit_id)", f"row of {table}", "it is not on the branch of its commit")
        for branch in repository.branch_rows():
            lineage = repository.on(branch.id).lineage
            scanned = not_superseded_on("t", lineage, successors(table))
            looked_up = newest_of("t", name, [(key, f"t.{key}") for key in keys], None, lineage)
            for only, other in ((scanned, looked_up), (looked_up, scanned)):
                yield from _told(db, f"SELECT t.row_id FROM {name} AS t WHERE {only} EXCEPT SELECT t.row_id FROM "
                                     f"{name} AS t WHERE {other}", f"row of {table}",
                                 f"on branch {branch.name} the index and the successors tell different latest rows")
        for over in successors(table):
            yield from _told(db, f"SELECT row_id FROM {over} WHERE row_id NOT IN (SELECT row_id FROM {name})",
                             f"row of {over}", "it tells the successor of a row that is not there")
    except apsw.SQLError as error:
        yield Damage(f"table {table}", str(error))
