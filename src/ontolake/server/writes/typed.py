"""Commits groups of writes to typed stores."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ontolake.errors import OntolakeError
from ontolake.history import UnknownTableError
from ontolake.history.metadata import AUTHOR, MESSAGE
from ontolake.model.filters import FieldRef, ValueRef
from ontolake.model.types import TypeInfo
from ontolake.ontology.arrow.rows import keys_from_arrow, rows_from_arrow
from ontolake.ontology.commit import commit_difference
from ontolake.ontology.errors import HeadMismatchError, SchemaValidationError
from ontolake.ontology.intents import Intents
from ontolake.ontology.keys import decoded_key
from ontolake.ontology.query.plan import Plan, Values
from ontolake.ontology.repository.ranges import public_schema
from ontolake.ontology.versioned import table_of
from ontolake.server.writes.bodies import decoded, decoded_together
from ontolake.server.writes.requests import KeyExistsError, RowWrite, StaleHeadError, WriteFailure, WriteNote

if TYPE_CHECKING:
    import pyarrow as pa

_OWNER = uuid.uuid4().hex


def commit_rows(store: Any, branch: str, writes: Sequence[RowWrite], note: WriteNote) -> Any:
    """See `Committer`."""
    repository = store.repository
    types = {table_of(info): info for info in store.types}
    intents = Intents()
    fresh: list[tuple[int, TypeInfo, list[Any]]] = []
    alike = _declare_together(types, writes, intents)
    for place, write in enumerate(() if alike else writes):
        try:
            keys = _declare(types, write, intents)
        except Exception as error:
            raise WriteFailure(place, error) from error
        if keys is not None:
            fresh.append((place, types[write.table], keys))

    def check_inserts() -> None:
        """Nothing may be there that is to be inserted."""
        for place, info, keys in fresh:
            found = _present(repository, info, keys)
            if found:
                raise WriteFailure(place, KeyExistsError(table_of(info), decoded_key(info, min(found))))

    said = {AUTHOR: note.author, **({} if note.message is None else {MESSAGE: note.message}), **note.metadata}
    expected = None if note.expected is None else _number(note.expected)
    try:
        return commit_difference(repository, _OWNER, store.config, intents, said, expected_head=expected,
                                 check=check_inserts)
    except HeadMismatchError as error:
        if note.expected is None:
            raise
        raise StaleHeadError(branch, note.expected, repository.head()) from error


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1


def _declare_together(types: dict[str, TypeInfo], writes: Sequence[RowWrite], intents: Intents) -> bool:
    """Add what writes say at once, if all of them change rows of one type and no two the same row. Otherwise, or if
    one of them does not fit, returns False and adds nothing: then they are looked at one by one."""
    info = types.get(writes[0].table)
    if len(writes) < 2 or info is None or {(one.table, one.mode) for one in writes} != {(writes[0].table, "upsert")}:
        return False
    try:
        table = decoded_together(((one.body, one.media_type) for one in writes), _columns_of(info))
        rows, unique = ((), False) if table is None else rows_from_arrow(info, table)
    except OntolakeError:
        return False
    if unique:
        intents.add_unique(info, rows, unique)
    return unique


@lru_cache(256)
def _columns_of(info: TypeInfo) -> Mapping[str, pa.DataType]:
    """What readers get of the columns that can be written."""
    return {field.name: field.type for field in list(public_schema(info, "latest"))[: len(info.all_columns)]}


def _declare(types: dict[str, TypeInfo], write: RowWrite, intents: Intents) -> list[Any] | None:
    """Add what a write says. Returns the keys of rows that must be new. Raises what does not fit."""
    info = types.get(write.table)
    if info is None:
        raise UnknownTableError(write.table, types)
    table = decoded(write.body, write.media_type, _columns_of(info))
    if write.mode == "delete":
        intents.end(info, keys_from_arrow(info, table.select([one for one in table.column_names
                                                              if one in {key.stored for key in info.keys}])), False)
        return None
    rows, unique = rows_from_arrow(info, table)
    if not unique:
        raise SchemaValidationError("a key is there twice", type_name=info.name, hint="keep one row of each key")
    keys = [tuple(row[: len(info.keys)]) for row in rows] if write.mode == "insert" else None
    for key in keys or ():
        if intents.pending(info, key):
            raise KeyExistsError(write.table, decoded_key(info, key))
    intents.add_unique(info, rows, unique)
    return keys


def _present(repository: Any, info: TypeInfo, keys: Sequence[Any]) -> set[Any]:
    """Those of some stored keys that are there now."""
    found: set[Any] = set()
    places = [info.all_columns.index(column) for column in info.keys]
    field: FieldRef[Any] = FieldRef(ValueRef(info.cls, info.keys[0].name))
    leading = sorted({key[0] for key in keys})
    for start in range(0, len(leading), 5_000):
        condition = field.in_([info.keys[0].decode(one) for one in leading[start : start + 5_000]])
        for row in repository.run(Plan(info.cls, where=condition.shape), Values(condition.values)):
            found.add(tuple(row[place] for place in places))
    return found & set(keys)
