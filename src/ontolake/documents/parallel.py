"""Documents for parallel readers and writers: splits are ranges of ids, publishing is one transaction.

The table `documents` has the columns `id`, `document` (JSON) and `commit_id`, the commit that touched it last. Where
history or changes are read, a document that was deleted is null.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ontolake.documents.commits import Commit
from ontolake.documents.errors import InvalidOperationError, PreconditionFailedError
from ontolake.documents.history.references import FIRST
from ontolake.documents.operations import Delete, HeadIs, Operation, Set
from ontolake.documents.places import space_name
from ontolake.documents.read.feed import TABLE
from ontolake.documents.space import Space
from ontolake.documents.values import codec
from ontolake.errors import Conflict, NotFound
from ontolake.history import metadata as metadata_keys
from ontolake.parallel import (
    BATCH,
    CHANGE,
    NO_REMOVALS,
    Filter,
    Fragment,
    IrremovableError,
    Mode,
    Published,
    Removal,
    Shape,
    Split,
    View,
    check_mode,
    chosen,
    number,
    worth,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from ontolake.model.scalars import Scalar

_PAGE = 2_000


def schema(mode: Mode) -> pa.Schema:
    """The columns of `documents`."""
    import pyarrow as pa

    fields = [pa.field("id", pa.string()), pa.field("document", pa.string()), pa.field("commit_id", pa.int64())]
    return pa.schema([pa.field(CHANGE, pa.string()), *fields] if mode == "changes" else fields)


@dataclass(frozen=True)
class IdRange:
    """The documents with ids in `[low, high)` at a moment of a branch, or what changed there."""

    url: str
    branch: str
    view: View
    columns: tuple[str, ...]
    rows: int
    low: str = ""
    high: str | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        with _space(self.url, write=False) as space:
            found = self._latest(space) if self.view.mode == "latest" else self._changes(space)
            yield from _batches(found, self.view.mode, self.columns)

    def _latest(self, space: Space) -> Iterator[tuple[Any, ...]]:
        moment = space.snapshot(self.view.commit, branch=self.branch)
        for id, document, changed in moment.between(self.low, self.high, page=_PAGE):
            yield id, codec.encode(document), changed

    def _changes(self, space: Space) -> Iterator[tuple[Any, ...]]:
        since = self.view.since if self.view.mode == "changes" else 0
        for change in space.changes(since, self.view.commit, branch=self.branch):
            after = None if change.after is None else codec.encode(change.after)
            found = (change.key, after, change.commit)
            yield (change.kind.value, *found) if self.view.mode == "changes" else found


def _batches(found: Iterable[tuple[Any, ...]], mode: Mode, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    whole, rows_left = schema(mode), iter(found)
    while some := list(itertools.islice(rows_left, BATCH)):
        parts = list(zip(*some, strict=True))
        batch = pa.record_batch([pa.array(part, field.type) for part, field in zip(parts, whole, strict=True)],
                                schema=whole)
        yield batch.select(list(columns))


class DocumentsParallel:
    """A space of documents as parallel readers and writers see it."""

    model: ClassVar[str] = "documents"

    def __init__(self, url: str, *, branch: str | None = None, write: bool = False) -> None:
        self.url = url
        self.branch = FIRST if branch is None else branch
        self._space = _space(url, write=write)

    def head(self) -> int:
        return self._space.last_seq()

    def commits(self, *, since: int = 0, until: int | None = None) -> Iterator[Commit]:
        return self._space.commits(since=since, until=until, branch=self.branch)

    def tables(self) -> Sequence[str]:
        return [TABLE]

    def keys(self, table: str) -> Sequence[str]:
        return ["id"]

    def scalars(self) -> Sequence[Scalar]:
        return ()

    def takes(self, table: str) -> Mapping[str, bool]:
        return {"id": True, "document": True}

    def schema(self, table: str, mode: Mode = "latest", view: View | None = None) -> pa.Schema:
        if table != TABLE:
            raise NotFound(f"a space has no table {table!r}", hint=f"its documents are in {TABLE!r}")
        return schema(mode)

    def view(
        self, *, as_of: int | str | None = None, mode: Mode = "latest", since: int | str | None = None
    ) -> View:  # fmt: skip
        check_mode(mode)
        as_of, since = number(as_of), number(since)
        moment = self._space.snapshot(as_of, branch=self.branch)
        if since is not None:
            self._space.snapshot(since, branch=self.branch)
        return View(moment.commit, mode, since or 0)

    def splits(
        self, table: str, view: View, columns: Sequence[str] | None = None, filters: Sequence[Filter] = (), *,
        parts: int | None = None,
    ) -> Sequence[Split]:  # fmt: skip
        wanted = tuple(chosen(self.schema(table, view.mode), columns, filters, table))
        if view.mode != "latest":
            return [IdRange(self.url, self.branch, view, wanted, 0)]
        low, high = bounds(filters)
        moment = self._space.snapshot(view.commit, branch=self.branch)
        line, count = moment.widest()  # it says where to cut; every id lies in exactly one range
        parts = worth(count, parts)
        step = max(1, count // parts)
        edges: list[str | None] = ["", *moment.cuts(line, step, parts - 1), None]
        return [IdRange(self.url, self.branch, view, wanted, step, max(first or "", low), _least(last, high))
                for first, last in itertools.pairwise(edges)
                if (last is None or last > low) and (high is None or (first or "") < high)]

    def shape(self, table: str) -> Shape | None:
        return None

    def check_removable(self) -> None:
        raise IrremovableError("documents")

    def publish(
        self, fragments: Sequence[Fragment], *, metadata: Mapping[str, Any] | None = None,
        expected: int | None = None, removals: Mapping[str, Removal] = NO_REMOVALS,
    ) -> Published:  # fmt: skip
        if removals:
            self.check_removable()
        operations: list[Operation] = []
        seen: set[str] = set()
        for fragment in fragments:
            self.schema(fragment.table)
            operations += self._differing(fragment, seen)
        if not operations:
            return Published(None, {TABLE: 0})
        told = dict(metadata or {})
        session = str(told.get(metadata_keys.STREAM) or told.get(metadata_keys.RUN) or "")
        local = told.get(metadata_keys.BATCH)
        request = (session, int(local) + 1) if session and local is not None else self._space.next_request()
        head = () if expected is None else (HeadIs(self._branch_head(expected)),)
        try:
            commit = self._space.transact(*request, operations, branch=self.branch, preconditions=head)
        except PreconditionFailedError as error:
            raise Conflict(f"another commit came after commit {expected}, which was read",
                           hint="read again and work it out again") from error
        return Published(commit.seq, {TABLE: len(operations)})

    def _branch_head(self, commit: int) -> int:
        """The newest commit that the branch itself had then: others may have gone on."""
        return next((one.seq for one in self._space.commits(until=commit, branch=self.branch)), 0)

    def _differing(self, fragment: Fragment, seen: set[str]) -> Iterator[Operation]:
        table = fragment.read()
        missing = {"id", "document"} - set(table.column_names)
        if missing:
            raise InvalidOperationError(f"documents need the columns id and document; {', '.join(sorted(missing))} is "
                                        "missing", hint="select them, the document as JSON text")
        ids, texts = table.column("id").to_pylist(), table.column("document").to_pylist()
        for start in range(0, len(ids), _PAGE):
            known = self._space.read_many(ids[start : start + _PAGE], branch=self.branch)
            for id, text in zip(ids[start : start + _PAGE], texts[start : start + _PAGE], strict=True):
                if id in seen:
                    raise InvalidOperationError(f"the id {id!r} is there twice", hint="keep one row of each id")
                seen.add(id)
                before = known[id].document
                try:
                    after = None if text is None else codec.decode(text)
                except codec.Unstorable as error:
                    raise InvalidOperationError(f"the document {id!r} is {error.reason}") from error
                if after is None and before is not None:
                    yield Delete(id)
                elif after is not None and (before is None or not codec.same(before, after)):
                    yield Set(id, after)

    def close(self) -> None:
        self._space.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _space(url: str, *, write: bool) -> Space:
    return Space(url, space_name(url), readonly=not write, takeover=False, synchronous="FULL")


def bounds(filters: Sequence[Filter]) -> tuple[str, str | None]:
    """The range of ids that filters leave."""
    low, high = "", None
    for one in filters:
        if one.column != "id" or not isinstance(one.value, str | tuple):
            continue
        if one.op in ("==", ">", ">=", "startswith") and isinstance(one.value, str):
            low = max(low, one.value)
        if one.op in ("==", "<", "<=") and isinstance(one.value, str):
            high = _least(high, one.value + "\0")
        if one.op == "in" and one.value:
            low, high = max(low, min(one.value)), _least(high, max(one.value) + "\0")
    return low, high


def _least(one: str | None, two: str | None) -> str | None:
    return two if one is None else one if two is None else min(one, two)
