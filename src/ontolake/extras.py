"""Packages that only some installations have: which extra brings them, and the error that says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ontolake.errors import MissingExtra

EXTRAS = {
    "s3": {"obstore": "obstore"},
    "graph": {"lance": "pylance", "datafusion": "datafusion"},
    "sql": {"sqlglot": "sqlglot", "duckdb": "duckdb"},
    "sqlalchemy": {"sqlalchemy": "sqlalchemy"},
    "server": {"starlette": "starlette", "uvicorn": "uvicorn", "prometheus_client": "prometheus-client",
               "opentelemetry": "opentelemetry-api"},
    "client": {"urllib3": "urllib3"},
    "spark": {"pyspark": "pyspark", "py4j": "pyspark", "pandas": "pandas"},
}
"""For each extra the modules that it brings, with the packages that have them."""


@contextmanager
def needs(extra: str, what: str) -> Iterator[None]:
    """Raise `MissingExtra` if a module of an extra that is imported in the block is not installed. `what` needs it."""
    try:
        yield
    except ImportError as error:
        told = missing(error, extra, what)
        if told is None:
            raise
        raise told from error


def missing(error: BaseException, extra: str | None, what: str) -> MissingExtra | None:
    """What to raise if `error` is about a package of an extra, the given one or else any; None if it is about something
    else."""
    if not isinstance(error, ImportError):
        return None
    module = (error.name or "").partition(".")[0]
    if "PACKAGE_NOT_INSTALLED" in str(error):  # as PySpark says it
        module = "pandas"
    for one in (extra,) if extra in EXTRAS else EXTRAS:
        if module in EXTRAS[one]:
            return MissingExtra(what, EXTRAS[one][module], one)
    return None
