"""Text, bytes, UUIDs, and JSON columns, which are no scalar but take the same places."""

from __future__ import annotations

import base64
import enum
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ontolake.model.scalars.base import UNFIT, Codec, Digits, Scalar, dump, json_text, sql_literal

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as Expression
    from pyspark.sql.types import DataType

_STANDARD = str.maketrans("-_", "+/")
_UUID = "^[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}$"


def plain_text(value: Any) -> str:
    """The text of a value, of an enum's value if it is a member."""
    value = value.value if isinstance(value, enum.Enum) else value
    return value if isinstance(value, str) else str(value)


class StrScalar(Scalar):
    name, python, codec = "str", str, Codec(None, None, frozenset({str}))
    wanted = "is not text"
    key = textual = sized = prunes = ranged = planned = arrow_checked = True
    json_sort = "text"
    json_ordered = True
    filter_types = (str,)
    lance_exact = (str,)
    lance_casts = lance_reads = True

    def json_writer(self) -> Callable[[Any], str]:
        return dump

    def arrow_fits(self, kind: pa.DataType) -> bool:
        import pyarrow.types as is_

        return bool(is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind))

    def arrow_valid(self, values: Any) -> bool:
        from ontolake.arrow_values import is_ascii

        if not is_ascii(values):
            values.validate(full=True)  # raises ArrowInvalid for what is not UTF-8
        return True

    def spark_value(self, given: Expression, kind: DataType, digits: Digits) -> tuple[Expression, Expression] | None:
        from pyspark.sql import functions as F

        return (given.cast("string"), F.lit(True)) if kind.typeName() in WHOLE else None

    def spark_parse(self, text: Expression, digits: Digits) -> tuple[Expression, Expression]:
        from pyspark.sql import functions as F

        return text, F.lit(True)

    def lance_value(self, value: Any) -> Any:
        return value.value if isinstance(value, enum.Enum) else value

    def lance_literal(self, value: Any) -> str:
        return sql_literal(value)


WHOLE = ("byte", "short", "integer", "long")
"""What Spark calls its whole numbers."""


class BytesScalar(Scalar):
    name, python, codec = "bytes", bytes, Codec(None, None, frozenset({bytes}))
    wanted = "is not base64"
    sqlite = "BLOB"
    sized = arrow_checked = True
    spark = "binary"
    lance_casts = lance_reads = True

    def to_json(self, value: Any) -> Any:
        return base64.b64encode(value).decode()

    def from_json(self, value: Any) -> Any:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else value

    def json_writer(self) -> Callable[[Any], str]:
        return lambda value: "null" if value is None else f'"{base64.b64encode(value).decode()}"'

    def fields_writer(self) -> Callable[[Any], str]:
        return lambda value: f'"{value.hex()}"'

    def from_fields(self, value: Any) -> Any:
        return bytes.fromhex(value) if isinstance(value, str) else None

    def fields_sql(self, value: str, kind: str) -> str:
        return f"unhex({value})"

    def arrow_fits(self, kind: pa.DataType) -> bool:
        import pyarrow.types as is_

        return bool(is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_binary_view(kind)
                    or is_.is_fixed_size_binary(kind))

    def spark_parse(self, text: Expression, digits: Digits) -> tuple[Expression, Expression]:
        from pyspark.sql import functions as F

        value = F.try_to_binary(F.trim(text), F.lit("base64"))
        return value, value.isNotNull()

    def spark_literal(self, value: Any) -> Any:
        return value

    def lance_value(self, value: Any) -> Any:
        # In either alphabet: rows are exported with the first, models write the second.
        return base64.b64decode(value.translate(_STANDARD), validate=True) if isinstance(value, str) else value

    def lance_json(self, value: Any) -> Any:
        return self.to_json(value)

    def lance_literal(self, value: Any) -> str:
        return sql_literal(value)


class UuidScalar(Scalar):
    name, python, codec = "UUID", UUID, Codec(str, UUID, frozenset({UUID}))
    wanted = "is not a UUID"
    key = json_ordered = True
    lance_form = re.compile(r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}")
    lance_casts = lance_reads = True

    def comparand(self, value: Any) -> Any:
        return str(UUID(value)) if isinstance(value, str) else UNFIT

    def json_writer(self) -> Callable[[Any], str]:
        return dump

    def spark_value(self, given: Expression, kind: DataType, digits: Digits) -> tuple[Expression, Expression] | None:
        return None

    def spark_parse(self, text: Expression, digits: Digits) -> tuple[Expression, Expression]:
        from pyspark.sql import functions as F

        plain = F.trim(text)
        bare = F.translate(plain, "ABCDEF-", "abcdef")
        parts = [F.substring(bare, start, size) for start, size in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))]
        return F.when(plain.isNotNull(), F.concat_ws("-", *parts)), plain.rlike(_UUID)

    def spark_literal(self, value: Any) -> Any:
        return str(value)

    def lance_value(self, value: Any) -> Any:
        return plain_text(value)

    def lance_json(self, value: Any) -> Any:
        return value

    def lance_literal(self, value: Any) -> str:
        return sql_literal(value)


class JsonScalar(Scalar):
    """What a column holds whose values are of no one scalar. Fields have codecs of their own, made of their types."""

    name, python, codec = "json", object, Codec(json_text, json.loads, None)
    wanted = "is not JSON"
    lance_casts = lance_reads = True

    def to_json(self, value: Any) -> Any:
        return json.loads(value)

    def from_json(self, value: Any) -> Any:
        return value

    def json_writer(self) -> Callable[[Any], str]:
        return lambda value: "null" if value is None else value

    def fields_writer(self) -> Callable[[Any], str]:
        return str

    def from_fields(self, value: Any) -> Any:
        return json_text(value)

    def spark_literal(self, value: Any) -> Any:
        return value

    def lance_value(self, value: Any) -> Any:
        from pydantic_core import to_jsonable_python

        return json_text(to_jsonable_python(value, bytes_mode="base64"))

    def lance_json(self, value: Any) -> Any:
        return value
