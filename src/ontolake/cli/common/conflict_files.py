"""Conflicts as a table and as a file in which people decide, and the decisions that are read back from it.

A file is one JSON document with a list `conflicts`; each entry names a table, a key and a field, shows what both sides
have, and has a `take`: null until it is decided, then `"ours"`, `"theirs"`, `"base"` or `{"value": …}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ontolake.cli.common.output import Heading
from ontolake.cli.common.values import cell, key_cell, key_like, plain
from ontolake.errors import Invalid, NotFound, OntolakeError

if TYPE_CHECKING:
    from ontolake.history import Conflict, Resolution, Snapshot

COLUMNS = (Heading("table", whole=True), Heading("key"), Heading("field"), Heading("kind", whole=True), Heading("base"),
           Heading("ours"), Heading("theirs"))
_HINT = 'an entry is {"table": …, "key": …, "field": …, "take": "ours", "theirs", "base" or {"value": …}}'


def conflict_row(conflict: Conflict) -> Sequence[Any]:
    """A line of the table of conflicts."""
    return (conflict.table, None if conflict.key is None else key_cell(conflict.key), conflict.field,
            conflict.kind.value, *(None if value is None else cell(value)
                                   for value in (conflict.base, conflict.ours, conflict.theirs)))  # fmt: skip


def rule_text(conflict: Conflict) -> str | None:
    """Which rule a row breaks, and with which other rows; None for a conflict that its values explain."""
    from ontolake.history import ConflictKind

    if conflict.kind in (ConflictKind.DIVERGENT_INSERT, ConflictKind.DIVERGENT_UPDATE, ConflictKind.DELETE_UPDATE):
        return None
    where = conflict.table if conflict.key is None else f"{conflict.table} {key_cell(conflict.key)}"
    others = ", ".join(f"{table} {key_cell(key)}" for table, key in conflict.rows)
    return f"{where}: {conflict.detail}" + (f" (with {others})" if others else "")


def conflict_facts(conflict: Conflict) -> dict[str, Any]:
    """A conflict under the names that `--json` and `--conflicts` print."""
    return {"table": conflict.table, "key": plain(conflict.key), "field": conflict.field, "kind": conflict.kind.value,
            "base": plain(conflict.base), "ours": plain(conflict.ours), "theirs": plain(conflict.theirs),
            "detail": conflict.detail, "rows": [[table, plain(key)] for table, key in conflict.rows]}  # fmt: skip


def write_conflicts(path: str, conflicts: Iterable[Conflict], decided: Sequence[Any] = ()) -> None:
    """Write conflicts to be decided, behind entries that are decided already. Raises `StorageError`."""
    from ontolake.cli.common.rows import redirected

    entries = [*decided, *({**conflict_facts(conflict), "take": None} for conflict in conflicts)]
    with redirected(path):
        print(json.dumps({"conflicts": entries}, indent=2, ensure_ascii=False))


def read_entries(path: str) -> list[Any]:
    """The entries of a file of decisions. Raises `Invalid` if it cannot be read or is not one."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise Invalid(f"{path!r} cannot be read: {error.strerror or error}",
                      hint="onto merge --conflicts FILE writes one") from error
    except ValueError as error:
        raise Invalid(f"{path!r} is not JSON: {error}", hint="onto merge --conflicts FILE writes one") from error
    entries = document.get("conflicts") if isinstance(document, Mapping) else document
    if not isinstance(entries, list):
        raise Invalid(f"{path!r} has no list of conflicts", hint=_HINT)
    return entries


def decided(entries: Sequence[Any]) -> list[Any]:
    """The entries that say what to take."""
    return [one for one in entries if not (isinstance(one, Mapping) and "take" in one and one["take"] is None)]


def resolutions(path: str, entries: Sequence[Any], snapshot: Callable[[], Snapshot[Any]]) -> list[Resolution]:
    """The decisions of a file; entries whose `take` is null are left open.

    Keys get the types that keys of their tables have at a snapshot. Raises `Invalid`, which names the entry.
    """
    from ontolake.history import Resolution

    examples: dict[str, Any] = {}
    found: list[Resolution] = []
    for number, entry in enumerate(entries, 1):
        try:
            if not isinstance(entry, Mapping):
                raise Invalid(f"{entry!r} is not an object", hint=_HINT)
            if entry.get("take", "") is None:
                continue
            if not isinstance(entry.get("field"), str | None):
                raise Invalid(f"the field {entry['field']!r} is not text", hint=_HINT)
            one = Resolution.parse(entry)
            if one.table not in examples:
                examples[one.table] = _example(snapshot(), one.table)
            if examples[one.table] is not None and one.key is not None:
                one = one._replace(key=key_like(examples[one.table], one.key, one.table))
            found.append(one)
        except OntolakeError as error:
            raise Invalid(f"entry {number} of {path!r}{_where(entry)}: {error.message}",
                          hint=_HINT if "take" in (error.hint or "take") else error.hint) from error
    return found


def _where(entry: Any) -> str:
    if not isinstance(entry, Mapping) or "table" not in entry:
        return ""
    field = f", field {entry['field']}" if entry.get("field") else ""
    return f" ({entry['table']} {json.dumps(entry.get('key'))}{field})"


def _example(snapshot: Snapshot[Any], table: str) -> Any:
    try:
        return next((key for key, _ in snapshot.rows(table)), None)
    except NotFound:
        return None
