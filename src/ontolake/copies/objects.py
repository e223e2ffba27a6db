"""Copies of stores that are objects: graphs, typed stores and page stores in a directory or a bucket.

A directory is filled beside its place and renamed in the end. In a bucket a mark says that the copy is unfinished, so
that nobody takes it for a store, until the last object is there.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import xxhash

from ontolake import faults, stores, urls
from ontolake.errors import AlreadyExists, Invalid, NotFound, StorageError, Transient
from ontolake.folders import obstacle
from ontolake.lance_versions import VersionFile, moved_base
from ontolake.objects import ObjectInfo, ObjectStore, open_store
from ontolake.objects.providers import provider_of
from ontolake.storage.medium import decode_root
from ontolake.stores import Site
from ontolake.urls import GRAPH_PREFIX, ROOT_KEY, Location, Place

Progress = Callable[[str, int, int | None], None]
"""Is given the step, how much of it is done, and how much there is."""

UNFINISHED = ".unfinished"
_ROUNDS = 20
_TRIES = 4
_WIDTH = 8
_WAL = "wal/"
_VERSION = re.compile(r"(__manifest|[^/]+/[^/]+)/(?:tree/.+/)?_versions/[^/]+\.manifest$")
"""Which table an object is a version of."""


def copy_graph(source: Site, target: Location, advance: Progress) -> int:
    """Copy a graph: every object of it, those that name versions of the manifest last. Returns the bytes.

    Versions of branches name the folders of other lines with their whole path: in the copy, that is one of the copy.
    Objects that came, changed or went meanwhile are copied again, until nothing has moved.
    """
    if target.seam or target.place not in (Place.DIRECTORY, Place.BUCKET):
        raise Invalid(f"{target.url!r} is a {target.place}, and a graph lives in a directory or a bucket",
                      hint="use path/, file:///directory or s3://bucket/prefix")
    root = _root(target)
    with _opened(source.location.base_url) as store, _filled(target) as copied:
        known: dict[str, object] = {}
        sizes: dict[str, int] = {}
        for _ in range(_ROUNDS):
            listed = {info.key: info for info in store.list()}
            marks = {key: _mark(store, info) for key, info in listed.items()}
            if marks == known:
                return sum(sizes.values())
            gone = known.keys() - marks.keys()
            copied.delete(gone)
            for key in gone:
                sizes.pop(key, None)
            changed = [key for key, mark in marks.items() if known.get(key) != mark]
            sizes |= _transfer(store, copied, sorted(changed, key=_graph_order), advance,
                                lambda key, data: _rooted(key, data, root))
            known = marks
            faults.reach("copy: graph copied, not compared")
    raise Transient(f"{source.location.url!r} changes faster than it is copied", hint="try again when less is written")


def _root(target: Location) -> str:
    """The address of a place in Lance's words."""
    if target.place is Place.DIRECTORY:
        return os.path.abspath(target.path)
    return provider_of(target).access(target).lance()[0]


def _rooted(key: str, data: bytes, root: str) -> bytes:
    """An object of a graph as it is below another root."""
    table = _VERSION.match(key)
    if table is None:
        return data
    try:
        version = VersionFile(data)
        if version.has_bases:
            return version.rewritten({}, {}, (), lambda path: moved_base(path, table[1], root))
    except ValueError:
        pass  # it is as damaged in the copy, where `verify` tells
    return data


def _mark(store: ObjectStore, info: ObjectInfo) -> object:
    """What tells one state of an object from another. References are small, and may change twice in a second."""
    if "/_refs/" not in info.key:
        return info.size, info.modified
    try:
        return xxhash.xxh3_128_digest(store.get(info.key).data)
    except NotFound:
        return None


def _graph_order(key: str) -> tuple[int, str]:
    """Data first, then the manifest, then its versions, the newest last: their names count down."""
    if key.startswith(f"{GRAPH_PREFIX}_versions/"):
        return 2, "".join(chr(0x10FFFF - ord(letter)) for letter in key)
    return int(key.startswith(GRAPH_PREFIX)), key


def copy_pages(source: str, target: Location, advance: Progress) -> int:
    """Copy a page store that is objects to another place for objects, the root last. Returns the bytes.

    Frames and blobs never change: with a root that was not replaced meanwhile they are the store at a moment.
    """
    with _opened(source) as store, _filled(target) as copied:
        sizes: dict[str, int] = {}
        for _ in range(_ROUNDS):
            root = store.get(ROOT_KEY)
            keys = [info.key for info in store.list() if info.key != ROOT_KEY and info.key not in sizes]
            sizes |= _transfer(store, copied, keys, advance)
            faults.reach("copy: pages copied, root not compared")
            if store.get(ROOT_KEY).tag == root.tag and _is_dense(sizes, decode_root(root.data, source).log_start):
                _put(copied, ROOT_KEY, root.data)
                faults.reach("copy: root written")
                return sum(sizes.values()) + len(root.data)
    raise Transient(f"{source!r} changes faster than it is copied", hint="try again when less is written")


def copy_files(source: Site, target: Location, advance: Progress) -> int:
    """Copy a typed store that is objects to another place for objects, its head last. Returns the bytes.

    All that a head leads to is written once: with a head that was not moved meanwhile it is the store at a moment.
    """
    if target.seam or target.place not in (Place.DIRECTORY, Place.BUCKET, Place.MEMORY):
        raise Invalid(f"{target.url!r} is a {target.place}, and this store is made of objects",
                      hint=f"name a directory or a bucket; onto convert {source.location.url} {target.url} makes it "
                           "a store in SQLite")  # fmt: skip
    names: Any = stores.TYPED.opener
    with _opened(source.location.base_url) as store, _filled(target) as copied:
        sizes: dict[str, int] = {}
        for _ in range(_ROUNDS):
            before = _swapped(store, names.SWAPPED)
            keys = [info.key for info in store.list() if info.key not in (*names.SWAPPED, *names.UNCOPIED)
                    and not (info.key in sizes and info.key.startswith(names.WRITTEN_ONCE))]  # fmt: skip
            sizes |= _transfer(store, copied, keys, advance)
            faults.reach("copy: files copied, head not compared")
            after = _swapped(store, names.SWAPPED)
            if {key: found.tag for key, found in before.items()} == {key: found.tag for key, found in after.items()}:
                for key, found in before.items():
                    _put(copied, key, found.data)
                    faults.reach("copy: swapped object written")
                return sum(sizes.values()) + sum(len(found.data) for found in before.values())
    raise Transient(f"{source.location.url!r} changes faster than it is copied", hint="try again when less is written")


def _swapped(store: ObjectStore, keys: Iterable[str]) -> dict[str, Any]:
    """Those of the objects that are there, in this order."""
    found = {}
    for key in keys:
        with suppress(NotFound):
            found[key] = store.get(key)
    return found


def _is_dense(keys: Iterable[str], start: int) -> bool:
    """Whether no frame of the log is missing between two others. A listing may miss one that came meanwhile."""
    frames = sorted(frame for key in keys if key.startswith(_WAL) and (frame := int(key.removeprefix(_WAL))) >= start)
    return not frames or (frames[0] == start and frames[-1] - start + 1 == len(frames))


def _transfer(source: ObjectStore, target: ObjectStore, keys: list[str], advance: Progress,
              adapted: Callable[[str, bytes], bytes] = lambda key, data: data) -> dict[str, int]:  # fmt: skip
    """Copy objects, many at once; the last of a graph's in their order. Returns sizes of those that were there.

    `adapted` tells what an object is in its new place.
    """
    ordered = next((at for at, key in enumerate(keys) if _graph_order(key)[0]), len(keys))

    def one(key: str) -> tuple[str, int] | None:
        try:
            data = adapted(key, source.get(key).data)
        except NotFound:
            return None  # whoever removed it did not need it any more, or the next round tells
        faults.reach("copy: before an object")
        _put(target, key, data)
        faults.reach("copy: object copied")
        return key, len(data)

    sizes: dict[str, int] = {}

    def count(results: Iterable[tuple[str, int] | None]) -> None:
        for number, result in enumerate(results, len(sizes) + 1):
            if result is not None:
                sizes[result[0]] = result[1]
            advance("copy", number, len(keys))

    if faults.armed():  # so that fault points come in one order
        count(map(one, keys))
        return sizes
    with ThreadPoolExecutor(_WIDTH) as pool:
        count(pool.map(one, keys[:ordered]))
    count(map(one, keys[ordered:]))
    return sizes


def _put(store: ObjectStore, key: str, data: bytes) -> None:
    """Write an object that nobody else writes, so that it can be tried again."""
    for attempt in range(_TRIES):
        try:
            store.put(key, data)
            return
        except Transient:
            if attempt + 1 == _TRIES:
                raise


@contextmanager
def _opened(url: str) -> Iterator[ObjectStore]:
    store = open_store(url)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def _filled(target: Location) -> Iterator[ObjectStore]:
    """A place for objects that is shown when the block ends, and empty again if it raises."""
    with _filled_directory(target) if target.place is Place.DIRECTORY else _filled_bucket(target) as store:
        yield store


@contextmanager
def _filled_directory(target: Location) -> Iterator[ObjectStore]:
    path = Path(target.path).absolute()
    stage = stage_beside(path, "")
    try:
        with _opened(stage.as_uri()) as store:
            yield store
        faults.reach("copy: directory filled, not renamed")
        try:
            os.rename(stage, path)  # onto nothing, or an empty directory
        except OSError as error:
            raise AlreadyExists(f"something has come to {target.url!r} meanwhile: {error.strerror}",
                                hint="choose an empty place") from error
        sync_folder(path.parent)
        faults.reach("copy: directory renamed")
    finally:
        shutil.rmtree(stage, ignore_errors=True)


@contextmanager
def _filled_bucket(target: Location) -> Iterator[ObjectStore]:
    with _opened(target.base_url) as store:
        mark = urls.UNFINISHED_ROOT
        store.put_if_absent(ROOT_KEY, mark)
        faults.reach("copy: bucket marked")
        try:
            yield store
            if store.get(ROOT_KEY).data == mark:
                faults.reach("copy: bucket filled, mark not removed")
                store.delete([ROOT_KEY])
            faults.reach("copy: bucket shown")
        except BaseException:
            with suppress(StorageError):
                store.delete([info.key for info in store.list() if info.key != ROOT_KEY])
                store.delete([ROOT_KEY])
            raise


def stage_beside(path: Path, suffix: str) -> Path:
    """A name beside a file or directory to come, on the same disk. Raises `Invalid` if the folder cannot be made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise obstacle(path) or Invalid(f"{path} cannot be made: {error.strerror}") from error
    return path.parent / f".{path.name}.{secrets.token_hex(4)}{UNFINISHED}{suffix}"


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
