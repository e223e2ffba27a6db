"""SQL tables as the conformance suite of history reaches them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ontolake import urls
from ontolake.history.conformance import VersioningAdapter
from ontolake.history.conformance.adapter import files_at
from ontolake.history.conformance.oracle import Record
from ontolake.objects import open_store
from ontolake.sql.database import Database, open_database

_TABLE = "CREATE TABLE app.public.records (id TEXT PRIMARY KEY, f BIGINT, g BIGINT)"
_PUT = ("INSERT INTO app.public.records VALUES (?, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET f = excluded.f, g = excluded.g")


class SqlVersioning(VersioningAdapter):
    """SQL tables at any URL that has branches."""

    table = "app.public.records"

    @classmethod
    def create(cls, where: str) -> None:
        with open_database(where) as db:
            db.execute("CREATE DATABASE app; CREATE SCHEMA app.public;" + _TABLE)

    @classmethod
    @contextmanager
    def open(cls, where: str, *, readonly: bool = False) -> Iterator[Database]:
        with open_database(where, readonly=readonly, takeover=not readonly) as db:
            yield db

    @classmethod
    def write(
        cls, store: Any, branch: str, changes: Mapping[str, Record | None], *, message: str | None = None,
        author: str | None = None,
    ) -> int:  # fmt: skip
        if branch == store.branch:
            return cls._write(store, changes, message, author)
        with open_database(store.url, branch=branch) as db:
            return cls._write(db, changes, message, author)

    @classmethod
    def _write(
        cls, db: Database, changes: Mapping[str, Record | None], message: str | None, author: str | None
    ) -> int:  # fmt: skip
        with db.transaction(message=message, author=author):
            for key, row in changes.items():
                if row is None:
                    db.execute("DELETE FROM app.public.records WHERE id = ?", (key,))
                else:
                    db.execute(_PUT, (key, row["f"], row["g"]))
        return db.version()

    @classmethod
    def stored(cls, where: str) -> Iterable[bytes] | None:
        location = urls.parse(where)
        if location.place in (urls.Place.BUCKET, urls.Place.MEMORY):
            with closing(open_store(where)) as store:
                return [store.get(info.key).data for info in store.list()]
        return super().stored(where)

    @classmethod
    def files(cls, where: str) -> Sequence[Path] | None:
        return files_at(where)

    @classmethod
    def forget(cls, store: Any) -> None:
        """Give up the past of the first branch."""
        store.retain(store.version())
