"""SQL tables on an ordered keyspace: every row and index entry is a key with versions.

`open_database(url)` gives a `Database`; `ontolake.sql.dbapi` the same as a DB-API 2.0 module, whose connections have
`shared_databases`, and `sqlalchemy/` a dialect of SQLAlchemy.

`database` runs statements and gives `results`, or `row_streams` of queries, `descriptions` says what they take and
give; `naming` what names mean, `version_names` what versions are called; `types` are those of columns.
`sessions` gives each thread one of `transactions`, which has `connections`; a `sql_connection` (by `connecting`) has
one of its own and belongs to no thread; `transaction_state` is what a transaction has done, `validation` whether it may
commit, `writer_queue` who may write next, `cancellation` ends statements, and `failures` turns SQLite's errors into
ours. `syntax/` is the text of statements, `catalog/` what tables there are,
`plan/` queries, `executor/` what DuckDB does for them, `pg_catalog/` system tables, `write/` changes, which
`row_changes` runs; `mounts` are schemas that other stores keep;
`copy/` files, `encodings/` values in PostgreSQL's formats, `commands/` what belongs to a
session, `keyspace/` where rows live, `history/` branches, merges and the past. `maintenance` checks and removes,
`errors` is what can go wrong. `store`, `parallel` and `splits` are for `ontolake.stores` and workers, `conformance`
for the suite of history.
"""

from ontolake.errors import LayoutError
from ontolake.extras import needs

with needs("sql", "ontolake.sql"):
    from ontolake.sql.database import Database, open_database
    from ontolake.sql.errors import (
        CheckError,
        ConstraintViolation,
        DataError,
        DefinitionError,
        DuplicateNameError,
        ForeignKeyError,
        NotNullError,
        SerializationError,
        SqlError,
        SqlSyntaxError,
        TransactionError,
        TypeMismatchError,
        UniqueError,
        UnknownNameError,
        UnsupportedError,
    )
    from ontolake.sql.results import Result
    from ontolake.sql.row_streams import RowStream
    from ontolake.sql.sql_connection import SqlConnection

ConstraintError = ConstraintViolation
"""The name that `ConstraintViolation` had before; that of graphs is another class."""

__all__ = [
    "CheckError",
    "ConstraintError",
    "ConstraintViolation",
    "DataError",
    "Database",
    "DefinitionError",
    "DuplicateNameError",
    "ForeignKeyError",
    "LayoutError",
    "NotNullError",
    "Result",
    "RowStream",
    "SerializationError",
    "SqlConnection",
    "SqlError",
    "SqlSyntaxError",
    "TransactionError",
    "TypeMismatchError",
    "UniqueError",
    "UnknownNameError",
    "UnsupportedError",
    "open_database",
]
