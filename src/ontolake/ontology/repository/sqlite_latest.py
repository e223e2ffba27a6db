"""The one place that says what the latest state of a row is: that of the highest commit, up to a bound."""

from __future__ import annotations

from collections.abc import Sequence


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Text as SQL has it."""
    parts = ["'" + part.replace("'", "''") + "'" for part in text.split("\0")]
    return parts[0] if len(parts) == 1 else f"({' || char(0) || '.join(parts)})"


def is_latest(alias: str, source: str, keys: Sequence[str], as_of: str | None = None) -> str:
    """A condition on `alias`, a row of `source`: no other row of its key is newer. `as_of` is SQL for the bound."""
    same = " AND ".join(f"newer.{quoted(key)} = {alias}.{quoted(key)}" for key in keys)
    bound = f" AND newer.commit_id <= {as_of}" if as_of else ""
    condition = (f"NOT EXISTS (SELECT 1 FROM {source} AS newer WHERE {same} "
                 f"AND newer.commit_id > {alias}.commit_id{bound})")
    return f"{alias}.commit_id <= {as_of} AND {condition}" if as_of else condition
