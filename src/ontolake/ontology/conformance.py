"""Typed stores as the conformance suite of history reaches them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ontolake import urls
from ontolake.history.conformance import VersioningAdapter
from ontolake.history.conformance.adapter import files_at
from ontolake.history.conformance.oracle import Record
from ontolake.model import Entity, Field
from ontolake.model.types import type_info
from ontolake.objects import open_store
from ontolake.ontology.config import Config
from ontolake.ontology.session import Session
from ontolake.ontology.sizes import Sizes
from ontolake.ontology.typed_store import TypedStore

_OBJECTS = (urls.Place.DIRECTORY, urls.Place.BUCKET, urls.Place.MEMORY)
_CONFIG = Config(create=False, lock_timeout=30.0, sizes=Sizes(column_rows=1))
"""Few rows are many enough for every way of reading."""


class Recorded(Entity):
    """The records of the suite."""

    id: Field[str] = Field(primary_key=True)
    f: Field[int | None] = Field(default=None)
    g: Field[int | None] = Field(default=None)


class TypedVersioning(VersioningAdapter):
    """A typed store with branches, at any URL of SQLite or of objects."""

    table = "entity/Recorded"

    @classmethod
    def place(cls, base: str, name: str) -> str:
        """A file in a folder; over the seam where there are only objects."""
        where = f"{base.rstrip('/')}/{name.strip('/')}"
        if "://" in base and not base.startswith("file:"):
            return where if base.startswith("sqlite+") else f"sqlite+{where}"
        return where if where.endswith(".db") else f"{where}.db"

    @classmethod
    def create(cls, where: str) -> None:
        if urls.parse(where).place in (urls.Place.SQLITE, urls.Place.PAGE_FILE):
            Path(urls.parse(where).path).parent.mkdir(parents=True, exist_ok=True)
        session = Session(where, entity_types=[Recorded], engine_version="v3")
        with session.repository.transaction(session.session_id) as transaction:
            transaction.register(type_info(Recorded))
            transaction.finish({})
        session.close()

    @classmethod
    @contextmanager
    def open(cls, where: str, *, readonly: bool = False) -> Iterator[TypedStore]:
        takes_over = not readonly and urls.parse(where).place not in (urls.Place.SQLITE, *_OBJECTS)
        config = replace(_CONFIG, readonly=readonly, create=takes_over,
                         connect={"takeover": True} if takes_over else {})
        with TypedStore(where, classes=[Recorded], config=config) as store:
            yield store

    @classmethod
    def write(
        cls, store: Any, branch: str, changes: Mapping[str, Record | None], *, message: str | None = None,
        author: str | None = None,
    ) -> int:  # fmt: skip
        store.repository.head()  # raises once closed
        config = replace(_CONFIG, readonly=store.config.readonly)
        session = Session(store.uri, entity_types=[Recorded], branch=branch, config=config)
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

    @classmethod
    def files(cls, where: str) -> Sequence[Path] | None:
        # On objects the next writer waits until the lease of one that was killed has ended: too long for every point.
        return None if urls.parse(where).place in _OBJECTS else files_at(where)

    @classmethod
    def stored(cls, where: str) -> Iterable[bytes] | None:
        if urls.parse(where).place in _OBJECTS:
            with contextlib.closing(open_store(where)) as store:
                return [store.get(info.key).data for info in store.list()]
        return super().stored(where)
