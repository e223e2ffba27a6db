"""Objects as files under a local directory, with a compare-and-swap that holds between processes.

Contents appear whole or not at all, and file and directory are synced before a write returns. What a crash
leaves behind are temporary files under `.ontolake/`, which no listing shows and a later opening removes. Many objects
that nobody knows yet are synced at the same time, which takes about as long as one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Never
from urllib.parse import urlsplit
from urllib.request import url2pathname

import xxhash

from ontolake import faults
from ontolake.errors import AlreadyExists, Invalid, NotFound, PreconditionFailed, StorageError, Transient
from ontolake.folders import obstacle
from ontolake.foreign import described
from ontolake.objects.keys import RESERVED, check, check_prefix, check_range, problem
from ontolake.objects.ranges import Fetch, read_ranges
from ontolake.objects.store import Object, ObjectInfo, Range

SYNCS = 8
"""How many files and directories are synced at the same time."""

LEFTOVER_AGE = 3600.0
"""Seconds after which a temporary file must belong to a process that is gone: a write takes far less."""


class DirectoryStore:
    """The files under `path`. Nothing is created before the first write."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # Absolute, so that a later change of the working directory does not move the store.
        self._root = os.path.abspath(path)
        self.url = Path(self._root).as_uri()
        self._own = os.path.join(self._root, RESERVED)
        self._synced: set[str] = set()
        self._ready: dict[tuple[str, bytes], str] = {}
        self._pool: tuple[int, ThreadPoolExecutor] | None = None
        if os.path.exists(self._root) and not os.path.isdir(self._root):
            what, hint = described(self._root) or ("of what kind cannot be seen", "choose another path")
            raise Invalid(f"{self.url} is a file, not a directory: {what}", hint=hint)
        self._remove_leftovers()

    def get(self, key: str) -> Object:
        data = self._read(key, 0, None)
        return Object(data, _tag(data))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(start, length)
        return self._read(key, start, length)

    def get_ranges(self, ranges: Sequence[Range]) -> list[bytes | StorageError]:
        return read_ranges(ranges, lambda fetches: map(self._fetch, fetches))

    def put(self, key: str, data: bytes) -> str:
        path = self.path_of(key)
        with _writing(key, self.url), self._temp_file(path, data) as temp:
            with self._lock(path):
                _rename(temp, path)
            self.sync_directory(os.path.dirname(path))
        return _tag(data)

    def put_if_absent(self, key: str, data: bytes) -> str:
        path = self.path_of(key)
        with _writing(key, self.url):
            if os.path.exists(path):
                self._refuse_present(key, path)
            with self._temp_file(path, data) as temp:
                try:
                    faults.reach("directory: before link")
                    os.link(temp, path)
                    faults.reach("directory: linked")
                except FileExistsError:
                    self._refuse_present(key, path)
                except OSError as error:
                    if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                        raise
                    with self._lock(path):  # a file system without hard links: every creator comes through here
                        if os.path.exists(path):
                            self._refuse_present(key, path)
                        _rename(temp, path)
                self.sync_directory(os.path.dirname(path))
        return _tag(data)

    def put_if_match(self, key: str, data: bytes, tag: str) -> str:
        path = self.path_of(key)
        with _writing(key, self.url):
            if (path, data) not in self._ready:
                self._compare(key, tag)
            with self._temp_file(path, data) as temp:
                with self._lock(path):
                    self._compare(key, tag)
                    _rename(temp, path)
                self.sync_directory(os.path.dirname(path))
        return _tag(data)

    def put_all(self, objects: Mapping[str, bytes], ahead: Mapping[str, bytes] = MappingProxyType({})) -> None:
        """Write objects under keys that nobody knows yet; all are durable when it returns.

        They are synced with their directories, all at the same time. Until then, and after a crash, some may be missing
        or there in part. `ahead` is what conditional writes bring next: it is made ready with the rest, so that only
        the swap is left to do, and kept until that or until `forget`.
        """
        syncs: dict[str, str] = {}
        there: set[str] = set()
        made: set[str] = set()
        for key, data in objects.items():
            with _writing(key, self.url):
                path = self.path_of(key)
                folders = self._make_folders(os.path.dirname(path), there, made)
                faults.reach("directory: before an object of many")
                _write(path, data)
                faults.reach("directory: object of many written")
                syncs |= {path: key, **dict.fromkeys(folders, key)}
        for key, data in ahead.items():
            with _writing(key, self.url):
                temp = self._ready.setdefault((self.path_of(key), data), self._temp_name())
                _write(temp, data)
                syncs[temp] = key
        faults.reach("directory: many objects written")
        self._sync_all(syncs)
        faults.reach("directory: many objects synced")
        self._synced |= there - made  # those that were made are for these objects, and seldom come again

    def forget(self, ahead: Mapping[str, bytes]) -> None:
        """What was made ready, and was not used, is not needed any more."""
        for key, data in ahead.items():
            temp = self._ready.pop((self.path_of(key), data), None)
            if temp is not None:
                with suppress(OSError):
                    os.unlink(temp)

    def put_unsynced(self, key: str, data: bytes) -> None:
        """Write what can be made anew: after a crash it may be the old one, missing or cut short."""
        path = self.path_of(key)
        with _writing(key, self.url):
            self.make_directory(os.path.dirname(path))
            temp = self._temp_name()
            try:
                _write(temp, data)
                with self._lock(path):
                    _rename(temp, path)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temp)

    def list(self, prefix: str = "", *, after: str | None = None) -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        yield from self._walk(prefix[: prefix.rfind("/") + 1], prefix, after)

    def delete(self, keys: Iterable[str]) -> None:
        changed: set[str] = set()
        for key, path in [(key, self.path_of(key)) for key in keys]:
            with _writing(key, self.url), suppress(FileNotFoundError, NotADirectoryError):
                with self._lock(path):
                    if os.path.isdir(path):
                        continue
                    faults.reach("directory: before unlink")
                    os.unlink(path)
                    faults.reach("directory: unlinked")
                changed.add(os.path.dirname(path))
        for directory in sorted(changed):
            self.sync_directory(directory)

    def settle(self, prefix: str) -> None:
        """A new name is visible before the directory is synced, so that whoever relies on it has to sync, too."""
        folder = os.path.dirname(os.path.join(self._root, prefix))
        if os.path.isdir(folder):
            self.sync_directory(folder)

    def close(self) -> None:
        """Files are open only while they are read or written; there are threads if many were written at once."""
        pool, self._pool = self._pool, None
        if pool is not None and pool[0] == os.getpid():
            pool[1].shutdown()

    # Reading

    def path_of(self, key: str) -> str:
        """The path of an object's file, whether or not it is there. Raises `Invalid` for a key that cannot be one."""
        return os.path.join(self._root, check(key))

    def _read(self, key: str, start: int, length: int | None) -> bytes:
        path = self.path_of(key)
        with _reading(key, self.url), open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            wanted = max(0, size - start if length is None else min(length, size - start))
            parts: list[bytes] = []
            while wanted and (part := os.pread(file.fileno(), wanted, start)):
                parts.append(part)
                start += len(part)
                wanted -= len(part)
            return b"".join(parts) if len(parts) != 1 else parts[0]

    def _fetch(self, fetch: Fetch) -> bytes | StorageError:
        try:
            return self._read(fetch.key, fetch.start, fetch.length)
        except StorageError as error:
            return error

    def _walk(self, base: str, prefix: str, after: str | None) -> Iterator[ObjectInfo]:
        """Objects below the directory `base` ("" or ending in a slash), in key order."""
        try:
            with _reading(base, self.url), os.scandir(os.path.join(self._root, base)) as entries:
                # With its slash, a directory sorts where the keys in it do.
                names = [(f"{base}{entry.name}{'/' if entry.is_dir() else ''}", entry) for entry in entries
                         if entry.name != RESERVED]
        except NotFound:
            return
        for key, entry in sorted(names, key=lambda item: item[0]):
            if key.endswith("/"):
                wanted = key.startswith(prefix) or prefix.startswith(key)
                if wanted and (after is None or key > after or after.startswith(key)):
                    yield from self._walk(key, prefix, after)
            elif key.startswith(prefix) and (after is None or key > after) and problem(key) is None:
                with suppress(FileNotFoundError):
                    status = entry.stat()
                    yield ObjectInfo(key, status.st_size, status.st_mtime)

    # Writing

    @contextmanager
    def _temp_file(self, path: str, data: bytes) -> Iterator[str]:
        """A synced temporary file holding `data`, next to a directory for `path` that is there and synced too."""
        self.make_directory(os.path.dirname(path))
        ready = self._ready.pop((path, data), None)
        temp = ready or self._temp_name()
        faults.reach("directory: before temporary file")
        try:
            if ready is not None:
                yield temp
                return
            with open(temp, "xb", buffering=0) as file:
                faults.reach("directory: temporary file made")
                view = memoryview(data)
                if faults.armed() and len(view) > 1:
                    view = view[file.write(view[: len(view) // 2]) :]
                    faults.reach("directory: temporary file half written")
                while view:
                    view = view[file.write(view) :]
                faults.reach("directory: temporary file written")
                os.fsync(file.fileno())
            faults.reach("directory: temporary file synced")
            yield temp
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temp)
        faults.reach("directory: temporary file removed")

    def _temp_name(self) -> str:
        folder = os.path.join(self._own, "temp")
        self.make_directory(folder)
        return os.path.join(folder, secrets.token_hex(16))

    def _make_folders(self, path: str, there: set[str], made: set[str]) -> set[str]:
        """Make a directory and those above it where missing, without syncing, and return what has to be synced before
        a new name in it is durable. Notes which of them were `there`, maybe not synced by their makers, or `made`."""
        syncs, missing = {path}, []
        while len(path) > len(self._root):
            if not os.path.isdir(path):
                missing.append(path)
            elif path in self._synced:
                break
            else:
                there.add(path)
            path = os.path.dirname(path)
            syncs.add(path)
        self.make_directory(path)
        for folder in reversed(missing):
            _make(folder)
        made.update(missing)
        return syncs

    def _sync_all(self, wanted: Mapping[str, str]) -> None:
        """Sync files and directories at the same time. Each is given with a key to name if it fails."""
        if not wanted:
            return
        if self._pool is None or self._pool[0] != os.getpid():  # threads do not follow into a forked process
            self._pool = (os.getpid(), ThreadPoolExecutor(SYNCS, thread_name_prefix="ontolake-sync"))
        (first, key), *others = wanted.items()
        futures = [self._pool[1].submit(self._sync, path, one) for path, one in others]
        failed: BaseException | None = None
        try:
            self._sync(first, key)
        finally:
            for future in futures:
                failed = failed or future.exception()
        if failed is not None:
            raise failed

    def _sync(self, path: str, key: str) -> None:
        with _writing(key, self.url):
            _sync(path)

    def _compare(self, key: str, tag: str) -> None:
        try:
            current = self.get(key).tag
        except NotFound:
            raise PreconditionFailed(f"object {key!r} in {self.url} is not there", hint="read it again") from None
        if current != tag:
            raise PreconditionFailed(f"object {key!r} in {self.url} has changed", hint="read it again")

    def _refuse_present(self, key: str, path: str) -> Never:
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, "there are objects below this key", path)
        self.sync_directory(os.path.dirname(path))  # the caller may build on what it lost to: make that durable
        raise AlreadyExists(f"object {key!r} is in {self.url} already")

    @contextmanager
    def _lock(self, path: str) -> Iterator[None]:
        """Exclude other threads and processes from changing what is in the directory of `path`.

        The directory itself is locked, so that it is the same lock for a store of all of it or a part.
        """
        descriptor = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            # Unlock before closing: a child forked meanwhile shares the descriptor and would keep the lock.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def make_directory(self, path: str) -> None:
        """Make `path` and the directories above it where missing, durably.

        One that is there may have been made by a process that has not synced it yet, so each is synced once.
        """
        there = os.path.isdir(path)
        if there and path in self._synced:
            return
        if not there or len(path) > len(self._root):
            parent = os.path.dirname(path)
            self.make_directory(parent)
            if not there:
                _make(path)
            self.sync_directory(parent)
        self._synced.add(path)

    def sync_directory(self, path: str) -> None:
        """Make durable which files a directory has."""
        faults.reach("directory: before syncing the directory")
        _sync(path)
        faults.reach("directory: directory synced")

    def _remove_leftovers(self) -> None:
        with suppress(OSError), os.scandir(os.path.join(self._own, "temp")) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.stat().st_mtime < time.time() - LEFTOVER_AGE:
                        os.unlink(entry.path)


def _make(path: str) -> None:
    """Make a directory, unless it is there."""
    faults.reach("directory: before making a directory")
    try:
        os.mkdir(path)
    except FileExistsError:
        if not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, "an object is in the way", path) from None
    faults.reach("directory: directory made")


def _write(path: str, data: bytes) -> None:
    """Write a file that nobody else writes. What an earlier try has left is replaced."""
    with open(path, "wb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _rename(temp: str, path: str) -> None:
    faults.reach("directory: before rename")
    os.replace(temp, path)
    faults.reach("directory: renamed")


def _tag(data: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(data)


def _in_the_way(url: str) -> StorageError | None:
    """Why the directory of a store cannot be made, if it is not there."""
    path = url2pathname(urlsplit(url).path)
    return None if os.path.isdir(path) else obstacle(path)


@contextmanager
def _reading(key: str, url: str) -> Iterator[None]:
    """Turns what the operating system says of a read into what an object store says."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise NotFound(f"no object {key!r} in {url}") from None
    except PermissionError as error:
        raise Invalid(f"no right to read {key!r} in {url}", hint="check who owns the files") from error
    except OSError as error:
        raise Transient(f"cannot read {key!r} in {url}: {error.strerror or error}", hint="check the disk") from error


@contextmanager
def _writing(key: str, url: str) -> Iterator[None]:
    """The same for a write."""
    try:
        yield
    except (IsADirectoryError, NotADirectoryError) as error:
        if told := _in_the_way(url):
            raise told from error
        raise Invalid(f"the key {key!r} cannot be used in {url}: an object is above or below it",
                      hint="no key may be the directory of another") from error
    except PermissionError as error:
        if told := _in_the_way(url):
            raise told from error
        raise Invalid(f"no right to write {key!r} in {url}", hint="check who owns the files") from error
    except OSError as error:
        raise Transient(f"cannot write {key!r} in {url}: {error.strerror or error}", hint="check the disk") from error
