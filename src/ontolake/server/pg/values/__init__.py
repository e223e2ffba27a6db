"""Values on PostgreSQL's wire: rows of results as DataRow messages, their description, and parameters.

`codecs` has what a type is on the wire, `rows` writes results, `parameters` reads what clients send.
Formats are 0 for text and 1 for binary: none stands for text, one for all columns, else there is one a column.
"""

from ontolake.server.pg.values.codecs import WireCodec, codec_for
from ontolake.server.pg.values.parameters import decode_parameter
from ontolake.server.pg.values.rows import (
    column_formats,
    encode_rows,
    result_columns,
    row_blocks,
    row_description,
)

__all__ = [
    "WireCodec", "codec_for", "column_formats", "decode_parameter", "encode_rows", "result_columns",
    "row_blocks", "row_description",
]  # fmt: skip
