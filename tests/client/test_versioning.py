"""The suite of history against a live server: what every model promises on a file, its client promises over HTTP.

Random histories are few here; `ONTO_REMOTE_HISTORIES` sets how many are played of each model. Processes are killed by
the suites of the models themselves: a client has no files that a crash could damage.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from serving import Served, serving

import ontolake
from ontolake.documents.conformance import DocumentsAdapter
from ontolake.graph.conformance import GraphAdapter, SuiteRecord
from ontolake.history.conformance import VersioningAdapter, VersioningConformance
from ontolake.history.conformance.base import Fresh
from ontolake.history.conformance.oracle import Record
from ontolake.ontology import Session
from ontolake.ontology.conformance import Recorded, TypedVersioning
from ontolake.server.handles import ServedStore
from ontolake.server.rights import Principal, TokenScope
from ontolake.sql.conformance import SqlVersioning

HISTORIES = int(os.environ.get("ONTO_REMOTE_HISTORIES", "1"))
ADA = Principal("ada", TokenScope.ADMIN)
NUMBERS = itertools.count()
TOKEN = "ada-secret"


class RemoteAdapter(VersioningAdapter):
    """A store of a model behind the server of this test; `where` is `URL place`, the URL for clients and the place of
    the store for the server."""

    local: ClassVar[type[VersioningAdapter]]
    served: ClassVar[Served]

    @classmethod
    def create(cls, where: str) -> None:
        url, _, place = where.partition(" ")
        cls.local.create(place)
        name = url.rpartition("/")[2]
        cls.served.server.stores.add(ServedStore(name, cls.target(place)))

    @classmethod
    def target(cls, place: str) -> str:
        """The URL that the server opens."""
        return place

    @classmethod
    def open(cls, where: str, *, readonly: bool = False) -> AbstractContextManager[Any]:
        return ontolake.open(where.partition(" ")[0], write=not readonly, token=TOKEN)

    @classmethod
    def stored(cls, where: str) -> Any:
        return cls.local.stored(where.partition(" ")[2])


class RemoteDocuments(RemoteAdapter):
    local = DocumentsAdapter
    table = DocumentsAdapter.table
    write = DocumentsAdapter.write
    field = DocumentsAdapter.field

    @classmethod
    def target(cls, place: str) -> str:
        folder, _, name = place.rpartition(" ")
        return f"{folder}/{name}.sqlite"


class RemoteGraphs(RemoteAdapter):
    local = GraphAdapter
    table = GraphAdapter.table

    @classmethod
    def write(
        cls, store: Any, branch: str, changes: Mapping[str, Record | None], *, message: str | None = None,
        author: str | None = None,
    ) -> Any:  # fmt: skip
        with store.transaction(branch=branch, actor=author, message=message) as transaction:
            transaction.load(SuiteRecord, [{"id": key, **row} for key, row in changes.items() if row is not None])
            gone = [key for key, row in changes.items() if row is None]
            if gone:
                transaction.delete(SuiteRecord, gone)
        return transaction.commit.id if transaction.commit is not None else store.snapshot(branch=branch).commit


class RemoteSql(RemoteAdapter):
    local = SqlVersioning
    table = SqlVersioning.table

    @classmethod
    def write(
        cls, store: Any, branch: str, changes: Mapping[str, Record | None], *, message: str | None = None,
        author: str | None = None,
    ) -> Any:  # fmt: skip
        if not store.connection.write or branch == store.branch:
            return cls._written(store, branch, changes, message)
        with ontolake.open(store.url, write=True, branch=branch, token=TOKEN) as other:
            return cls._written(other, branch, changes, message)

    @classmethod
    def _written(cls, store: Any, branch: str, changes: Mapping[str, Record | None], message: str | None) -> Any:
        def number(value: int | None) -> str:
            return "NULL" if value is None else str(value)

        store.execute(";".join(
            f"DELETE FROM {cls.table} WHERE id = '{key}'" if row is None else
            f"INSERT INTO {cls.table} VALUES ('{key}', {number(row['f'])}, {number(row['g'])}) "
            "ON CONFLICT (id) DO UPDATE SET f = excluded.f, g = excluded.g"
            for key, row in changes.items()), message=message)  # fmt: skip
        return store.snapshot(branch=branch).commit


class RemoteTyped(RemoteAdapter):
    local = TypedVersioning
    table = TypedVersioning.table

    @classmethod
    def write(
        cls, store: Any, branch: str, changes: Mapping[str, Record | None], *, message: str | None = None,
        author: str | None = None,
    ) -> Any:  # fmt: skip
        store.repository.head()  # raises once closed
        config = {"connect": {"token": TOKEN}, "readonly": store.config.readonly}
        session = Session(store.url, entity_types=[Recorded], branch=branch, config=config)
        try:
            for key, row in changes.items():
                if row is None:
                    session.delete(Recorded, key)
                else:
                    session.ensure(Recorded(id=key, f=row["f"], g=row["g"]))
            commit = session.commit(message=message, author=author)
            return session.repository.head() if commit is None else commit
        finally:
            session.close()


@pytest.fixture(scope="module", autouse=True)
def served() -> Iterator[Served]:
    with serving({}, (ADA,)) as found:
        RemoteAdapter.served = found
        yield found


class RemoteSuite(VersioningConformance):
    """What all four have in common."""

    machine_runs = HISTORIES
    machine_steps = 15
    processes = False
    ending = ""

    @pytest.fixture
    def fresh(self, served: Served, tmp_path: Path) -> Fresh:
        numbers = itertools.count()
        local: type[VersioningAdapter] = self.adapter.local  # type: ignore[attr-defined]
        return lambda: f"{served.url}/s{next(NUMBERS)} {local.place(str(tmp_path), f'{next(numbers)}{self.ending}')}"


@pytest.mark.slow
class TestDocumentsBehindAServer(RemoteSuite):
    adapter = RemoteDocuments


@pytest.mark.slow
class TestGraphsBehindAServer(RemoteSuite):
    adapter = RemoteGraphs


@pytest.mark.slow
class TestSqlTablesBehindAServer(RemoteSuite):
    adapter = RemoteSql
    ending = ".db"


@pytest.mark.slow
class TestTypedStoresBehindAServer(RemoteSuite):
    adapter = RemoteTyped


del RemoteSuite
