"""Where a graph lives: how Lance and we reach it, and how what Lance wrote is made durable on a local disk."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ontolake import faults, urls
from ontolake.errors import Invalid
from ontolake.objects import ObjectStore, open_store

if TYPE_CHECKING:
    from lance import LanceDataset

_TOP = 2**64 - 1


class Place:
    """A directory or a bucket. `root` is the address in Lance's words, `store` our own access to the same."""

    def __init__(self, url: str) -> None:
        location = urls.parse(url)
        if location.seam or location.place not in (urls.Place.DIRECTORY, urls.Place.BUCKET):
            raise Invalid(f"{url!r} is a {location.place}, and a graph lives in a directory or a bucket",
                          hint="use path/, file:///directory or s3://bucket/prefix")
        self.url = url
        self.store: ObjectStore = open_store(url)
        self.options: dict[str, str] | None = None
        self.local = location.place is urls.Place.DIRECTORY
        if self.local:
            self.root = os.path.abspath(location.path)
        else:
            scheme = "gs" if location.scheme == "gs" else "s3"
            self.root = f"{scheme}://{location.bucket}/{location.path}".rstrip("/")
            if scheme == "s3":
                from ontolake.objects.credentials import Credentials

                self.options = Credentials.from_env(location).lance(location.bucket)

    def uri(self, path: str) -> str:
        return f"{self.root}/{path}"

    def lance(self) -> Any:
        """The module, imported when it is needed. Raises `Invalid` where it is not installed."""
        os.environ.setdefault("LANCE_LOG", "error")
        try:
            import lance
        except ModuleNotFoundError as error:
            if error.name != "lance":
                raise
            raise Invalid("graphs need the package pylance, which is not installed",
                          hint="install it with: pip install 'ontolake[graph]'") from error
        return lance

    def open(self, path: str, **options: Any) -> LanceDataset:
        """A dataset below the root. Raises what Lance raises."""
        found: LanceDataset = self.lance().dataset(self.uri(path), storage_options=self.options, **options)
        return found

    def create(self, path: str, data: Any, **options: Any) -> LanceDataset:
        """A new dataset below the root, with stable row ids, which cannot be added later."""
        if self.local:
            os.makedirs(self.root, exist_ok=True)
        found: LanceDataset = self.lance().write_dataset(
            data, self.uri(path), storage_options=self.options, enable_stable_row_ids=True,
            data_storage_version="2.2", **options)
        return found

    def settle(self, dataset: LanceDataset) -> None:
        """Make the newest commit of a dataset durable. Lance syncs nothing on a local disk; buckets need nothing."""
        if not self.local:
            return
        faults.reach("graph: before syncing a dataset")
        version = dataset.version
        folder = dataset.uri.removeprefix("file://")
        touched: set[str] = set()
        names = [f"_versions/{_TOP - version:020d}.manifest"]
        try:
            transaction = dataset.read_transaction(version)
        except TypeError:  # pylance cannot show a compaction that took indexes along
            transaction = None
            names.extend(_recent(folder))
        if transaction is not None:
            names.append(f"_transactions/{transaction.read_version}-{transaction.uuid}.txn")
            names.extend(_written(transaction.operation, folder))
        for name in names:
            path = name if name.startswith("/") else os.path.join(folder, name)
            if _sync(path):
                touched.add(os.path.dirname(path))
        for path in sorted(touched):
            _sync(path)
        self._settle_folder(folder)
        faults.reach("graph: dataset synced")

    def _settle_folder(self, folder: str) -> None:
        """The directories from a dataset up to the root: a new one must not vanish."""
        if folder in _settled:
            return
        path = folder
        while len(path) >= len(self.root):
            _sync(path)
            path = os.path.dirname(path)
        _sync(path)
        _settled.add(folder)

    def settle_reference(self, path: str, name: str | None, kind: str = "branches") -> None:
        """Make a new branch or tag of a dataset durable, or without a name that one is gone."""
        if self.local:
            refs = os.path.join(self.root, path, "_refs")
            if name is not None:
                _sync(os.path.join(refs, kind, f"{name}.json"))
            _sync(os.path.join(refs, kind))
            if refs not in _settled:
                _settled.add(refs)
                _sync(refs)
                _sync(os.path.dirname(refs))


_settled: set[str] = set()


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
            yield str(fragment.deletion_file.path(fragment.id, folder))
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


def _sync(path: str) -> bool:
    """Sync a file or directory; False if it is not there."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True
