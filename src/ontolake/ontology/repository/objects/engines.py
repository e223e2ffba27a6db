"""Opening a typed store on objects: as what its stamp says, never over anything that is not ours."""

from __future__ import annotations

from ontolake.errors import AlreadyExists
from ontolake.history.names import MAIN
from ontolake.objects import ObjectStore, create, new_nonce, open_store
from ontolake.ontology.config import Config
from ontolake.ontology.errors import LayoutLacksError, StorageBackendError, UninitializedStorageError
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.access import StoreObjects
from ontolake.ontology.repository.objects.base import S3Repository
from ontolake.ontology.repository.objects.layout import ENGINE, HEAD, EngineStamp, Head
from ontolake.ontology.repository.objects.v1 import S3RepositoryV1
from ontolake.ontology.repository.objects.v2 import S3RepositoryV2
from ontolake.ontology.repository.objects.v3 import S3RepositoryV3
from ontolake.ontology.repository.times import now_text
from ontolake.ontology.repository.versions import check_engine

LATEST_ENGINE = "v3"
ENGINES: dict[str, type[S3Repository]] = {"v1": S3RepositoryV1, "v2": S3RepositoryV2, "v3": S3RepositoryV3}


def open_objects(uri: str, engine_version: str | None, config: Config) -> S3Repository:
    """The typed store at `uri`, which is started where there is none.

    Raises `StorageBackendError` if what is there is no typed store, of an unknown engine or of another one than
    `engine_version`; `UninitializedStorageError` if there is nothing and none is to be made; and what `open_store`
    and the store raise.
    """
    if engine_version is not None and engine_version not in ENGINES:
        raise StorageBackendError(f"the engine version {engine_version!r} asked for at {uri!r} is not known",
                                  hint=f"known are {', '.join(ENGINES)}")
    given = config.connect.get("store")
    store: ObjectStore = given if isinstance(given, ObjectStore) else open_store(uri)
    access = StoreObjects(store)
    try:
        found = stamp(access, uri)
        if found is None:
            if config.readonly or not config.create:
                raise UninitializedStorageError(uri)
            found = _initialize(access, uri, engine_version or LATEST_ENGINE)
        check_engine(uri, found, engine_version)
        if config.branch != MAIN and not ENGINES[found].keeps_branches:
            raise LayoutLacksError("branches", uri, found)
    except BaseException:
        store.close()
        raise
    return ENGINES[found](store, uri, config)


def stamp(access: StoreObjects, uri: str) -> str | None:
    """The engine version of what is there; None if nothing is. A store without a stamp is v1, if it is ours."""
    found = access.find(ENGINE)
    if found is not None:
        told = layout.decode(found.data, EngineStamp, ENGINE, access.url)
        if told.backend != "s3" or told.engine_version not in ENGINES:
            raise StorageBackendError(
                f"{uri!r} says that its engine is {told.backend}/{told.engine_version}, which this version of Ontolake "
                "does not know", hint=f"it knows {', '.join(f's3/{one}' for one in ENGINES)}; use a newer version")
        _check_head(access, told.engine_version)
        return told.engine_version
    head = access.find(HEAD)
    if head is not None:
        layout.decode(head.data, Head, HEAD, access.url)
        return "v1"
    for info in access.store.list():
        if not info.key.startswith("."):  # what file managers leave behind does not count
            raise StorageBackendError(f"{uri!r} holds other objects, such as {info.key!r}, and no typed store",
                                      hint="choose an empty place")
    return None


def _check_head(access: StoreObjects, version: str) -> None:
    """A store whose making was interrupted has no head yet; one that lost its head is damaged."""
    head = access.find(HEAD)
    if head is not None:
        layout.decode(head.data, Head, HEAD, access.url)
        return
    for info in access.store.list("commits/"):
        raise StorageBackendError(f"the object {HEAD!r} is missing in {access.url}, and there are commits, such as "
                                  f"{info.key!r}", hint="restore it from a copy; nothing was changed")
    _create_head(access, version)


def _initialize(access: StoreObjects, uri: str, version: str) -> str:
    """Make a new store, unless another process has made one meanwhile."""
    nonce = new_nonce()
    try:
        create(access.store, ENGINE, layout.encode(EngineStamp("s3", version, now_text(), nonce.decode())), nonce)
    except AlreadyExists:
        found = stamp(access, uri)
        assert found is not None
        return found
    _create_head(access, version)
    return version


def _create_head(access: StoreObjects, version: str) -> None:
    nonce = new_nonce()
    head = ENGINES[version].first_head(Head(0, None, now_text(), "", nonce.decode()))
    try:
        create(access.store, HEAD, layout.compact(head), nonce)
    except AlreadyExists:
        return
