"""SQLAlchemy's way in: the dialect of `ontolake://`, which runs in this process over the DB-API module.

`ontolake:///shop.db` is a file, `ontolake://` tables in memory, `ontolake://?url=s3://bucket/shop` any other URL. What
else stands behind the question mark, such as `branch=try`, are options of `sql.open_database()`.

`dialect` is the dialect, `reflection` what its inspector reads in the catalog, `types` are its types.
"""

from ontolake.extras import needs

with needs("sqlalchemy", "ontolake.sql.sqlalchemy"):
    from ontolake.sql.sqlalchemy.dialect import OntolakeDialect as OntolakeDialect

__all__ = ["OntolakeDialect"]
