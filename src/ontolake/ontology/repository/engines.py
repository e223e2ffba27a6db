"""`open_repository`: the repository of what is at a place, as its stamp says; never converting silently."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

import apsw

from ontolake import urls
from ontolake.engine import connect
from ontolake.engine.connection import enlarge_cache, write_ahead
from ontolake.errors import Invalid, NotFound, OntolakeError
from ontolake.extras import needs
from ontolake.history.names import MAIN
from ontolake.ontology.config import Config
from ontolake.ontology.errors import LayoutLacksError, StorageBackendError, UninitializedStorageError
from ontolake.ontology.repository.protocol import Repository
from ontolake.ontology.repository.sqlite.base import SqliteRepository
from ontolake.ontology.repository.sqlite.control import create_control_tables
from ontolake.ontology.repository.sqlite.failures import ours
from ontolake.ontology.repository.sqlite.v1 import SqliteRepositoryV1
from ontolake.ontology.repository.sqlite.v2 import SqliteRepositoryV2
from ontolake.ontology.repository.sqlite.v3 import SqliteRepositoryV3
from ontolake.ontology.repository.strangers import refuse_strangers, table_names
from ontolake.ontology.repository.versions import check_engine

LATEST_ENGINE = "v3"
SQLITE_ENGINES: dict[str, type[SqliteRepository]] = {
    "v1": SqliteRepositoryV1, "v2": SqliteRepositoryV2, "v3": SqliteRepositoryV3}  # fmt: skip


def open_repository(
    uri: str, *, engine_version: str | None = None, config: Config | Mapping[str, Any] | None = None
) -> Repository:  # fmt: skip
    """The typed store at `uri`, which is started where there is none, with the latest engine unless one is named.

    Raises `StorageBackendError` if what is there is no typed store, of an unknown engine or of another one than
    `engine_version`; `UninitializedStorageError` if there is nothing and `config.create` is off; and what
    `ontolake.engine.connect` raises.
    """
    settings = Config.of(config)
    location = urls.parse(uri)
    if location.place is urls.Place.SERVER:
        return _open_remote(uri, settings)
    if location.holds_objects and not location.seam:
        return _open_objects(uri, engine_version, settings)
    _known(SQLITE_ENGINES, engine_version, uri)
    return _open_sqlite(uri, location, engine_version, settings)


def _known(engines: Mapping[str, object], version: str | None, uri: str) -> None:
    if version is not None and version not in engines:
        raise StorageBackendError(f"the engine version {version!r} asked for at {uri!r} is not known",
                                  hint=f"known are {', '.join(engines)}")


def _open_remote(uri: str, config: Config) -> Repository:
    """The store behind a server. Raises `MissingExtra`, and what `ontolake.client` raises."""
    with needs("client", f"opening {uri}"):
        module = import_module("ontolake.client.repository")
    repository: Repository = module.open_remote(uri, config)
    return repository


def _open_objects(uri: str, engine_version: str | None, config: Config) -> Repository:
    try:
        module = import_module("ontolake.ontology.repository.objects.engines")
    except ModuleNotFoundError:
        raise StorageBackendError(f"typed stores on objects are not part of this version: {uri!r}",
                                  hint="use a .db file, or sqlite+s3://, sqlite+memory://") from None
    repository: Repository = module.open_objects(uri, engine_version, config)
    return repository


def _open_sqlite(uri: str, location: urls.Location, engine_version: str | None, config: Config) -> Repository:
    readonly = config.readonly or not config.create
    seam = _seam(uri, location, config)
    try:
        db = connect(uri, readonly=readonly, **_connecting(location, seam))
    except NotFound:
        if readonly and (config.branch == "main" or urls.detect(uri) is None):
            raise UninitializedStorageError(uri) from None
        raise
    except Invalid as error:
        if isinstance(error.__cause__, apsw.NotADBError):
            what = error.message.partition(", but ")[2]
            raise StorageBackendError(f"{uri!r} is not a SQLite database, but {what}", hint=error.hint) from error
        raise
    try:
        found = _stamp(db, uri)
        if found is None:
            if readonly:
                raise UninitializedStorageError(uri)
            found = _initialize(db, uri, engine_version or LATEST_ENGINE)
        check_engine(uri, found, engine_version)
        refuse_strangers(db, uri, found)
        if readonly and not config.readonly:
            db.close()
            db = connect(uri, **_connecting(location, seam))
        if location.place is urls.Place.SQLITE:
            enlarge_cache(db)
            if not config.readonly:
                write_ahead(db)
                db.execute("PRAGMA synchronous = FULL")
        return SQLITE_ENGINES[found](db, uri, config)
    except (OntolakeError, apsw.Error):
        with contextlib.suppress(apsw.Error):
            db.close()
        with ours(uri):
            raise


def _seam(uri: str, location: urls.Location, config: Config) -> Config:
    """The configuration with the branch of the pages below a store: engines with branches have them in their tables."""
    if config.branch == MAIN or urls.detect(uri) is None:
        return config
    options = {name: value for name, value in config.connect.items() if name != "takeover"}
    try:
        db = connect(uri, readonly=True, **_connecting(location, replace(config, branch=MAIN, connect=options)))
    except (NotFound, Invalid):
        return config
    try:
        tables = table_names(db)
        if {"storage_meta", "branches", "tags"} <= tables:
            return replace(config, branch=MAIN)
        if location.place is urls.Place.SQLITE and (found := _stamp(db, uri)) is not None:
            raise LayoutLacksError("branches", uri, found)  # and there are no pages below that could have some
        return config
    finally:
        db.close()


def _connecting(location: urls.Location, config: Config) -> dict[str, Any]:
    native = location.place is urls.Place.SQLITE
    return dict(config.connect) if native and config.branch == "main" else {"branch": config.branch, **config.connect}


def _stamp(db: apsw.Connection, uri: str) -> str | None:
    """The engine version of what is there; None if nothing is. A database without a stamp is v1, if it is ours."""
    tables = table_names(db)
    if not tables:
        return None
    if "storage_meta" not in tables:
        if {"commits", "entity_history"} <= tables:
            return "v1"
        raise StorageBackendError(f"{uri!r} holds other tables, such as {min(tables)!r}, and no typed store",
                                  hint="onto info tells what it is; choose another path for typed data")
    meta = {str(key): value for key, value in db.execute("SELECT key, value FROM storage_meta")}
    backend, version = meta.get("backend"), meta.get("engine_version")
    if backend != "sqlite" or version not in SQLITE_ENGINES:
        raise StorageBackendError(
            f"{uri!r} says that its engine is {backend}/{version}, which this version of Ontolake does not know",
            hint=f"it knows {', '.join(f'sqlite/{one}' for one in SQLITE_ENGINES)}; use a newer version")
    return str(version)


def _initialize(db: apsw.Connection, uri: str, version: str) -> str:
    """Make a new store, unless another process has made one meanwhile."""
    db.execute("BEGIN IMMEDIATE")
    try:
        found = _stamp(db, uri)
        if found is None:
            create_control_tables(db, version)
            SQLITE_ENGINES[version].create_layout(db)
            found = version
        db.execute("COMMIT")
    except BaseException:
        if not db.get_autocommit():
            db.execute("ROLLBACK")
        raise
    return found
