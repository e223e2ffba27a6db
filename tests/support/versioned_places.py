"""Stores with the whole contract for the tests of commands: one of each model that has joined, and the smallest one.

The smallest one is added to the table of models as a model of one's own would be. It lives in this process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw
from reference_store import STORES, TABLE, ReferenceAdapter

from ontolake import stores

MARK = "reference_store"


class VersionedPlace(NamedTuple):
    """A store, and how its model is called upon: `adapter` writes to it, `where` is its place for the adapter."""

    url: str
    where: str
    adapter: Any

    def write(self, branch: str, changes: Mapping[str, Any], message: str | None = None, author: str | None = None
              ) -> Any:  # fmt: skip
        with self.adapter.open(self.where) as store:
            return self.adapter.write(store, branch, changes, message=message, author=author)

    @property
    def table(self) -> str:
        return str(self.adapter.table)

    @property
    def first(self) -> str:
        return str(self.adapter.first)


def open(url: str, *, write: bool, branch: str | None) -> Any:
    """The opener of the smallest model."""
    return _opened(url.removeprefix("sqlite:///"))


@contextmanager
def _opened(where: str) -> Any:
    yield STORES[where]


def open_parallel(url: str, *, write: bool, branch: str | None, types: Iterable[Any]) -> Any:
    raise NotImplementedError


REFERENCE = stores.Model("reference", "a store of dictionaries", __name__, stores.MODELS[0].verbs | stores.HISTORY,
                         tables=(frozenset({MARK}),), trees=True)  # fmt: skip


def reference(folder: Path) -> VersionedPlace:
    where = f"{folder}/reference.db"
    db = apsw.Connection(where)
    db.execute(f"CREATE TABLE {MARK} (id)")
    db.close()
    ReferenceAdapter.create(where)
    assert ReferenceAdapter.table == TABLE
    return VersionedPlace(where, where, ReferenceAdapter)


def documents(folder: Path) -> VersionedPlace:
    from ontolake.documents.conformance import DocumentsAdapter

    where = f"{folder}/docs/ shop"
    DocumentsAdapter.create(where)
    return VersionedPlace(f"{folder}/docs/shop.sqlite", where, DocumentsAdapter)


def documents_on_pages(folder: Path) -> VersionedPlace:
    from ontolake.documents.conformance import DocumentsAdapter

    where = f"sqlite+file://{folder}/docs shop"
    DocumentsAdapter.create(where)
    return VersionedPlace(f"file://{folder}/docs/shop.db", where, DocumentsAdapter)


def sql(folder: Path) -> VersionedPlace:
    from ontolake.sql.conformance import SqlVersioning

    where = f"file://{folder}/tables.db"
    SqlVersioning.create(where)
    return VersionedPlace(where, where, SqlVersioning)


def sql_native(folder: Path) -> VersionedPlace:
    from ontolake.sql.conformance import SqlVersioning

    where = f"{folder}/tables.db"
    SqlVersioning.create(where)
    return VersionedPlace(where, where, SqlVersioning)


def graph(folder: Path) -> VersionedPlace:
    from ontolake.graph.conformance import GraphAdapter

    where = f"{folder}/graph/"
    GraphAdapter.create(where)
    return VersionedPlace(where, where, GraphAdapter)


def typed(folder: Path) -> VersionedPlace:
    from ontolake.ontology.conformance import TypedVersioning

    where = f"{folder}/typed.db"
    TypedVersioning.create(where)
    return VersionedPlace(where, where, TypedVersioning)


PLACES = {"reference": reference, "documents": documents, "documents on pages": documents_on_pages, "graph": graph,
          "sql": sql, "sql native": sql_native, "typed": typed}  # fmt: skip
