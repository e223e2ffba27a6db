"""The one place that says what the latest state of a row is: that of the highest commit, up to a bound.

The forms mean the same. Which is fast depends on what is known: nothing, which rows have a successor, or the key.
"""

from __future__ import annotations

from collections.abc import Sequence

OLD = '"~old"'
"""The column of staged rows that says where the latest row of the same key is."""


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
    bound = f" AND over.superseded_by <= {as_of}" if as_of else ""
    condition = f"NOT EXISTS (SELECT 1 FROM {superseded} AS over WHERE over.row_id = {alias}.rowid{bound})"
    return f"{alias}.commit_id <= {as_of} AND {condition}" if as_of else condition


def newest_of(alias: str, source: str, keys: Sequence[tuple[str, str]], as_of: str | None = None) -> str:
    """The same as a lookup, where the key is known: the commit of `alias` is the highest that its key has."""
    same = " AND ".join(f"newest.{quoted(key)} = {here}" for key, here in keys)
    bound = f" AND newest.commit_id <= {as_of}" if as_of else ""
    return f"{alias}.commit_id = (SELECT max(newest.commit_id) FROM {source} AS newest WHERE {same}{bound})"


def newest_row(source: str, keys: Sequence[tuple[str, str]]) -> str:
    """The place of the latest row of a key, as a scalar; NULL if there is none."""
    same = " AND ".join(f"{quoted(key)} = {here}" for key, here in keys)
    return f"(SELECT rowid FROM {source} WHERE {same} ORDER BY commit_id DESC LIMIT 1)"
