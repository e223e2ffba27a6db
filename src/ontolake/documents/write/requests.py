"""A transaction made ready before the database is touched: checked, encoded once, and safe from later changes.

Everything that can be wrong with a request by itself is found here, so that a bad one costs no seq and no lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct

from ontolake.documents.errors import DocumentError, InvalidOperationError, ProtocolError
from ontolake.documents.names import check_branch_text, check_id, check_session, is_seq
from ontolake.documents.operations import (
    Absent,
    Delete,
    Exists,
    HeadIs,
    Operation,
    Patch,
    PendingRead,
    Precondition,
    Read,
    Reads,
    Set,
    ValueIs,
)
from ontolake.documents.values import codec, patches
from ontolake.documents.values.codec import Json, Unstorable
from ontolake.history import pointers

T = TypeVar("T")

NO_READS = Reads()
_NO_READS_TEXT = codec.encode(NO_READS)


class Step(Struct, frozen=True, gc=False):
    """One operation: its kind, the JSON text that is stored, and what the text says: a document or patches."""

    op: str
    id: str
    data: str | None
    value: Any


class Request(NamedTuple):
    """A transaction that is sound in itself. `original` is its canonical payload, as the `commit` row keeps it."""

    session_id: str
    local_seq: int
    branch: str
    steps: Sequence[Step]
    reads: Reads
    preconditions: Sequence[Precondition]
    original: str


def prepare(
    session_id: str,
    local_seq: int,
    operations: Iterable[Operation],
    reads: Reads = NO_READS,
    branch: str = "",
    preconditions: Iterable[Precondition] = (),
) -> Request:
    """The request for a transaction. Raises `InvalidOperationError` or `ProtocolError` if it is malformed."""
    check_session(session_id, local_seq)
    check_branch_text(branch)
    steps = [step(operation, index)
             for index, operation in enumerate(_each(operations, "operations", InvalidOperationError))]  # fmt: skip
    conditions = tuple(_each(preconditions, "preconditions"))
    return of_steps(session_id, local_seq, steps, reads if reads is NO_READS else _checked(reads), branch, conditions)


def of_steps(
    session_id: str, local_seq: int, steps: Sequence[Step], reads: Reads = NO_READS, branch: str = "",
    preconditions: Sequence[Precondition] = (),
) -> Request:  # fmt: skip
    """The request for a transaction of steps and reads that are known to be sound: they are not looked at again."""
    original = [f'{{"localSeq":{local_seq},"reads":', _NO_READS_TEXT if reads is NO_READS else codec.encode(reads)]
    original.append(f',"operations":[{",".join(map(_payload, steps))}]')
    if branch:
        original.append(f',"branch":{codec.encode(branch)}')
    if preconditions:
        original.append(f',"preconditions":{_conditions_text(preconditions)}')
    original.append("}")
    return Request(session_id, local_seq, branch, steps, reads, preconditions, "".join(original))


def step(operation: Operation, index: int | None = None) -> Step:
    """An operation made ready; `index` is its place among others. Raises `InvalidOperationError`."""
    if isinstance(operation, Patch):
        id = check_id(operation.id, index)
        return Step("patch", id, *patches.seal(operation.patches, index))
    if isinstance(operation, Set):
        id = check_id(operation.id, index)
        return Step("set", id, *_sealed_document(operation.document, index))
    if isinstance(operation, Delete):
        return Step("delete", check_id(operation.id, index), None, None)
    raise InvalidOperationError(f"an operation is a Set, a Patch or a Delete, not {type(operation).__name__}",
                                operation=index)  # fmt: skip


def _payload(step: Step) -> str:
    """A step as a part of the payload."""
    id = codec.encode(step.id)
    if step.op == "set":
        return f'{{"op":"set","id":{id},"value":{step.data}}}'
    return f'{{"op":"patch","id":{id},"patches":{step.data}}}' if step.op == "patch" else f'{{"op":"delete","id":{id}}}'


def _sealed_document(document: codec.Document, index: int | None) -> tuple[str, codec.Document]:
    if not isinstance(document, dict):
        raise InvalidOperationError(f"a document is a JSON object, not {type(document).__name__}", operation=index,
                                    hint="only delete makes a tombstone; {} is a document")  # fmt: skip
    try:
        return codec.seal(document)
    except Unstorable as error:
        raise InvalidOperationError(error.reason, operation=index, path=error.path) from None


def _checked(reads: Reads) -> Reads:
    _check_kind(reads, Reads, "reads")
    reads = Reads(tuple(_each(reads.confirmed, "confirmed reads")), tuple(_each(reads.pending, "pending reads")))
    for number, read in enumerate(reads.confirmed):
        what = f"confirmed read {number}"
        _check_kind(read, Read, what)
        _check_place(read.id, read.path, what)
        _check_seq(read.seq, what)
        if read.branch is not None:
            check_branch_text(read.branch)
        if not isinstance(read.shallow, bool):
            raise ProtocolError(f"{what}: shallow is True or False, not {read.shallow!r}")
    for number, pending in enumerate(reads.pending):
        what = f"pending read {number}"
        _check_kind(pending, PendingRead, what)
        _check_place(pending.id, pending.path, what)
        _check_seq(pending.basis_seq, what)
        if not isinstance(pending.local_seqs, list | tuple) or not pending.local_seqs:
            raise ProtocolError(f"{what} has no list of local_seqs, but {pending.local_seqs!r}",
                                hint="a read without pending commits is a confirmed one")
        for local_seq in pending.local_seqs:
            _check_seq(local_seq, what)
    return reads


def _conditions_text(conditions: Sequence[Precondition]) -> str:
    for number, condition in enumerate(conditions):
        what = f"precondition {number}"
        if isinstance(condition, HeadIs):
            _check_seq(condition.seq, what)
        elif isinstance(condition, Exists | Absent):
            _check_place(condition.id, "", what)
        elif isinstance(condition, ValueIs):
            _check_place(condition.id, condition.path, what)
            _check_value(condition.value, what)
        else:
            raise ProtocolError(f"{what} is a {type(condition).__name__}, which is no precondition")
    return codec.encode(conditions)


def _each(given: Iterable[T], what: str, kind: type[DocumentError] = ProtocolError) -> Iterator[T]:
    try:
        return iter(given)
    except TypeError:
        raise kind(f"{what} come in a list, and this is {type(given).__name__}", hint="write [...]") from None


def _check_kind(found: object, wanted: type, what: str) -> None:
    if not isinstance(found, wanted):
        raise ProtocolError(f"{what} must be {wanted.__name__}(…), not {type(found).__name__}")


def _check_place(id: str, path: str, what: str) -> None:
    _named(lambda: check_id(id), what)
    if not isinstance(path, str) or not codec.is_unicode(path):
        raise ProtocolError(f"{what}: a path is a JSON pointer, which is text, not {path!r}")
    _named(lambda: pointers.parse(path), what)


def _check_value(value: Json, what: str) -> None:
    _named(lambda: codec.seal(value), what)


def _check_seq(seq: object, what: str) -> None:
    if not is_seq(seq):
        raise ProtocolError(f"{what}: a seq is an integer, 0 or more, not {seq!r}")


def _named(check: Callable[[], object], what: str) -> None:
    try:
        check()
    except ValueError as error:
        raise ProtocolError(f"{what}: {error}") from None
