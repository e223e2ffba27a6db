"""Where rows with some keys are or were: in which files of a table, whatever version has them, deleted or not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ontolake.arrow_keys import contains
from ontolake.errors import NotFound
from ontolake.graph.errors import DamagedGraphError, reading
from ontolake.graph.place import GraphPlace, version_number
from ontolake.graph.tables.datasets import are_among
from ontolake.lance_versions import VersionFile

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

_PARTS = re.compile(r"(?:tree/(?P<line>.+)/)?(?P<kind>_versions|data|_indices|_deletions)/(?P<name>[^/]+)(?:/[^/]+)?")

Line = str | None
Offsets = frozenset[int]
"""Rows of a data file, by their numbers."""


class TableFile(NamedTuple):
    """A file of a table: its key in the store, and the line in whose folder it is."""

    key: str
    line: Line


class TableFiles:
    """All files of a table, on all lines, as they are listed at one moment. Raises `DamagedGraphError`."""

    def __init__(self, place: GraphPlace, location: str) -> None:
        self.place, self.location = place, location
        self.data: dict[str, TableFile] = {}
        """By name: no two data files have the same."""
        self.indexes: dict[str, list[str]] = {}
        """The keys of the files of each part of an index, by its id."""
        self.deletions: set[str] = set()
        self.versions: dict[tuple[Line, int], VersionFile] = {}
        self.version_keys: dict[tuple[Line, int], str] = {}
        for info in list(place.store.list(f"{location}/")):
            match = _PARTS.fullmatch(info.key, len(location) + 1)
            if match is None:
                continue
            line, kind, name = match["line"], match["kind"], match["name"]
            if kind == "data":
                self.data[name] = TableFile(info.key, line)
            elif kind == "_indices":
                self.indexes.setdefault(name, []).append(info.key)
            elif kind == "_deletions":
                self.deletions.add(info.key)
            elif (version := version_number(name)) is not None:
                self.version_keys[line, version] = info.key
        for where, key in sorted(self.version_keys.items(), key=lambda item: (item[0][0] or "", item[0][1])):
            try:
                self.versions[where] = VersionFile(place.store.get(key).data)
            except NotFound:
                continue  # removed by a cleanup since
            except ValueError as error:
                raise DamagedGraphError(f"{key} cannot be read: {error}", hint="onto graph repair says what is wrong",
                                        ) from error  # fmt: skip

    def referenced(self) -> set[str]:
        """The data files that some version has."""
        return {name for one in self.versions.values() for fragment in one.fragments for name in fragment.files}

    def left_indexes(self) -> set[str]:
        """Parts of indexes that versions had and none has any more. What somebody has just made is not among them."""
        used = {id for version in self.versions.values() for id in version.indexes}
        return {id for id in self.indexes.keys() - used if any(one.brought(id) for one in self.versions.values())}


class RowSearch:
    """Looks for rows of a table by the values of columns. Files that were looked into once are not read again."""

    def __init__(self, place: GraphPlace, wanted: Sequence[pa.Table]) -> None:
        """`wanted` are keys as tables; each may have columns of its own, as the table had at some time."""
        self._place, self._wanted = place, wanted
        self._found: dict[str, Offsets] = {}
        self._keyless: set[str] = set()
        self.read: list[str] = []
        """The data files that were read."""

    def ask(self, dataset: LanceDataset) -> None:
        """Learn what the indexes of a version tell of fragments without deleted rows: their files need no reading."""
        names = set(dataset.schema.names)
        wanted = [keys for keys in self._wanted if names.issuperset(keys.column_names)]
        columns = {name for keys in wanted for name in keys.column_names}
        covered: list[set[int]] = []
        for name in columns:
            parts = [segment for index in dataset.describe_indices() if index.field_names == [name]
                     and "BTree" in index.type_url for segment in index.segments]  # fmt: skip
            covered.append({id for part in parts for id in part.fragment_ids})
        known = set.intersection(*covered) if covered else set()
        whole = {fragment.fragment_id: [file.path for file in fragment.metadata.files]
                 for fragment in dataset.get_fragments()
                 if fragment.fragment_id in known and fragment.metadata.deletion_file is None}  # fmt: skip
        if not whole:
            return
        held: dict[int, set[int]] = {}
        for keys in wanted:
            found = dataset.scanner(columns=list(keys.column_names), filter=are_among(keys.column_names, keys),
                                    with_row_address=True, fast_search=True).to_table()  # fmt: skip
            found = found.filter(contains(keys, found, keys.column_names))
            for address in found.column("_rowaddr").to_pylist():
                held.setdefault(address >> 32, set()).add(address & 0xFFFFFFFF)
        for id, files in whole.items():
            if id not in held:
                self._found |= dict.fromkeys(files, frozenset())

    def look(self, files: TableFiles) -> dict[str, Offsets]:
        """The data files that hold such rows, with their numbers; files of columns that were added later included."""
        referenced = files.referenced()
        for name, stored in files.data.items():
            if name not in self._found:
                try:
                    self._found[name] = self._look_into(name, stored.key)
                except DamagedGraphError:
                    if name in referenced:
                        raise
                    self._found[name] = frozenset()  # the writing of it was cut off, or goes on
                    self._keyless.add(name)
        held = {name: self._found[name] for name in files.data if self._found[name]}
        for version in files.versions.values():
            for fragment in version.fragments:
                rows = frozenset().union(*(self._found.get(name, frozenset()) for name in fragment.files))
                if rows:
                    held |= {name: held.get(name, frozenset()) | rows for name in fragment.files}
        return held

    def own(self, held: Mapping[str, Offsets]) -> dict[str, Offsets]:
        """Of files that hold rows, those in which the keys themselves are: each of their rows counts once."""
        return {name: rows for name in held if (rows := self._found.get(name, frozenset()))}

    def is_keyless(self, name: str) -> bool:
        """Whether a file has no keys that could be read, and so does not tell whose rows it has."""
        return name in self._keyless

    def _look_into(self, name: str, key: str) -> Offsets:
        self.read.append(name)
        with reading(key):
            schema = open_file(self._place, key).metadata().schema
            found: set[int] = set()
            fitting = [cast for keys in self._wanted if (cast := _as_in(keys, schema)) is not None]
            if not any(set(keys.column_names) <= set(schema.names) for keys in self._wanted):
                self._keyless.add(name)
            for keys in fitting:
                start = 0
                for batch in batches(open_file(self._place, key, keys.column_names)):
                    there = contains(keys, batch, keys.column_names)
                    found.update(start + int(row) for row in np.flatnonzero(there))
                    start += batch.num_rows
        return frozenset(found)


def _as_in(keys: pa.Table, schema: pa.Schema) -> pa.Table | None:
    """Keys in the types that a file has; None if it has no such columns, or none that could have the values."""
    import pyarrow as pa

    if not set(keys.column_names) <= set(schema.names):
        return None
    try:
        return keys.cast(pa.schema([pa.field(name, schema.field(name).type) for name in keys.column_names]))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def open_file(place: GraphPlace, key: str, columns: Sequence[str] | None = None) -> Any:
    """A data file by itself, whatever version it is in."""
    place.lance()
    from lance.file import LanceFileReader

    return LanceFileReader(place.uri(key), storage_options=place.options,
                           columns=list(columns) if columns is not None else None)  # fmt: skip


def batches(reader: Any, rows: int = 65_536) -> Iterator[pa.Table]:
    """The rows of a data file in their order, deleted ones too."""
    import pyarrow as pa

    for batch in reader.read_all(batch_size=rows).to_batches():
        yield pa.Table.from_batches([batch])


def size_of(place: GraphPlace, files: TableFiles, held: Mapping[str, Offsets]) -> int:
    """The bytes that rows take, when they are read."""
    found = (open_file(place, files.data[name].key).take_rows(sorted(rows)).to_table() for name, rows in held.items()
             if name in files.data)  # fmt: skip
    return sum(int(table.nbytes) for table in found)


def lines_of(files: TableFiles, names: Iterable[str]) -> set[Line]:
    """The lines in whose folders some data files are."""
    return {files.data[name].line for name in names if name in files.data}
