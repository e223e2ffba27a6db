"""Patches: what each kind says, which paths it may write, and the document that a list of them makes of another.

Applying is pure: the containers on the way to a change are copied, all others are shared with the document that was
given, and neither that document nor the patches change. Outside, a patch is a dict such as
`{"op": "replace", "path": "/value/x", "value": 1}`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from ontolake.documents.errors import InvalidOperationError, PatchError
from ontolake.documents.values import codec, edits
from ontolake.documents.values.codec import MAX_BYTES, MAX_DEPTH, MAX_INTEGER, MIN_INTEGER, Document, Json, Unstorable
from ontolake.documents.values.edits import UnfitEdit
from ontolake.history import pointers
from ontolake.history.pointers import END, Tokens

T = TypeVar("T")

Patches = Sequence[dict[str, Any]]
"""A patch list as callers write it."""

_Count = Annotated[int, Meta(ge=0)]
_TOO_DEEP = f"the document would be nested deeper than {MAX_DEPTH} levels"


class PatchOp(Struct, frozen=True, gc=False, tag_field="op", forbid_unknown_fields=True):
    """One patch. `path` is a JSON pointer from the root of the document, which is always an object."""

    path: str

    def problem(self) -> str | None:
        """Why no document could take this, or None. Raises `ValueError` for a malformed pointer."""
        return None if pointers.parse(self.path) else "the whole document stays an object"

    def run(self, document: Document) -> Document:
        """The document after it. Raises `UnfitEdit`."""
        raise AssertionError(self)

    def written(self) -> tuple[Tokens, ...]:
        """The paths below which it may have changed something."""
        return (self.tokens(),)

    def tokens(self) -> Tokens:
        return pointers.parse(self.path)


class Replace(PatchOp, frozen=True, tag="replace"):
    """Put a value where one may be: the parent must exist, and so must the index of an array."""

    value: Json

    def problem(self) -> str | None:
        return _unplaceable(self.tokens(), self.value)

    def run(self, document: Document) -> Document:
        return edits.put(document, self.path, self.value)


class Add(PatchOp, frozen=True, tag="add"):
    """Put a value in: missing objects on the way are made, an array grows at an index up to its length or at `-`."""

    value: Json

    def problem(self) -> str | None:
        return _unplaceable(self.tokens(), self.value)

    def run(self, document: Document) -> Document:
        return edits.insert(document, self.path, self.value)

    def written(self) -> tuple[Tokens, ...]:
        return (_shifting(self.tokens()),)


class Remove(PatchOp, frozen=True, tag="remove"):
    """Take out what must be there."""

    def run(self, document: Document) -> Document:
        return edits.remove(document, self.path)

    def written(self) -> tuple[Tokens, ...]:
        return (_shifting(self.tokens()),)


class Move(PatchOp, frozen=True, tag="move", rename={"source": "from"}):
    """Take out what is at `from`, and add it at `path`."""

    source: str

    def problem(self) -> str | None:
        source, target = pointers.parse(self.source), self.tokens()
        if not source:
            return "the whole document cannot be moved"
        if len(target) > len(source) and target[: len(source)] == source:
            return "nothing can be moved into its own descendant"
        return None

    def run(self, document: Document) -> Document:
        value = edits.value_at(document, self.source)
        if len(self.tokens()) > len(pointers.parse(self.source)):
            _check_depth(self.path, value)
        return edits.insert(edits.remove(document, self.source), self.path, value)

    def written(self) -> tuple[Tokens, ...]:
        return _shifting(pointers.parse(self.source)), _shifting(self.tokens())


class Copy(PatchOp, frozen=True, tag="copy", rename={"source": "from"}):
    """Add at `path` what is at `from` too."""

    source: str

    def problem(self) -> str | None:
        pointers.parse(self.source)
        return _unplaceable(self.tokens(), {})

    def run(self, document: Document) -> Document:
        # A deep copy, so that whoever changes the document they got finds nothing at two paths at once.
        value = codec.duplicate(edits.value_at(document, self.source))
        _check_depth(self.path, value)
        return edits.insert(document, self.path, value)

    def written(self) -> tuple[Tokens, ...]:
        return (_shifting(self.tokens()),)


class Test(PatchOp, frozen=True, tag="test"):
    """Fail unless this value is there."""

    value: Json

    def problem(self) -> str | None:
        return _unplaceable(self.tokens(), {})

    def run(self, document: Document) -> Document:
        if not codec.same(edits.value_at(document, self.path), self.value):
            raise UnfitEdit(self.path, "the value is not the one that was tested for")
        return document

    def written(self) -> tuple[Tokens, ...]:
        return ()


class Splice(PatchOp, frozen=True, tag="splice"):
    """In an array, put the elements of `add` in place of `remove` elements from `index` on."""

    index: _Count
    remove: _Count
    add: list[Json]

    def problem(self) -> str | None:
        return PatchOp.problem(self) or _unplaceable(self.tokens(), self.add)

    def run(self, document: Document) -> Document:
        array, end = edits.array_at(document, self.path), self.index + self.remove
        if end > len(array):
            raise UnfitEdit(self.path, f"{self.index} + {self.remove} is beyond the end of an array of {len(array)}")
        return edits.put(document, self.path, array[: self.index] + self.add + array[end:])


class Append(PatchOp, frozen=True, tag="append"):
    """Add an element at the end of an array."""

    value: Json

    def problem(self) -> str | None:
        return PatchOp.problem(self) or _unplaceable(self.tokens(), [self.value])

    def run(self, document: Document) -> Document:
        return edits.put(document, self.path, [*edits.array_at(document, self.path), self.value])


class AddUnique(Append, frozen=True, tag="add-unique"):
    """Add an element at the end of an array, unless an equal one is there."""

    def run(self, document: Document) -> Document:
        if any(codec.same(element, self.value) for element in edits.array_at(document, self.path)):
            return document
        return Append.run(self, document)


class RemoveByValue(PatchOp, frozen=True, tag="remove-by-value"):
    """Take all elements out of an array that equal a value; there may be none."""

    value: Json

    def run(self, document: Document) -> Document:
        array = edits.array_at(document, self.path)
        kept = [element for element in array if not codec.same(element, self.value)]
        return edits.put(document, self.path, kept) if len(kept) < len(array) else document


class Increment(PatchOp, frozen=True, tag="increment"):
    """Add to a number."""

    by: int | float

    def problem(self) -> str | None:
        return PatchOp.problem(self) if self.by else "'by' must not be zero"

    def run(self, document: Document) -> Document:
        number = edits.value_at(document, self.path)
        if type(number) is not int and type(number) is not float:
            raise UnfitEdit(self.path, "this is not a number")
        total = number + self.by
        if not (MIN_INTEGER <= total <= MAX_INTEGER if type(total) is int else math.isfinite(total)):
            raise UnfitEdit(self.path, "the sum is beyond what JSON readers keep")
        return edits.put(document, self.path, total)


AnyPatch = Replace | Add | Remove | Move | Copy | Test | Splice | Append | AddUnique | RemoveByValue | Increment

_decode_list = msgspec.json.Decoder(list[AnyPatch]).decode
_decode_lists = msgspec.json.Decoder(list[list[AnyPatch]]).decode


# From outside to inside.


def seal(patches: Any, operation: int | None = None) -> tuple[str, list[AnyPatch]]:
    """The JSON text of a patch list that some document could take, and the patches.

    Raises `InvalidOperationError`, which names the operation that the list belongs to and the place in the list.
    """
    if not isinstance(patches, (list, tuple)) or not patches:
        raise InvalidOperationError("a patch operation needs a list of at least one patch", operation=operation)
    try:
        data = codec.write(patches)
        sealed = _decode_list(data)
        for number, patch in enumerate(sealed):
            problem = _problem(patches[number], patch)
            if problem is not None:
                codec.inspect(patches)  # which may know better where it is
                raise Unstorable(f"/{number}", problem)
    except Unstorable as error:
        raise InvalidOperationError(error.reason, operation=operation, path=error.path) from None
    except msgspec.ValidationError as error:
        reason, path = _described(error)
        raise InvalidOperationError(reason, operation=operation, path=path,
                                    hint=f"patches are {', '.join(NAMES)}") from None  # fmt: skip
    except RecursionError:
        raise InvalidOperationError(_TOO_DEEP, operation=operation) from None
    return data.decode(), sealed


def _problem(given: Any, patch: AnyPatch) -> str | None:
    """Why a patch is not one that some document could take, or not the one that was given."""
    if not isinstance(given, dict):
        return f"a patch is a dict, not {type(given).__name__}"
    if given.get("value") != getattr(patch, "value", None) or given.get("add") != getattr(patch, "add", None):
        return "it does not come back from JSON as it is"
    try:
        return patch.problem()
    except ValueError as error:  # a malformed pointer
        return str(error)


NAMES = tuple(str(kind.__struct_config__.tag) for kind in AnyPatch.__args__)


def _described(error: msgspec.ValidationError) -> tuple[str, str]:
    """What the decoder found, and where as a pointer."""
    reason, _, place = str(error).partition(" - at `$")
    return reason, re.sub(r"[.\[]", "/", place.rstrip("`")).replace("]", "")


def load(text: str) -> list[AnyPatch]:
    """The patches of a list that was stored. Raises `Unstorable` if it is none."""
    return _loaded(_decode_list, text)


def load_many(texts: Sequence[str]) -> list[list[AnyPatch]]:
    """`load` for many at once."""
    return _loaded(_decode_lists, f"[{','.join(texts)}]")


def _loaded(decode: Callable[[str], T], text: str) -> T:
    try:
        return decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Unstorable("", f"not a patch list: {error}") from None


# Applying.


def apply(document: Document | None, patches: Sequence[AnyPatch]) -> Document:
    """The document after all patches; None, absent or deleted, counts as `{}`. Raises `PatchError`."""
    result: Document = {} if document is None else document
    room = MAX_BYTES  # copies can double a document again and again, so what they add is limited
    for number, patch in enumerate(patches):
        try:
            if type(patch) is Copy and (room := room - codec.size(edits.value_at(result, patch.source))) < 0:
                raise UnfitEdit(patch.path, f"the copies of one patch list would take more than {MAX_BYTES:,} bytes")
            result = patch.run(result)
        except UnfitEdit as unfit:
            raise PatchError(unfit.reason, patch=number, path=unfit.path) from None
    return result


def _unplaceable(tokens: Tokens, value: Json) -> str | None:
    """Why a value can stand at a path in no document, or None."""
    if not tokens and type(value) is not dict:
        return "a document stays an object"
    return _TOO_DEEP if len(tokens) + codec.height(value) > MAX_DEPTH else None


def _check_depth(path: str, value: Json) -> None:
    if len(pointers.parse(path)) + codec.height(value) > MAX_DEPTH:
        raise UnfitEdit(path, _TOO_DEEP)


def _shifting(path: Tokens) -> Tokens:
    """What is written when something is put in or taken out here: in an array, all that stands behind moves.

    Whether a number in a path is an index or a key cannot be told from the patch; it is taken for an index.
    """
    if path and (path[-1] == END or pointers.index(path[-1]) is not None):
        return path[:-1]
    return path
