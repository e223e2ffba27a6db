"""Copies of databases: documents, SQL tables and typed stores, in a native SQLite file or on pages.

Between places of one layout a file or its objects are copied as they are. Between layouts SQLite copies its pages: each
branch at every moment that another one begins at, so that all branches are there, with their ids. SQL tables in
a native file have their branches inside; their model takes them apart and joins them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import apsw

from ontolake import faults, stores, urls
from ontolake.copies.objects import Progress, copy_pages, stage_beside, sync_folder
from ontolake.engine.connection import connect
from ontolake.engine.registry import shared
from ontolake.errors import AlreadyExists, Invalid
from ontolake.storage import BranchRef, Storage
from ontolake.storage.backend import LogStorage
from ontolake.storage.filelock import FileLock
from ontolake.stores import Site
from ontolake.urls import Location, Place

_STEP = 2_000
_CHUNK = 8 << 20
_LOCK_SECONDS = 10.0


class InnerBranches(Protocol):
    """What a model knows of branches inside its native files. Ids are those of branches on pages."""

    def stored_lines(self, path: str) -> Sequence[tuple[Any, int, int]]:
        """All branches of a file by id, the first one first, with `id`, `name`, `parent` and `base`, a version of the
        parent; and their newest and oldest versions."""

    def next_line(self, path: str) -> int:
        """The id of the next branch."""

    def base_of(self, connection: apsw.Connection, line: int) -> int:
        """The version at which a branch left a database, as that was then."""

    def flatten(self, path: str, line: int, version: int, floor: int) -> None:
        """Make a file what one of its branches is at a version, with a past from `floor` on."""

    def join(self, path: str, other: str, line: Any) -> None:
        """Add a database to a file as a branch."""

    def finish(self, path: str, next_id: int) -> None:
        """Say which id the next branch gets."""

    StoredLine: Any


def copy_tables(source: Site, target: Location, advance: Progress) -> int:
    """Copy SQL tables with all their branches. Returns the bytes of the copy."""
    return copy_database(source, target, advance, stores.SQL.opener.branches)  # type: ignore[attr-defined]


def copy_database(
    source: Site, target: Location, advance: Progress, inner: InnerBranches | None = None
) -> int:  # fmt: skip
    """Copy a database with all its branches. Returns the bytes of the copy."""
    if target.place is Place.DIRECTORY and not target.seam:
        raise Invalid(f"{target.url!r} is a directory, and this store is one database",
                      hint=f"name a file, such as {target.path}/copy.db, or sqlite+file:// for pages as objects")
    _check_ranges(source)
    if target.place is Place.SQLITE:
        with _new_file(target) as stage:
            _copy_native(source, stage, advance, inner)
        return os.path.getsize(target.path)
    if target.place is Place.PAGE_FILE:
        with _new_file(target) as stage:
            if source.on_pages and source.location.place not in (Place.DIRECTORY, Place.BUCKET, Place.MEMORY):
                _copy_file(Path(source.location.path), stage)
            else:
                _copy_branches(source, f"file://{quote(str(stage))}", advance, inner)
        return os.path.getsize(target.path)
    if source.on_pages and source.location.holds_objects:
        return copy_pages(source.location.base_url, target, advance)
    with tempfile.TemporaryDirectory(prefix="ontolake-copy-") as folder:
        url = f"file://{quote(folder)}/pages"
        _copy_branches(source, url, advance, inner)
        return copy_pages(url, target, advance)


def _check_ranges(source: Site) -> None:
    """Raise `Invalid` if ranges of SQL tables are in other databases, which a copy would share with its source."""
    moments: list[tuple[str, int | None]] = [("main", None)]
    if source.on_pages:
        with _storage(source.url) as storage:
            refs = {ref.id: ref for ref in storage.list_branches()}
        moments = [(ref.name, None) for ref in refs.values()]
        moments += [(refs[ref.parent].name, ref.base_lsn) for ref in refs.values() if ref.parent is not None]
    for branch, lsn in moments:
        options = {"branch": branch, "at": lsn} if source.on_pages else {}
        with closing(connect(source.url, readonly=True, **options)) as db:  # type: ignore[arg-type]
            if not db.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'range'").fetchone():
                continue
            found = [str(url) for (url,) in db.execute("SELECT DISTINCT url FROM range WHERE url <> ''")]
        if found:
            raise Invalid(f"ranges of {source.url!r} are in other databases: {', '.join(sorted(found))}",
                          hint="move them home first, on every branch")


# To a native file


def _copy_native(source: Site, stage: Path, advance: Progress, inner: InnerBranches | None) -> None:
    refs: list[BranchRef] = []
    ids = 0
    if source.on_pages:
        with _storage(source.url) as storage:
            refs, ids = sorted(storage.list_branches(), key=lambda ref: int(ref.id)), _next_branch(storage)
    others = [ref for ref in refs if ref.parent is not None]
    if others and inner is None:
        raise Invalid(f"{source.url!r} has branches, which a native SQLite file cannot hold: "
                      f"{', '.join(ref.name for ref in others)}",
                      hint="copy it to a page file (file:///path.db) or a bucket, or delete the branches first")
    with closing(connect(source.url, readonly=True, at=refs[0].head_lsn if refs else None)) as old, \
            closing(apsw.Connection(str(stage))) as new:  # fmt: skip
        _backup(old, new, advance)
    if inner is not None:
        for ref in others:
            _join_branch(source, {each.id: each for each in refs}, ref, stage, inner, advance)
        inner.finish(str(stage), ids)


def _join_branch(source: Site, refs: Mapping[Any, BranchRef], ref: BranchRef, stage: Path, inner: InnerBranches,
                 advance: Progress) -> None:
    """Add a branch of pages to a native file."""
    assert ref.parent is not None
    with closing(connect(source.url, readonly=True, branch=refs[ref.parent].name, at=ref.base_lsn)) as parent:
        base = inner.base_of(parent, int(ref.id))
    with tempfile.TemporaryDirectory(prefix="ontolake-copy-") as folder:
        with closing(connect(source.url, readonly=True, branch=ref.name, at=max(ref.head_lsn, ref.base_lsn))) as old, \
                closing(apsw.Connection(f"{folder}/branch.db")) as new:  # fmt: skip
            _backup(old, new, advance)
        inner.join(str(stage), f"{folder}/branch.db",
                   inner.StoredLine(int(ref.id), ref.name, int(ref.parent), base))
    faults.reach("copy: branch joined")


def _backup(old: apsw.Connection, new: apsw.Connection, advance: Progress) -> None:
    """Copy all pages as one transaction, as they are at the beginning."""
    old.execute("BEGIN")
    old.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    with new.backup("main", old, "main") as copying:
        faults.reach("copy: before pages")
        while not copying.done:
            copying.step(_STEP)
            advance("pages", copying.page_count - copying.remaining, copying.page_count)
    faults.reach("copy: pages copied")
    old.execute("ROLLBACK")


# To pages


def _copy_file(path: Path, stage: Path) -> None:
    """Copy a page file as it is, with its holes. Writers wait meanwhile."""
    source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        target = os.open(stage, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            with FileLock(source, str(path), _LOCK_SECONDS):
                size = os.fstat(source).st_size
                for at in range(0, size, _CHUNK):
                    data = os.pread(source, min(_CHUNK, size - at), at)
                    if data.count(0) != len(data):
                        _write(target, data, at)
                    faults.reach("copy: part of a file copied")
                os.ftruncate(target, size)
        finally:
            os.close(target)
    finally:
        os.close(source)


def _write(descriptor: int, data: bytes, at: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(descriptor, memoryview(data)[done:], at + done)


def _copy_branches(source: Site, url: str, advance: Progress, inner: InnerBranches | None) -> None:
    """Fill a new page store with the branches of another, or with a native file. Branches have their ids.

    A branch is written in the states that others begin at, and in its newest.
    """
    if not source.on_pages:
        with tempfile.TemporaryDirectory(prefix="ontolake-copy-") as folder:
            path = f"{folder}/whole.db"
            with closing(connect(source.url, readonly=True)) as old, closing(apsw.Connection(path)) as new:
                size = int(old.pragma("page_size"))
                _backup(old, new, advance)
            found = inner.stored_lines(path) if inner is not None else ()
            if inner is None or len(found) < 2:
                _copy_state(path, {}, url, "main", advance, page_size=size)
            else:
                _copy_inner(path, found, url, inner, advance, page_size=size)
        return
    with _storage(source.url) as storage:
        refs = sorted(storage.list_branches(), key=lambda ref: int(ref.id))
        ids, size = _next_branch(storage), storage.page_size
    bases = {(ref.parent, ref.base_lsn) for ref in refs if ref.parent is not None}
    lsns: dict[tuple[int, int], int] = {}
    for ref in refs:
        if ref.parent is not None:
            _reach_id(url, int(ref.id))
            with _storage(url) as copied:
                base = lsns[int(ref.parent), ref.base_lsn]
                copied.create_branch(ref.name, base, parent=ref.parent)
                faults.reach("copy: branch created")
                if ref.head_lsn >= ref.base_lsn:  # else it was made independent of its parent, and is another state
                    lsns[int(ref.id), ref.base_lsn] = base
        wanted = sorted({lsn for parent, lsn in bases if parent == ref.id} | {max(ref.head_lsn, ref.base_lsn)})
        for lsn in wanted:
            if (int(ref.id), lsn) not in lsns:
                _copy_state(source.url, {"branch": ref.name, "at": lsn}, url, ref.name, advance, page_size=size)
                with _storage(url) as copied:
                    lsns[int(ref.id), lsn] = copied.get_commit_lsn()
    _reach_id(url, ids)


def _copy_inner(path: str, found: Sequence[tuple[Any, int, int]], url: str, inner: InnerBranches, advance: Progress, *,
                page_size: int) -> None:
    """Fill a new page store with the branches of a native file."""
    lines = {line.id: line for line, _, _ in found}

    def owner(id: int, version: int) -> tuple[int, int]:
        """The branch that wrote a version which another may have from it."""
        while (line := lines[id]).parent is not None and version <= line.base:
            id = line.parent
        return id, version

    floors: dict[tuple[int, int], int] = {}
    for line, newest, floor in found:
        for where in {owner(line.id, newest), *([] if line.parent is None else [owner(line.parent, line.base)])}:
            floors[where] = min(floor, floors.get(where, floor))
    lsns: dict[tuple[int, int], int] = {}
    for line, newest, floor in found:
        begins = None
        if line.parent is not None:
            begins = owner(line.parent, line.base)
            _reach_id(url, line.id)
            with _storage(url) as copied:
                parent = next(ref for ref in copied.list_branches() if int(ref.id) == line.parent)
                copied.create_branch(line.name, lsns[begins], parent=parent.id)
                faults.reach("copy: branch created")
        wanted = {where: floors[where] for where in sorted(floors) if where[0] == line.id}
        if begins is not None and newest == line.base and floors[begins] != floor:
            wanted[line.id, newest] = floor  # it cannot read as much as the state that it begins with
        for where, oldest in wanted.items():
            state = f"{path}-state"
            shutil.copyfile(path, state)
            inner.flatten(state, line.id, where[1], oldest)
            _copy_state(f"sqlite:///{quote(state)}", {}, url, line.name, advance, page_size=page_size)
            with _storage(url) as copied:
                lsns[where] = copied.get_commit_lsn()
            os.unlink(state)
    _reach_id(url, inner.next_line(path))


def _copy_state(url: str, options: dict[str, object], target: str, branch: str, advance: Progress, *,
                page_size: int) -> None:
    """Make a branch of a page store what a database is. It goes through a native file without a write-ahead log, since
    pages cannot have one."""
    with tempfile.TemporaryDirectory(prefix="ontolake-copy-") as folder, ExitStack() as stack:
        native = stack.enter_context(closing(apsw.Connection(f"{folder}/native.db")))
        with closing(connect(url, readonly=True, **options)) as old:  # type: ignore[arg-type]
            _backup(old, native, advance)
        native.pragma("journal_mode", "DELETE")
        with closing(connect(target, branch=branch, page_size=page_size)) as new:
            _backup(native, new, advance)


def _next_branch(storage: Storage) -> int:
    """The id of the next branch. Ids of deleted ones are not given again: commits may name them."""
    if isinstance(storage, LogStorage):
        return int(storage.log.state.next_branch)
    return 1 + max(int(ref.id) for ref in storage.list_branches())


def _reach_id(url: str, id: int) -> None:
    """Have the next branch of a page store get an id."""
    with _storage(url) as storage:
        name = f"unused-{uuid.uuid4().hex}"  # no branch of the source can be called that
        while _next_branch(storage) < id:
            storage.create_branch(name, storage.durable_lsn())
            storage.delete_branch(name)


@contextmanager
def _storage(url: str) -> Iterator[Storage]:
    place = shared(url)
    database = place.join({}, create=False, writes=False)
    try:
        yield database.storage
    finally:
        place.leave(writes=False)


@contextmanager
def _new_file(target: Location) -> Iterator[Path]:
    """A name for a file that gets the name of the target when the block ends, and is removed if it raises."""
    path = Path(target.path).absolute()
    stage = stage_beside(path, urls.PAGE_FILE_SUFFIX)
    try:
        yield stage
        with stage.open("rb") as file:
            os.fsync(file.fileno())
        faults.reach("copy: file filled, not renamed")
        try:
            os.link(stage, path)  # which does not replace anything, as a rename would
        except FileExistsError:
            raise AlreadyExists(f"something has come to {target.url!r} meanwhile",
                                hint="choose another place") from None
        except OSError:  # a file system without hard links
            os.rename(stage, path)
        faults.reach("copy: file renamed")
    finally:
        for name in (stage, *(stage.with_name(f"{stage.name}{end}") for end in ("-journal", "-wal", "-shm"))):
            name.unlink(missing_ok=True)
        sync_folder(path.parent)
