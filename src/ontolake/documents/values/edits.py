"""Edits of one place in a document, on copies: the containers on the way are copied, all others are shared.

Nothing here changes what it is given. An edit that the document does not allow raises `UnfitEdit`.
"""

from __future__ import annotations

from ontolake.documents.values.codec import Document, Json
from ontolake.history import pointers
from ontolake.history.pointers import END, Tokens


class UnfitEdit(Exception):
    """The document has not what the edit needs, at `path`."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason


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


def value_at(document: Document, path: str) -> Json:
    """What stands at a pointer."""
    try:
        return look_up(document, pointers.parse(path))
    except KeyError:
        raise UnfitEdit(path, "there is nothing at this path") from None


def array_at(document: Document, path: str) -> list[Json]:
    """The array at a pointer."""
    found = value_at(document, path)
    if type(found) is not list:
        raise UnfitEdit(path, "this is not an array")
    return found


def put(document: Document, path: str, value: Json) -> Document:
    """Put a value over another, or under a key that is new: the parent must exist, and so must an index."""
    tokens = pointers.parse(path)
    if not tokens:
        return _root(value, path)
    root, parent = _opened(document, tokens, path)
    parent[tokens[-1] if type(parent) is dict else _existing(parent, tokens[-1], path)] = value
    return root


def insert(document: Document, path: str, value: Json) -> Document:
    """Put a value in: missing objects on the way are made, an array grows at an index up to its length or at `-`."""
    tokens = pointers.parse(path)
    if not tokens:
        return _root(value, path)
    root, parent = _opened(document, tokens, path, create=True)
    token = tokens[-1]
    if type(parent) is dict:
        parent[token] = value
    elif token == END:
        parent.append(value)
    elif (at := pointers.index(token)) is None:
        raise UnfitEdit(path, f"{token!r} is not an array index")
    elif at > len(parent):
        raise UnfitEdit(path, f"index {at} would leave a gap in an array of {len(parent)}")
    else:
        parent.insert(at, value)
    return root


def remove(document: Document, path: str) -> Document:
    """Take out what is there."""
    tokens = pointers.parse(path)
    root, parent = _opened(document, tokens, path)
    if type(parent) is list:
        del parent[_existing(parent, tokens[-1], path)]
    elif tokens[-1] in parent:
        del parent[tokens[-1]]
    else:
        raise UnfitEdit(path, "there is nothing at this path")
    return root


_MISSING = object()


def _opened(document: Document, tokens: Tokens, path: str, create: bool = False) -> tuple[Document, Json]:
    """A copy of the document in which all on the way to the last token is ours to change, and the parent of the last.

    With `create`, objects that are missing on the way are made.
    """
    root: Document = document.copy()
    node: Json = root
    for token in tokens[:-1]:
        key: str | int = token if type(node) is dict else _existing(node, token, path)
        child = node.get(token, _MISSING) if type(node) is dict else node[key]
        if type(child) is dict or type(child) is list:
            child = child.copy()
        elif create and child is _MISSING:
            child = {}
        else:
            what = "does not exist" if child is _MISSING else "is neither an object nor an array"
            raise UnfitEdit(path, f"{token!r} on the way there {what}")
        node[key] = child
        node = child
    return root, node


def _existing(array: list[Json], token: str, path: str) -> int:
    at = pointers.index(token)
    if at is None:
        raise UnfitEdit(path, f"{token!r} is not an array index")
    if at >= len(array):
        raise UnfitEdit(path, f"index {at} is beyond the end of an array of {len(array)}")
    return at


def _root(value: Json, path: str) -> Document:
    if type(value) is not dict:
        raise UnfitEdit(path, "a document stays an object")
    return value
