"""Patch lists: `check` says whether one is well-formed, `apply` gives the document that it makes of another.

`apply` is pure: it copies the containers on the way to a change, shares all others with the document that it was
given, and changes neither that document nor the patches. A patch is a dict such as
`{"op": "replace", "path": "/value/x", "value": 1}`; `OPERATIONS` lists them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from ontolake.documents import codec, pointers
from ontolake.documents.codec import MAX_BYTES, MAX_DEPTH, MAX_INTEGER, MIN_INTEGER, Document, Json
from ontolake.documents.errors import InvalidOperationError, PatchError
from ontolake.documents.pointers import END, Tokens

Patches = Sequence[dict[str, Any]]

_TOO_DEEP = f"the document would be nested deeper than {MAX_DEPTH} levels"


class _Unfit(Exception):
    """A patch does not fit; `apply` says which one it was."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason


def apply(document: Document | None, patches: Patches) -> Document:
    """The document after all patches; None, absent or deleted, counts as `{}`. Raises `PatchError`.

    The patches must be well-formed: those of others go through `check` first.
    """
    result: Document = {} if document is None else document
    room = MAX_BYTES  # copies can double a document again and again: what they add is limited
    for number, patch in enumerate(patches):
        try:
            if patch["op"] == "copy" and (room := room - codec.size(_found(result, patch["from"]))) < 0:
                _unfit(patch["path"], f"the copies of one patch list would take more than {MAX_BYTES:,} bytes")
            result = OPERATIONS[patch["op"]].run(result, patch)
        except _Unfit as unfit:
            raise PatchError(unfit.reason, patch=number, path=unfit.path) from None
    return result


def look_up(document: Json, tokens: Tokens) -> Json:
    """What stands at a path. Raises `KeyError` if nothing does."""
    node = document
    for token in tokens:
        if type(node) is dict:
            node = node[token]
        elif type(node) is list and (at := pointers.index(token)) is not None and at < len(node):
            node = node[at]
        else:
            raise KeyError(token)
    return node


# The edits. Each gives a new document, and raises _Unfit when it cannot.


def _found(document: Document, path: str) -> Json:
    try:
        return look_up(document, pointers.parse(path))
    except KeyError:
        _unfit(path, "there is nothing at this path")


def _unfit(path: str, reason: str) -> NoReturn:
    raise _Unfit(path, reason)


def _edited(document: Document, path: str, edit: Callable[[Json, str, str], None], create: bool = False) -> Document:
    """A copy of the document in which `edit(parent, last token, path)` has changed the parent of what `path` names."""
    tokens = pointers.parse(path)
    root: Document = dict(document)
    node: Json = root
    for depth, token in enumerate(tokens[:-1]):
        key: str | int = token
        if type(node) is list:
            key = _existing(node, token, path)
        elif token not in node:
            if not create:
                _unfit(path, f"{pointers.format(tokens[: depth + 1])!r} does not exist")
            node[key] = {}
        child = node[key]
        if type(child) is dict:
            node[key] = child = dict(child)
        elif type(child) is list:
            node[key] = child = list(child)
        else:
            _unfit(path, f"{pointers.format(tokens[: depth + 1])!r} is neither an object nor an array")
        node = child
    edit(node, tokens[-1], path)
    return root


def _existing(array: list[Json], token: str, path: str) -> int:
    at = pointers.index(token)
    if at is None:
        _unfit(path, f"{token!r} is not an array index")
    if at >= len(array):
        _unfit(path, f"index {at} is beyond the end of an array of {len(array)}")
    return at


def _root(value: Json, path: str) -> Document:
    if type(value) is not dict:
        _unfit(path, "a document stays an object")
    return value


def _check_depth(path: str, value: Json) -> None:
    if len(pointers.parse(path)) + codec.height(value) > MAX_DEPTH:
        _unfit(path, _TOO_DEEP)


def _placed(document: Document, path: str, value: Json) -> Document:
    """`add`: what `move` and `copy` end with too."""
    if not path:
        return _root(value, path)

    def insert(parent: Json, token: str, path: str) -> None:
        if type(parent) is dict:
            parent[token] = value
        elif token == END:
            parent.append(value)
        else:
            at = pointers.index(token)
            if at is None:
                _unfit(path, f"{token!r} is not an array index")
            if at > len(parent):
                _unfit(path, f"index {at} would leave a gap in an array of {len(parent)}")
            parent.insert(at, value)

    return _edited(document, path, insert, create=True)


def _stored(document: Document, path: str, value: Json) -> Document:
    """`replace`: the array index must be there, a key of an object need not."""
    if not path:
        return _root(value, path)

    def put(parent: Json, token: str, path: str) -> None:
        parent[token if type(parent) is dict else _existing(parent, token, path)] = value

    return _edited(document, path, put)


def _removed(document: Document, path: str) -> Document:
    def take(parent: Json, token: str, path: str) -> None:
        if type(parent) is list:
            del parent[_existing(parent, token, path)]
        elif token in parent:
            del parent[token]
        else:
            _unfit(path, "there is nothing at this path")

    return _edited(document, path, take)


def _moved(document: Document, patch: dict[str, Any]) -> Document:
    value = _found(document, patch["from"])
    if len(pointers.parse(patch["path"])) > len(pointers.parse(patch["from"])):
        _check_depth(patch["path"], value)
    return _placed(_removed(document, patch["from"]), patch["path"], value)


def _copied(document: Document, patch: dict[str, Any]) -> Document:
    """A deep copy, so that whoever changes the document they got finds nothing at two paths at once."""
    value = codec.duplicate(_found(document, patch["from"]))
    _check_depth(patch["path"], value)
    return _placed(document, patch["path"], value)


def _tested(document: Document, patch: dict[str, Any]) -> Document:
    if not codec.same(_found(document, patch["path"]), patch["value"]):
        _unfit(patch["path"], "the value is not the one that was tested for")
    return document


def _array(document: Document, path: str) -> list[Json]:
    found = _found(document, path)
    if type(found) is not list:
        _unfit(path, "this is not an array")
    return found


def _spliced(document: Document, patch: dict[str, Any]) -> Document:
    array, start, end = _array(document, patch["path"]), patch["index"], patch["index"] + patch["remove"]
    if end > len(array):
        _unfit(patch["path"], f"{start} + {patch['remove']} is beyond the end of an array of {len(array)}")
    return _stored(document, patch["path"], array[:start] + patch["add"] + array[end:])


def _appended(document: Document, patch: dict[str, Any]) -> Document:
    return _stored(document, patch["path"], [*_array(document, patch["path"]), patch["value"]])


def _united(document: Document, patch: dict[str, Any]) -> Document:
    if any(codec.same(element, patch["value"]) for element in _array(document, patch["path"])):
        return document
    return _appended(document, patch)


def _without(document: Document, patch: dict[str, Any]) -> Document:
    array = _array(document, patch["path"])
    kept = [element for element in array if not codec.same(element, patch["value"])]
    return _stored(document, patch["path"], kept) if len(kept) < len(array) else document


def _incremented(document: Document, patch: dict[str, Any]) -> Document:
    number = _found(document, patch["path"])
    if type(number) is not int and type(number) is not float:
        _unfit(patch["path"], "this is not a number")
    try:
        total = number + patch["by"]
    except OverflowError:  # an integer too big for the float it meets
        total = math.inf
    if not (MIN_INTEGER <= total <= MAX_INTEGER if type(total) is int else math.isfinite(total)):
        _unfit(patch["path"], "the sum is beyond what JSON readers keep")
    return _stored(document, patch["path"], total)


# The shapes of patches: the members that each one has, and what they must be.


def _is_pointer(value: Json) -> str | None:
    if not isinstance(value, str):
        return "must be a JSON pointer, which is text"
    try:
        pointers.parse(value)
    except ValueError as error:
        return str(error)
    return None


def _is_count(value: Json) -> str | None:
    return None if type(value) is int and value >= 0 else "must be an integer, 0 or more"


def _is_list(value: Json) -> str | None:
    return None if isinstance(value, list) else "must be an array"


def _is_step(value: Json) -> str | None:
    if type(value) is not int and type(value) is not float:
        return "must be a number"
    return None if value else "must not be zero"


def _is_anything(value: Json) -> str | None:
    return None


class Operation(NamedTuple):
    """One kind of patch: its members beside `op` and `path`, and what it does."""

    members: dict[str, Callable[[Json], str | None]]
    run: Callable[[Document, dict[str, Any]], Document]


_VALUE: dict[str, Callable[[Json], str | None]] = {"value": _is_anything}

OPERATIONS = {
    "replace": Operation(_VALUE, lambda document, patch: _stored(document, patch["path"], patch["value"])),
    "add": Operation(_VALUE, lambda document, patch: _placed(document, patch["path"], patch["value"])),
    "remove": Operation({}, lambda document, patch: _removed(document, patch["path"])),
    "move": Operation({"from": _is_pointer}, _moved),
    "copy": Operation({"from": _is_pointer}, _copied),
    "test": Operation(_VALUE, _tested),
    "splice": Operation({"index": _is_count, "remove": _is_count, "add": _is_list}, _spliced),
    "append": Operation(_VALUE, _appended),
    "add-unique": Operation(_VALUE, _united),
    "remove-by-value": Operation(_VALUE, _without),
    "increment": Operation({"by": _is_step}, _incremented),
}


def check(patches: Json, operation: int | None = None) -> None:
    """Raise `InvalidOperationError` unless this is a patch list that some document could take.

    `operation` is the index that the error names; values inside are taken to be JSON.
    """
    if not isinstance(patches, list) or not patches:
        raise InvalidOperationError("a patch operation needs a list of at least one patch", operation=operation)
    for number, patch in enumerate(patches):
        if problem := _problem(patch):
            member, reason = problem
            path = f"/{number}/{member}" if member else f"/{number}"
            raise InvalidOperationError(f"patch {number}: {reason}", operation=operation, path=path)


def _problem(patch: Json) -> tuple[str, str] | None:
    """The member of a patch that is wrong (or "" for all of it), and why; None for a good patch."""
    if not isinstance(patch, dict):
        return "", "a patch is an object"
    name = patch.get("op")
    if not isinstance(name, str) or name not in OPERATIONS:
        return "op", f"the operation {name!r} is not known; known are {', '.join(OPERATIONS)}"
    kind = OPERATIONS[name]
    for member, problem_of in (("path", _is_pointer), *kind.members.items()):
        if member not in patch:
            return member, f"{name} needs {member!r}"
        if reason := problem_of(patch[member]):
            return member, reason
    if len(patch) > 2 + len(kind.members):
        known = {"op", "path", *kind.members}
        stray = next(member for member in patch if member not in known)
        return stray, f"{name} does not take {stray!r}"
    return _impossible(name, patch)


def _impossible(name: str, patch: dict[str, Any]) -> tuple[str, str] | None:
    """What no document could take, whatever is in it."""
    tokens = pointers.parse(patch["path"])
    if not tokens and name in ("remove", "splice", "append", "add-unique", "remove-by-value", "increment"):
        return "path", f"{name} cannot work on the whole document, which stays an object"
    if not tokens and name in ("replace", "add") and not isinstance(patch["value"], dict):
        return "value", "a document stays an object"
    if name == "move":
        source = pointers.parse(patch["from"])
        if not source:
            return "from", "the whole document cannot be moved"
        if len(tokens) > len(source) and tokens[: len(source)] == source:
            return "path", "nothing can be moved into its own descendant"
    added = patch.get("add", [patch["value"]] if name in ("append", "add-unique") else patch.get("value"))
    if len(tokens) + codec.height(added) > MAX_DEPTH:
        return "path", _TOO_DEEP
    return None
