"""Where a graph lives: how Lance and we reach it, and how what Lance wrote is made durable on a local disk."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ontolake import faults, urls
from ontolake.errors import Invalid, NotFound
from ontolake.extras import needs
from ontolake.folders import obstacle
from ontolake.graph.concurrency import begin_sync, sync_all
from ontolake.graph.references import BranchReferences
from ontolake.objects import ObjectStore, open_store
from ontolake.objects.providers import provider_of

if TYPE_CHECKING:
    from lance import LanceDataset

_TOP = 2**64 - 1
_BLOCK = 65_536


def _directory(url: str) -> str:
    """A path without a slash as that of a directory: a graph cannot be anything else. What is a file stays one."""
    plain = isinstance(url, str) and url not in ("", ":memory:") and "://" not in url and not url.endswith("/")
    return f"{url}/" if plain and not url.endswith(urls.SQLITE_SUFFIXES) and not os.path.isfile(url) else url


class GraphPlace:
    """A directory or a bucket. `root` is the address in Lance's words, `store` our own access to the same."""

    def __init__(self, url: str) -> None:
        url = _directory(url)
        location = urls.parse(url)
        if location.seam or location.place not in (urls.Place.DIRECTORY, urls.Place.BUCKET):
            raise Invalid(f"{url!r} is a {location.place}, and a graph lives in a directory or a bucket",
                          hint="use path/, file:///directory or s3://bucket/prefix")
        self.url = url
        self.store: ObjectStore = open_store(url)
        self.options: dict[str, str] | None = None
        self.local = location.place is urls.Place.DIRECTORY
        self._owed: dict[str, list[str]] = {}
        self._ahead: set[str] = set()
        """Files that were made durable before the commit that brings them."""
        self._lock = threading.Lock()
        self._references: dict[str, BranchReferences] = {}
        if self.local:
            self.root = os.path.abspath(location.path)
        else:
            self.root, self.options = provider_of(location).access(location).lance()

    def uri(self, path: str) -> str:
        return f"{self.root}/{path}"

    def lance(self) -> Any:
        """The module, imported when it is needed. Raises `MissingExtra` where it is not installed."""
        os.environ.setdefault("LANCE_LOG", "error")
        with needs("graph", "a graph"):
            import lance
        return lance

    def open(self, path: str, *, block: int = _BLOCK, **options: Any) -> LanceDataset:
        """A dataset below the root, of which at least a `block` of bytes is read at once. Raises what Lance raises."""
        found: LanceDataset = self.lance().dataset(self.uri(path), storage_options=self.options, block_size=block,
                                                   **options)
        return found

    def create(self, path: str, data: Any, **options: Any) -> LanceDataset:
        """A new dataset below the root, with stable row ids, which cannot be added later."""
        lance = self.lance()  # before anything is made
        if self.local:
            try:
                os.makedirs(self.root, exist_ok=True)
            except OSError as error:
                raise obstacle(self.root) or error from error
        found: LanceDataset = lance.write_dataset(
            data, self.uri(path), storage_options=self.options, enable_stable_row_ids=True,
            data_storage_version="2.2", **options)
        return found

    def references(self, path: str) -> BranchReferences:
        """The branches of a dataset below the root."""
        found = self._references.get(path)
        if found is None:
            found = self._references[path] = BranchReferences(os.path.join(self.root, path) if self.local else None)
        return found

    def has_version(self, path: str, line: str | None, version: int) -> bool:
        """Whether a version of a dataset below the root is there, on a line of its versions."""
        folder = path if line is None else f"{path}/tree/{line}"
        key = f"{folder}/_versions/{_TOP - version:020d}.manifest"
        if self.local:
            return os.path.exists(os.path.join(self.root, key))
        try:
            self.store.get_range(key, 0, 1)
        except NotFound:
            return False
        return True

    # What Lance wrote is in the hands of the operating system; a local disk has to be asked for more.

    def settle(
        self, *datasets: LanceDataset, line: str | None = None, newest: tuple[LanceDataset, Any] | None = None
    ) -> None:  # fmt: skip
        """Make commits of datasets durable. Lance syncs nothing on a local disk; buckets need nothing.

        `line` is the branch of Lance that they are on, which a dataset that was checked out does not tell; `newest` is
        a dataset with its transaction, if that is known.
        """
        if self.local:
            faults.reach("graph: before syncing a dataset")
            commits = [*((dataset, None) for dataset in datasets), *([newest] if newest is not None else [])]
            self._sync([path for dataset, made in commits for path in self._brought(dataset, line, made)])
            faults.reach("graph: dataset synced")

    def is_recent(self, dataset: LanceDataset, line: str | None, version: int) -> bool:
        """Whether a commit of a dataset is so young that whoever made it may not have made it durable yet."""
        try:
            made = os.stat(_version_file(dataset, line, version)).st_mtime
        except OSError:
            return False
        return made > time.time() - _YOUNG

    def owe(self, operation: str, dataset: LanceDataset, line: str | None, transaction: Any) -> None:
        """Remember a commit of a dataset as one to be made durable by `pay`, with all others of its operation."""
        if self.local:
            paths = self._brought(dataset, line, transaction)
            with self._lock:
                self._owed.setdefault(operation, []).extend(path for path in paths if path not in self._ahead)
                self._ahead.difference_update(paths)

    def pay(self, operation: str) -> None:
        """Make durable what an operation owes: nothing may point to it before."""
        with self._lock:
            paths = self._owed.pop(operation, [])
        if paths:
            faults.reach("graph: before syncing datasets")
            self._sync(paths)
            faults.reach("graph: datasets synced")

    def settled(
        self, dataset: LanceDataset, line: str | None, write: Callable[[Callable[[Sequence[Any]], None] | None], Any]
    ) -> Any:  # fmt: skip
        """The transaction that `write` returns, not committed yet, with its files made durable.

        Those of fragments that `write` tells of are synced while it goes on.
        """
        if not self.local:
            return write(None)
        folder = _folder(dataset, line)
        begun: dict[str, Future[bool]] = {}

        def told(fragments: Sequence[Any]) -> None:
            for fragment in fragments:
                for file in fragment.files:
                    path = os.path.join(folder, "data", file.path)
                    begun[path] = begin_sync(path)

        try:
            transaction = write(told)
        finally:
            wait(begun.values())
        done = {path for path, future in begun.items() if future.result()}
        files = [os.path.join(folder, name) for name in _written(transaction.operation, folder)]
        self._sync(f"{os.path.dirname(file)}/" if file in done else file for file in files)
        with self._lock:
            self._ahead.update(files)
        return transaction

    def remove_files(self, dataset: LanceDataset, line: str | None, transaction: Any) -> None:
        """Remove the data files of a transaction that will not be committed."""
        folder = _folder(dataset, line)
        files = [os.path.join(folder, name) for name in _written(transaction.operation, folder)]
        with self._lock:
            self._ahead.difference_update(files)
        self.store.delete([file.removeprefix(self.root).strip("/") for file in files])

    def put_owed(self, operation: str, key: str, data: bytes) -> None:
        """Write an object that is there whole at once; on a local disk it is made durable by `pay`."""
        if not self.local:
            self.store.put(key, data)
            return
        path = os.path.join(self.root, key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(f"{path}{UNFINISHED}", "wb") as file:
            file.write(data)
        faults.reach("graph: object written")
        os.replace(f"{path}{UNFINISHED}", path)
        with self._lock:
            self._owed.setdefault(operation, []).append(path)

    def write_off(self, operation: str) -> None:
        """Nothing will point to what an operation owes."""
        with self._lock:
            self._owed.pop(operation, None)

    def remove_lazily(self, key: str) -> None:
        """Remove an object that does no harm if a crash of the machine brings it back."""
        if not self.local:
            self.store.delete([key])
            return
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self.root, key))

    def settle_files(self, keys: Iterable[str]) -> None:
        """Make files below the root durable that Lance wrote, and that no commit of it brings."""
        if self.local:
            self._sync([os.path.join(self.root, key) for key in keys])

    def settle_reference(
        self, path: str, name: str | None, made: LanceDataset | None, kind: str = "branches"
    ) -> None:  # fmt: skip
        """Make a branch or tag of a dataset durable, with what was made for it; without a name, that one is gone."""
        if self.local:
            folder = os.path.join(self.root, path, "_refs", kind)
            files = self._brought(made, name, None) if made is not None else []
            self._sync([os.path.join(folder, f"{name}.json" if name is not None else ""), *files])

    def _brought(self, dataset: LanceDataset, line: str | None, transaction: Any) -> list[str]:
        """The files of the newest commit of a dataset. The transaction is read if it is not given."""
        folder = _folder(dataset, line)
        names = [_version_file(dataset, line, dataset.version)]
        if transaction is None:
            try:
                transaction = dataset.read_transaction(dataset.version)
            except TypeError:  # pylance cannot show a compaction that took indexes along
                names.extend(_recent(folder))
        if transaction is not None:
            names.append(f"_transactions/{transaction.read_version}-{transaction.uuid}.txn")
            names.extend(_written(transaction.operation, folder))
        return [os.path.join(folder, name) for name in names]

    def _sync(self, files: Iterable[str]) -> None:
        """Sync files, the directories that they are in, and those that were new up to the root and beyond."""
        paths: dict[str, None] = {}
        new: dict[str, int] = {}
        for file in files:
            if file[-1:] != "/":
                paths[file] = None
            folder = os.path.dirname(file)
            if folder in paths:
                continue
            paths[folder] = None
            while len(folder) >= len(self.root) and (here := _inode(folder)) != _settled.get(folder, -1):
                new[folder] = here
                folder = os.path.dirname(folder)
                paths[folder] = None
        sync_all(paths)
        _settled.update(new)


UNFINISHED = ".unfinished"
_YOUNG = 60.0
_settled: dict[str, int] = {}
"""Directories whose own names are durable, by the number that tells them from others of their name."""


def version_number(name: str) -> int | None:
    """The version that a file of Lance describes, by the name of the file; None if it is another one."""
    number, _, ending = name.partition(".")
    return _TOP - int(number) if ending == "manifest" and number.isdigit() and len(number) == 20 else None


def _folder(dataset: LanceDataset, line: str | None) -> str:
    """Where the files of a dataset are. One that was checked out from a branch says where it came from instead."""
    found = str(dataset.uri.removeprefix("file://"))
    return found if line is None or found.endswith(f"/tree/{line}") else f"{found}/tree/{line}"


def _version_file(dataset: LanceDataset, line: str | None, version: int) -> str:
    return os.path.join(_folder(dataset, line), "_versions", f"{_TOP - version:020d}.manifest")


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return -1


def _written(operation: Any, folder: str) -> Iterator[str]:
    """The files that an operation brought: data, deletions, indexes."""
    groups = getattr(operation, "groups", ())
    new = [*getattr(operation, "fragments", ()), *getattr(operation, "new_fragments", ()),
           *(fragment for group in groups for fragment in group.new_fragments)]  # fmt: skip
    for fragment in new:
        for file in fragment.files:
            yield f"data/{file.path}"
    changed: Iterable[Any] = getattr(operation, "updated_fragments", ())
    for fragment in (*new, *changed):
        if fragment.deletion_file is not None:
            yield str(fragment.deletion_file.path(fragment.id))
    indexes = (*getattr(operation, "new_indices", ()), *getattr(operation, "rewritten_indices", ()))
    for index in indexes:
        name = str(getattr(index, "new_id", None) or getattr(index, "uuid", ""))
        path = os.path.join(folder, "_indices", name)
        if name and os.path.isdir(path):
            for entry in os.scandir(path):
                yield entry.path
            yield path


def _recent(folder: str) -> Iterator[str]:
    """Data and index files of the last minutes, where it is not known which of them are new."""
    for kind in ("data", "_indices", "_deletions"):
        for path, _, files in os.walk(os.path.join(folder, kind)):
            for name in files:
                full = os.path.join(path, name)
                if os.stat(full).st_mtime > time.time() - 600:
                    yield full
