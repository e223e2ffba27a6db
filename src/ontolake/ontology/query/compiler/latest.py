"""The one place that says what the latest state of a row is: that of the highest commit, up to a bound.

The forms mean the same. Which is fast depends on what is known: nothing, which rows have a successor, or the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

OLD = '"~old"'
"""The column of staged rows that says where the latest row of the same key is."""


BRANCH = '"~branch"'
"""The column of a row, where a layout has branches, that says on which one it was written. No field is called so."""
DELETED = '"~deleted"'
"""The column, where a layout has deletions, that is 1 in a row that ends its key, a copy of the last state."""


class Segment(NamedTuple):
    """The commits of a branch up to one of them, or all."""

    branch: int
    until: int | None


class BranchLineage(NamedTuple):
    """What a branch sees: its own commits, those of its parent up to where it left that, and so on.

    Ids of commits grow along a lineage, so the latest row of a key is the visible one with the highest commit.
    """

    segments: tuple[Segment, ...]
    whole: int = 0
    """Every commit up to this one is seen, on whichever branch it was made. Ids grow, so that stays so."""

    def sees(self, branch: str, commit: str) -> str:
        """A condition on the branch and the commit of something, both SQL."""
        if not self.segments:
            return "1"
        # The oldest first: most rows are old, and one comparison settles them.
        parts = [f"{branch} = {one.branch}" + ("" if one.until is None else f" AND {commit} <= {one.until}")
                 for one in reversed(self.segments)]
        if len(parts) == 1:
            return parts[0]
        parts = [f"{commit} <= {self.whole}", *parts] if self.whole else parts
        return f"({' OR '.join(f'({part})' for part in parts)})"

    def sees_row(self, alias: str) -> str:
        """A condition on a row."""
        return self.sees(f"{alias}.{BRANCH}", f"{alias}.commit_id")

    def place_of(self, branch: int, commit: int) -> Segment | None:
        """The segment that has a commit of a branch; None if none has."""
        return next((one for one in self.segments if one.branch == branch
                     and (one.until is None or commit <= one.until)), None)  # fmt: skip


MAIN = BranchLineage((Segment(0, None),))
"""What the first branch sees."""
ALONE = BranchLineage(())
"""The same while there has never been another: nothing has to be asked of a row."""


def raw(key: str) -> str:
    """What a source calls the text of a key. No field's name begins like this."""
    return f"~{key}"


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Text as SQL has it."""
    parts = ["'" + part.replace("'", "''") + "'" for part in text.split("\0")]
    return parts[0] if len(parts) == 1 else f"({' || char(0) || '.join(parts)})"


def no_newer(alias: str, source: str, keys: Sequence[tuple[str, str]], as_of: str | None = None) -> str:
    """A condition on `alias`: no row of its key in `source` is newer. Keys are pairs of a column there and SQL here."""
    same = " AND ".join(f"newer.{quoted(key)} = {here}" for key, here in keys)
    bound = f" AND newer.commit_id <= {as_of}" if as_of else ""
    condition = (f"NOT EXISTS (SELECT 1 FROM {source} AS newer WHERE {same} "
                 f"AND newer.commit_id > {alias}.commit_id{bound})")
    return f"{alias}.commit_id <= {as_of} AND {condition}" if as_of else condition


def not_superseded(alias: str, superseded: str, as_of: str | None = None) -> str:
    """A condition on `alias`: `superseded`, a table of rows that have a successor, does not have it (yet)."""
    condition = _Successors(superseded, "over", f"over.superseded_by <= {as_of}" if as_of else None).none(alias)
    return f"{alias}.commit_id <= {as_of} AND {condition}" if as_of else condition


def not_superseded_on(
    alias: str, lineage: BranchLineage, tables: SuccessorTables, as_of: str | None = None, *, deletions: bool = True
) -> str:  # fmt: skip
    """The same on a lineage: visible, without a visible successor, and no deletion.

    Without `deletions` there are none to leave out.
    """
    seen = _seen(alias, lineage, as_of, deletions=deletions)
    return " AND ".join([*seen, *(one.none(alias) for one in _successors(lineage, tables, as_of))])


def scan_on(
    alias: str, source: str, lineage: BranchLineage, tables: SuccessorTables, as_of: str | None = None, *,
    deletions: bool = True, filtered: bool = False,
) -> tuple[str, str]:  # fmt: skip
    """The same for a statement that looks at all rows: what to read from, and the condition.

    A join finds successors with one cursor for all rows, in the order of the rows. Those on other branches than the
    first are listed once; there are no more of them than rows to look at. That does not pay if the statement is
    `filtered`, so that few rows come to be asked for a successor.
    """
    conditions = _seen(alias, lineage, as_of, deletions=deletions)
    for one in _successors(lineage, tables, as_of):
        if one.counts is None:  # what most rows with a successor fail at comes before what all rows pass
            conditions.insert(len(conditions) - bool(lineage.segments), one.none(alias))
        elif filtered or one.table == tables.first:
            same = f"{one.name}.row_id = {one.row(alias) if filtered else f'{alias}.rowid'}"
            source = f"{source} LEFT JOIN {one.table} AS {one.name} ON {same} AND {one.counts}"
            conditions.append(f"{one.name}.row_id IS NULL")
        else:
            listed = f"SELECT {one.name}.row_id FROM {one.table} AS {one.name} WHERE {one.counts}"
            conditions.append(f"CASE WHEN {alias}.rowid IN ({listed}) THEN 0 ELSE 1 END")
    return source, " AND ".join(conditions)


class SuccessorTables(NamedTuple):
    """The tables of those rows of a table that have a successor on the first branch, and on others."""

    first: str
    others: str


class _Successors(NamedTuple):
    """A table of rows that have a successor, and which of its entries count: a condition on `name`, or None for all."""

    table: str
    name: str
    counts: str | None
    until: int | None = None
    """Entries of later commits do not count, whatever else is asked."""

    def row(self, alias: str) -> str:
        """The row of `alias` to look for; NULL, which is not looked for, if its successor would come too late."""
        return f"{alias}.rowid" if self.until is None else \
            f"CASE WHEN {alias}.commit_id < {self.until} THEN {alias}.rowid END"

    def none(self, alias: str) -> str:
        """A condition on `alias`: no entry of it counts.

        Where all entries count, `IN` looks for one in the table's own tree with one cursor for all rows. `EXISTS` opens
        one for each.
        """
        if self.counts is None:
            return f"{alias}.rowid NOT IN (SELECT row_id FROM {self.table})"
        return (f"NOT EXISTS (SELECT 1 FROM {self.table} AS {self.name} WHERE {self.name}.row_id = {alias}.rowid AND "
                f"{self.counts})")


def _seen(alias: str, lineage: BranchLineage, as_of: str | None, *, deletions: bool) -> list[str]:
    """Conditions on a row: it is part of the lineage, up to a bound, and no deletion."""
    return [*([f"NOT {alias}.{DELETED}"] if deletions else []), *([f"{alias}.commit_id <= {as_of}"] if as_of else []),
            *([lineage.sees_row(alias)] if lineage.segments else [])]  # fmt: skip


def _successors(lineage: BranchLineage, tables: SuccessorTables, as_of: str | None) -> list[_Successors]:
    """The tables that have successors on a lineage."""
    found: list[_Successors] = []
    first = next((one for one in lineage.segments or MAIN.segments if not one.branch), None)
    if first is not None:
        bounds = [str(one) for one in (first.until, as_of) if one is not None]
        counts = " AND ".join(f"over.superseded_by <= {bound}" for bound in bounds)
        found.append(_Successors(tables.first, "over", counts or None, first.until))
    others = BranchLineage(tuple(one for one in lineage.segments if one.branch))
    if others.segments:
        counts = others.sees("aside.branch_id", "aside.superseded_by")
        counts += f" AND aside.superseded_by <= {as_of}" if as_of else ""
        found.append(_Successors(tables.others, "aside", counts))
    return found


def newest_of(
    alias: str, source: str, keys: Sequence[tuple[str, str]], as_of: str | None = None,
    lineage: BranchLineage | None = None, *, deletions: bool = True,
) -> str:  # fmt: skip
    """The same as a lookup, where the key is known: the commit of `alias` is the highest that its key has."""
    same = " AND ".join(f"newest.{quoted(key)} = {here}" for key, here in keys)
    bound = f" AND newest.commit_id <= {as_of}" if as_of else ""
    if lineage is not None and (lineage.segments or deletions):
        newest = (f"SELECT newest.commit_id FROM {source} AS newest WHERE {same} AND "
                  f"{lineage.sees_row('newest')}{bound} ORDER BY newest.commit_id DESC LIMIT 1")
        return f"{alias}.commit_id = ({newest})" + (f" AND NOT {alias}.{DELETED}" if deletions else "")
    return f"{alias}.commit_id = (SELECT max(newest.commit_id) FROM {source} AS newest WHERE {same}{bound})"


def newest_row(source: str, keys: Sequence[tuple[str, str]], lineage: BranchLineage | None = None) -> str:
    """The place of the latest row of a key, a deletion or not, as a scalar; NULL if there is none."""
    same = " AND ".join(f"{quoted(key)} = {here}" for key, here in keys)
    seen = "" if lineage is None or not lineage.segments else f" AND {lineage.sees(BRANCH, 'commit_id')}"
    return f"(SELECT rowid FROM {source} WHERE {same}{seen} ORDER BY commit_id DESC LIMIT 1)"
