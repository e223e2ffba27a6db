"""Columns of types that only system tables have: numbers of objects, names, and vectors of numbers."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.sql.encodings.binaries import Block
from ontolake.sql.errors import UnsupportedError
from ontolake.sql.types.oids import BY_NAME, VECTORS


def system_column(column: pa.Array, format: int) -> pa.Array | Block:
    """Values as text (0) or binary (1). Raises `UnsupportedError` for names of objects in binary: PostgreSQL sends
    their numbers."""
    name, stored = column.type.type_name, column.storage
    if not format or name in ("name", "char"):
        return stored.cast(pa.string()).cast(pa.binary())
    if pa.types.is_integer(stored.type):
        numbers = np.asarray(pc.fill_null(stored, 0)).astype(">u4")
        return numbers.view(np.uint8).reshape(len(numbers), 4)
    if name in VECTORS:
        return pa.array([None if each is None else _vector(each, VECTORS[name]) for each in stored.to_pylist()],
                        pa.binary())  # fmt: skip
    raise UnsupportedError(f"{name} has no binary form here", hint="cast it to text or oid")


def _vector(text: str, item: str) -> bytes:
    known, numbers = BY_NAME[item], [int(each) for each in text.split()]
    code = {2: "h", 4: "I"}[known.size]
    body = b"".join(struct.pack(f">i{code}", known.size, each) for each in numbers)
    return struct.pack(">iiiii", 1, 0, known.oid, len(numbers), 0) + body
