"""One seam for whoever reads and writes in parallel: a layout gives splits to read, and takes fragments to publish.

A reader asks for the splits of a table at a moment that was pinned once; each split is small, can be pickled, and is
read anywhere into Arrow batches. A writer stages batches as files beside the store, where nobody sees them, and
publishes them once, by the layout's own commit. What failed or repeated tasks staged is never published; `clean`,
and with it `onto gc`, removes it.
"""

from __future__ import annotations

import io
import itertools
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    TypeVar,
    assert_never,
    get_args,
    runtime_checkable,
)
from urllib.parse import quote

from ontolake import urls
from ontolake.errors import Invalid, NotFound
from ontolake.faults import reach
from ontolake.history import Commit, Garbage
from ontolake.urls import absolute as absolute

if TYPE_CHECKING:
    import pyarrow as pa

    from ontolake.model.scalars import Scalar
    from ontolake.objects import ObjectStore
    from ontolake.objects.store import ObjectInfo

T = TypeVar("T")
R = TypeVar("R")

Mode = Literal["latest", "history", "changes"]
MODES: tuple[Mode, ...] = ("latest", "history", "changes")
CHANGE = "change"
"""The column that says what became of a row, where changes are read."""
DELETED = "deleted"
"""The column that says whether a state is the end of its row, where a history that keeps deletions is read."""
COMMIT = "commit_id"
"""The column that says which commit wrote a row."""

BATCH = 65_536
PARTS = 8
"""Default maximum number of splits."""
LEAST = 4096
"""A split of fewer rows is not worth a task of its own."""
ABANDONED = 24 * 3600.0
"""A job that has written nothing for so many seconds counts as given up."""
_SORTED_ROWS, _SORTED_BYTES = 1 << 21, 256 << 20
"""A worker holds and sorts about so many rows at a time, whichever is reached first."""


FilterOp = Literal["==", "<", "<=", ">", ">=", "in", "startswith", "is_null", "is_not_null"]
OPERATORS: tuple[FilterOp, ...] = get_args(FilterOp)


class Filter(NamedTuple):
    """A condition on one column. Layouts match on `op` and end with `assert_never`.

    Splits may leave rows in that do not fulfil a filter, but never leave one out that does: whoever reads asks again.
    """

    column: str
    op: FilterOp
    value: Any = None

    @property
    def values(self) -> list[Any]:
        """The values that the column is compared with, any of which may do."""
        match self.op:
            case "in":
                return list(self.value)
            case "==" | "<" | "<=" | ">" | ">=" | "startswith":
                return [self.value]
            case "is_null" | "is_not_null":
                return []
            case _:
                assert_never(self.op)


class View(NamedTuple):
    """Which rows of a table: those of one commit, every state up to it, or what changed in `(since, commit]`."""

    commit: int
    mode: Mode = "latest"
    since: int = 0


class Split(Protocol):
    """A part of a table at a moment. Small and picklable."""

    @property
    def rows(self) -> int:
        """About how many rows it has, before filters."""
        ...

    def read(self) -> Iterator[pa.RecordBatch]:
        """Its rows, in the columns that were asked for, wherever this is called. Raises what the store raises."""
        ...


class Fragment(NamedTuple):
    """Rows of a table that are staged: a Parquet file that belongs to no commit yet."""

    table: str
    place: str
    key: str
    rows: int
    bytes: int
    told: str = ""
    """What a `Shape` has to say of a file that has the form of the store's own; empty for any other file."""

    @property
    def shaped(self) -> bool:
        """Whether it has the form of files of the store itself."""
        return bool(self.told)

    def read(self) -> pa.Table:
        """The rows. Raises `NotFound` if they were cleaned up meanwhile."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        store = _store(self.place)
        try:
            return pq.read_table(pa.BufferReader(store.get(self.key).data))
        finally:
            store.close()


class ShapedFile(NamedTuple):
    """A file in the form of a store's own: how many rows it has, its bytes, and what is to be known to publish it."""

    rows: int
    data: bytes
    told: str


class Shape(Protocol):
    """The form that files of a store have, for whoever stages rows that are to become such files."""

    def files(self, rows: pa.Table, part: int, before: int) -> Iterable[ShapedFile] | None:
        """Rows of task number `part`, which has staged `before` others already, as files; None if they do not fit."""
        ...


class Removal(NamedTuple):
    """Rows of a table that are to be deleted: staged files with their keys. With `cascade` relations that lead to them
    go with them."""

    fragments: Sequence[Fragment]
    cascade: bool = False


NO_REMOVALS: Mapping[str, Removal] = MappingProxyType({})


class IrremovableError(Invalid):
    """Rows of a store cannot be deleted by publishing."""

    def __init__(self, what: str) -> None:
        super().__init__(f"rows of {what} cannot be deleted by publishing",
                         hint="those of typed stores of engine v3 and of graphs can; delete others by their own means")


class Published(NamedTuple):
    """What came of publishing: the commit, None if nothing differed, and how many rows were written and deleted, by
    table."""

    commit: int | None
    written: Mapping[str, int]
    deleted: Mapping[str, int] = MappingProxyType({})


class Parallel(Protocol):
    """What a layout offers to parallel readers and writers."""

    model: ClassVar[str]
    """The name of the store's model in `ontolake.stores`."""
    url: str

    def head(self) -> int:
        """The newest commit; 0 if there is none."""
        ...

    def tables(self) -> Sequence[str]: ...

    def schema(self, table: str, mode: Mode = "latest", view: View | None = None) -> pa.Schema:
        """The columns that reading gives, now or at a moment. Raises `NotFound` for a table that is not there."""
        ...

    def view(
        self, *, as_of: int | str | None = None, mode: Mode = "latest", since: int | str | None = None
    ) -> View:  # fmt: skip
        """Pin a moment: the newest commit, or that of `as_of`, by its number, or its name where commits have names.

        A typed store with branches takes a tag, a time or another reference, too. Raises `NotFound` for a commit that
        is not there, `Invalid` if it cannot be the id of one.
        """
        ...

    def splits(
        self, table: str, view: View, columns: Sequence[str] | None = None, filters: Sequence[Filter] = (), *,
        parts: int | None = None,
    ) -> Sequence[Split]:  # fmt: skip
        """About `parts` splits that together are the rows; unless given, as many as are worth it.

        Raises `NotFound` for tables and columns that are not there.
        """
        ...

    def keys(self, table: str) -> Sequence[str]:
        """The columns that name a row."""
        ...

    def scalars(self) -> Sequence[Scalar]:
        """The scalars of users that whoever opens the store has to know."""
        ...

    def takes(self, table: str) -> Mapping[str, bool]:
        """The columns that can be written; true for those that must be given."""
        ...

    def commits(self, *, since: int = 0, until: int | None = None) -> Iterator[Commit[int]]:
        """The commits in `(since, until]` with their metadata, newest first."""
        ...

    def shape(self, table: str) -> Shape | None:
        """The form in which rows can be staged so that they are published as they are; None where there is none."""
        ...

    def check_removable(self) -> None:
        """Raise `Invalid` if rows cannot be deleted by `publish`."""
        ...

    def publish(
        self, fragments: Sequence[Fragment], *, metadata: Mapping[str, Any] | None = None,
        expected: int | None = None, removals: Mapping[str, Removal] = ...,
    ) -> Published:  # fmt: skip
        """Make what differs from the latest state one commit, all tables or nothing. `removals` are by table.

        How many rows were deleted is in the metadata, too. Raises `Conflict` if `expected` is given and another commit
        came behind it, and `Invalid` for removals if rows cannot be deleted, or relations lead to them.
        """
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


def open_parallel(
    url: str, *, branch: str | None = None, write: bool = False, types: Iterable[Any] = ()
) -> Parallel:  # fmt: skip
    """The store at `url` as parallel readers and writers see it.

    With `types` and `write`, a typed store is started where there is none. Raises `NotFound` if nothing is there,
    `Invalid` for what cannot be read in parallel.
    """
    from ontolake import stores

    classes = tuple(types)
    try:
        store = stores.find_shared(url)
    except NotFound:
        if not (classes and write):
            raise
        return stores.TYPED.opener.open_parallel(absolute(url), write=True, branch=branch, types=classes)
    return store.open_parallel(write=write, branch=branch, types=classes)


# jobs


@runtime_checkable
class Workers(Protocol):
    """Whoever does the parts of a job."""

    parts: int
    """About how many parts to cut a job into."""

    def run(self, work: Callable[[T], R], items: Sequence[T], *, code: Iterable[Any] = ()) -> list[R]:
        """What `work` returns for each item. `code` has classes and functions of the user's that items refer to.

        Raises what `work` raises, once nothing is done any more.
        """
        ...


class Here:
    """This process, one part after the other."""

    def __init__(self, parts: int = 1) -> None:
        self.parts = parts

    def run(self, work: Callable[[T], R], items: Sequence[T], *, code: Iterable[Any] = ()) -> list[R]:
        return [work(item) for item in items]


# staging


def beside(url: str) -> str:
    """Where work on a store keeps its files until they are published: next to the store, never inside it."""
    location = urls.parse(absolute(url))
    files = (urls.Place.SQLITE, urls.Place.PAGE_FILE, urls.Place.DIRECTORY)
    if location.place in files and location.path != ":memory:":
        return f"file://{quote(location.path)}-work"
    if location.place is urls.Place.BUCKET:
        return f"{location.scheme}://{location.bucket}/{location.path or 'store'}-work"
    raise Invalid(f"{url!r} is in the memory of one process: nothing can be staged beside it",
                  hint="use a file, a directory or a bucket")


def new_job() -> str:
    """A name for the files of one job. Names sort by time."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:8]}"


def stage(url: str, table: str, batches: Iterable[pa.RecordBatch], *, job: str) -> Fragment | None:
    """Write batches as one file of a job, on a worker. None if there are no rows."""
    import pyarrow.parquet as pq

    sink, writer, rows = io.BytesIO(), None, 0
    try:
        for batch in batches:
            if batch.num_rows:
                if writer is None:
                    writer = pq.ParquetWriter(sink, batch.schema, compression="snappy")
                writer.write_batch(batch)
                rows += batch.num_rows
    finally:
        if writer is not None:
            writer.close()
    return None if writer is None else _put(url, table, ShapedFile(rows, sink.getvalue(), ""), job)


def stage_shaped(
    url: str, table: str, batches: Iterable[pa.RecordBatch], *, job: str, shape: Shape | None, part: int = 0
) -> list[Fragment]:  # fmt: skip
    """Write batches as files of a job, in the form of the store's own if they fit; `part` is the number of the task."""
    if shape is None:
        found = stage(url, table, batches, job=job)
        return [] if found is None else [found]
    fragments: list[Fragment] = []
    before = 0
    for some in _some_at_a_time(batches):
        files = shape.files(some, part, before)
        fragments += ([_put(url, table, one, job) for one in files] if files is not None else
                      stage_shaped(url, table, some.to_batches(), job=job, shape=None))
        before += len(some)
    return fragments


def _some_at_a_time(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """As many rows as a worker sorts in memory."""
    import pyarrow as pa

    some: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows:
            some.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _SORTED_ROWS or size >= _SORTED_BYTES:
            yield pa.Table.from_batches(some)
            some, rows, size = [], 0, 0
    if some:
        yield pa.Table.from_batches(some)


def _put(url: str, table: str, made: ShapedFile, job: str) -> Fragment:
    place, key = beside(url), f"{job}/staged/{table}/{uuid.uuid4().hex}.parquet"
    store = _store(place)
    try:
        reach("parallel: before a fragment is staged")
        store.put(key, made.data)
        reach("parallel: fragment staged")
    finally:
        store.close()
    return Fragment(table, place, key, made.rows, len(made.data), made.told)


def staged(url: str, table: str, *, job: str) -> list[Fragment]:
    """The files that somebody else has written for a table of a job, such as Spark by itself."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = beside(url)
    store = _store(place)
    try:
        found = []
        for info in store.list(f"{job}/staged/{table}/"):
            if info.key.endswith(".parquet") and not _hidden(info.key.removeprefix(f"{job}/staged/{table}/")):
                tail = store.get_range(info.key, max(0, info.size - (64 << 10)), 64 << 10)
                try:
                    rows = pq.ParquetFile(pa.BufferReader(tail)).metadata.num_rows
                except (pa.ArrowInvalid, OSError):  # the directory is longer than what was read of it
                    rows = pq.ParquetFile(pa.BufferReader(store.get(info.key).data)).metadata.num_rows
                if rows:
                    found.append(Fragment(table, place, info.key, rows, info.size))
        return found
    finally:
        store.close()


def _hidden(path: str) -> bool:
    """Whether a file belongs to an attempt: Spark keeps them in `_temporary`, where one that lost may still write."""
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def forget(fragments: Sequence[Fragment]) -> None:
    """Remove staged rows that will not be published."""
    if fragments:
        store = _store(fragments[0].place)
        try:
            store.delete([one.key for one in fragments])
        finally:
            store.close()


def discard(url: str, job: str) -> None:
    """Remove what a job has staged, once it is published or given up by whoever started it."""
    store = _store(beside(url))
    try:
        store.delete([info.key for info in store.list(f"{job}/staged/")])
    finally:
        store.close()


def clean(url: str, *, older: float = ABANDONED, dry_run: bool = True) -> Garbage:
    """Find, and unless it is a dry run remove, what was staged by jobs that have written nothing for `older` seconds.

    As long as a job goes on writing, nothing of it is touched, however old. A job that is slower than that finds its
    rows gone when it publishes, and publishes nothing.
    """
    if older < 0:
        raise Invalid(f"older is a number of seconds, not {older!r}")
    store = _store(beside(url))
    try:
        limit = time.time() - older
        found: list[ObjectInfo] = []
        for _, listed in itertools.groupby(store.list(), lambda info: info.key.partition("/")[0]):
            files = list(listed)
            if all(info.modified <= limit for info in files):
                found += [info for info in files if "/staged/" in info.key]
        if not dry_run:
            store.delete([info.key for info in found])
        return Garbage(len(found), sum(info.size for info in found))
    finally:
        store.close()


def _store(place: str) -> ObjectStore:
    from ontolake.objects import open_store

    return open_store(place)


def check_mode(mode: str) -> None:
    """Raise `Invalid` for a mode that there is not."""
    if mode not in MODES:
        raise Invalid(f"there is no mode {mode!r}", hint=f"write {', '.join(MODES)}")


def worth(rows: int, parts: int | None) -> int:
    """Into how many splits to cut so many rows, if a reader asks for `parts` of them or for none."""
    return parts or max(1, min(PARTS, rows // LEAST))


def number(commit: int | str | None) -> int | None:
    """A commit where they are numbers. Raises `Invalid` for another word."""
    if commit is None or (isinstance(commit, int) and not isinstance(commit, bool)):
        return commit
    raise Invalid(f"a commit is a number here, not {commit!r}")


def past_schema(fields: Sequence[pa.Field], mode: Mode) -> pa.Schema:
    """The columns of a table, and those that reading its past adds: what became of a row in front, its commit behind.

    A name that a column of the table has begins with an underscore then.
    """
    import pyarrow as pa

    if mode == "latest":
        return pa.schema(fields)
    names = {field.name for field in fields}
    behind = [pa.field(_free(COMMIT, names), pa.int64())]
    return pa.schema([*([pa.field(_free(CHANGE, names), pa.string())] if mode == "changes" else []), *fields, *behind])


def _free(name: str, names: set[str]) -> str:
    return name if name not in names else f"_{name}"


def with_past(
    rows: pa.Table, kinds: Sequence[str], commit: int, mode: Mode, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """What a commit did to rows as batches of `past_schema`. Of history, rows that are gone are no part."""
    import pyarrow as pa

    schema = past_schema(list(rows.schema), mode)
    told = pa.array(kinds, pa.string())
    commits = pa.array([commit] * len(rows), pa.int64())
    arrays = [*([told] if mode == "changes" else []), *rows.columns, commits]
    shown = pa.Table.from_arrays(arrays, schema=schema)
    if mode == "history":
        import pyarrow.compute as pc

        shown = shown.filter(pc.not_equal(told, "delete"))
    if len(shown):
        yield from shown.select(list(columns)).combine_chunks().to_batches(max_chunksize=BATCH)


def read_by_table(fragments: Iterable[Fragment]) -> dict[str, pa.Table]:
    """What is staged, as one table for each that it belongs to. Raises `NotFound` for what was cleaned up."""
    import pyarrow as pa

    found: dict[str, list[pa.Table]] = {}
    for fragment in fragments:
        found.setdefault(fragment.table, []).append(fragment.read())
    return {name: pa.concat_tables(parts, promote_options="default") for name, parts in found.items()}


def without_past(table: pa.Table, names: Collection[str]) -> pa.Table:
    """Rows without what reading the past had added to them, unless the table has columns of that name."""
    extra = [name for name in (CHANGE, COMMIT) if name in table.column_names and name not in names]
    return table.drop_columns(extra) if extra else table


def chosen(schema: pa.Schema, columns: Sequence[str] | None, filters: Sequence[Filter], table: str) -> list[str]:
    """The columns that are read. Raises `NotFound` for one that the table does not have."""
    for name in (*(columns or ()), *(one.column for one in filters)):
        if name not in schema.names:
            raise NotFound(f"{table} has no column {name!r}", hint=f"it has {', '.join(schema.names)}")
    return list(schema.names if columns is None else columns)
