"""Rows as requests send them, lines of JSON or an Arrow stream, as columns of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ontolake.server.formats import ARROW, JSON, LINES
from ontolake.server.problems import RefusedError
from ontolake.server.tables.filters import read_value

if TYPE_CHECKING:
    import pyarrow as pa

TAKEN = (LINES, ARROW, JSON)
"""Media types of rows in requests; JSON is a list of objects, or one object."""
_OBJECTS = frozenset({LINES, "application/ndjson", "application/jsonl", JSON})
_EXACT = {"int64": int, "string": str, "bool": bool, "double": float}
"""By the name of an Arrow type: values of JSON that it takes as they are."""
_DECODER = msgspec.json.Decoder()


def decoded(body: bytes, media_type: str, types: Mapping[str, pa.DataType]) -> pa.Table:
    """The rows of a body. `types` has the columns that there are, with what readers get of them.

    Raises `RefusedError`: 400 for what is not the format, 415 for another one, 422 for a column or a value that does
    not fit, by its name.
    """
    kind = _kind(media_type)
    if kind in (ARROW, "application/vnd.apache.arrow"):
        found = _arrow(body)
    elif kind in _OBJECTS:
        found = _columns(_objects(body, kind == JSON), types)
    else:
        raise RefusedError(415, f"rows cannot be read from {media_type or 'a body without content-type'!r}",
                           hint=f"send {', '.join(TAKEN)}")
    if not found.num_rows:
        raise RefusedError(422, "the body has no rows")
    for name in found.column_names:
        if name not in types:
            raise RefusedError(422, f"there is no column {name!r}", hint=f"there are {', '.join(types)}")
    return found


def decoded_together(bodies: Iterable[tuple[bytes, str]], types: Mapping[str, pa.DataType]) -> pa.Table | None:
    """The rows of several bodies, each with its media type, as one table; None unless all are objects of the same
    columns. Raises `RefusedError` if any of them cannot be read."""
    rows: list[dict[str, Any]] = []
    for body, media_type in bodies:
        kind = _kind(media_type)
        found = _objects(body, kind == JSON) if kind in _OBJECTS else []
        if not found:
            return None
        rows += found
    names = rows[0].keys()
    return _columns(rows, types) if all(row.keys() == names for row in rows) else None


def _kind(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()


def _arrow(body: bytes) -> pa.Table:
    import pyarrow as pa

    try:
        with pa.ipc.open_stream(body) as stream:
            return stream.read_all()
    except (pa.ArrowException, OSError, EOFError) as error:
        raise RefusedError(400, f"the body is not an Arrow stream: {error}") from error


def _objects(body: bytes, whole: bool) -> list[dict[str, Any]]:
    try:
        found = _DECODER.decode(body) if whole else _DECODER.decode_lines(body)
    except msgspec.DecodeError as error:
        raise RefusedError(400, f"the body is not JSON: {error}") from error
    except UnicodeDecodeError as error:
        raise RefusedError(400, "the body is not UTF-8") from error
    rows = [found] if isinstance(found, dict) else found
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise RefusedError(422, "a row is an object of its columns")
    return rows


def _columns(rows: list[dict[str, Any]], types: Mapping[str, pa.DataType]) -> pa.Table:
    """Columns of all names that rows have; what a row does not say is missing in it."""
    import pyarrow as pa

    names = dict.fromkeys(name for row in rows for name in row)
    arrays = []
    for name in names:
        kind = types.get(name)
        if kind is None:
            raise RefusedError(422, f"there is no column {name!r}", hint=f"there are {', '.join(types)}")
        values = [row.get(name) for row in rows]
        exact = _EXACT.get(str(kind))
        for number, value in enumerate(values):
            if type(value) is not exact:
                try:
                    values[number] = _value(kind, value)
                except (ValueError, TypeError, ArithmeticError) as error:
                    raise RefusedError(422, f"row {number}, column {name!r}: {value!r} is not {kind}") from error
        try:
            arrays.append(pa.array(values, kind))
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise RefusedError(422, f"column {name!r}: {error}") from error
    return pa.table(arrays, names=list(names)) if names else pa.table({})


def _value(kind: pa.DataType, value: Any) -> Any:
    import pyarrow.types as types

    if value is None:
        return None
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        if not isinstance(value, list):
            raise TypeError
        return [_value(kind.value_type, one) for one in value]
    if isinstance(value, dict | list) and types.is_string(kind):  # JSON within JSON
        return msgspec.json.encode(value).decode()
    return read_value(kind, value)
