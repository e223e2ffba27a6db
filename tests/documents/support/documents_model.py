"""A naive space: it keeps the log and folds it from the start for every answer. Slow, and easy to believe."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

Document = dict[str, Any]


class Entry(NamedTuple):
    seq: int
    branch: str
    id: str
    op: str
    data: Any


class Unfit(Exception):
    """A patch does not fit."""


class Model:
    """What a space should answer. Only told of what was accepted."""

    def __init__(self) -> None:
        self.seq = 0
        self.log: list[Entry] = []
        self.branches: dict[str, tuple[str | None, int]] = {"": (None, 0)}
        self.heads = {"": 0}
        self.deleted: set[str] = set()

    # what happens

    def commit(self, branch: str, operations: list[tuple[str, str, Any]]) -> int:
        """Take operations (op, id, data) in, all or none. Raises `Unfit`."""
        before = len(self.log)
        self.seq += 1
        try:
            for op, id, data in operations:
                self.log.append(Entry(self.seq, branch, id, op, copy.deepcopy(data)))
                self.state(id, branch, self.seq)
        except Unfit:
            del self.log[before:]
            self.seq -= 1
            raise
        self.heads[branch] = self.seq
        return self.seq

    def create(self, name: str, parent: str, at: int | None) -> int:
        self.branches[name] = (parent, self.heads[parent] if at is None else at)
        self.seq += 1
        self.heads[name] = self.seq
        return self.seq

    def delete(self, name: str) -> int:
        self.deleted.add(name)
        self.seq += 1
        return self.seq

    # what is so

    def visible(self, branch: str, seq: int) -> list[Entry]:
        """The part of the log that a branch sees at a seq."""
        parent, fork = self.branches[branch]
        inherited = [] if parent is None else self.visible(parent, min(seq, fork))
        return inherited + [entry for entry in self.log if entry.branch == branch and entry.seq <= seq]

    def state(self, id: str, branch: str = "", seq: int | None = None) -> Document | None:
        document: Document | None = None
        for entry in self.visible(branch, self.seq if seq is None else seq):
            if entry.id == id:
                document = step(document, entry.op, entry.data)
        return document

    def states(self, branch: str = "", seq: int | None = None) -> dict[str, Document]:
        """All living documents."""
        found: dict[str, Document | None] = {}
        for entry in self.visible(branch, self.seq if seq is None else seq):
            found[entry.id] = step(found.get(entry.id), entry.op, entry.data)
        return {id: document for id, document in sorted(found.items()) if document is not None}


def step(document: Document | None, op: str, data: Any) -> Document | None:
    if op == "set":
        return copy.deepcopy(data)
    if op == "delete":
        return None
    return patched(document, data)


def patched(document: Document | None, patches: list[dict[str, Any]]) -> Document:
    """The document after a patch list, on a deep copy and by the book. Raises `Unfit`."""
    box = {"root": copy.deepcopy(document) if document is not None else {}}
    for patch in patches:
        _apply(box, copy.deepcopy(patch))
        if not isinstance(box["root"], dict):
            raise Unfit("the root stays an object")
    return box["root"]


def _apply(box: dict[str, Any], patch: dict[str, Any]) -> None:
    op = patch["op"]
    if op == "replace":
        holder, key = _holder(box, patch["path"])
        if isinstance(holder, list) and not _is_index(key, len(holder)):
            raise Unfit(patch)
        holder[_key(holder, key)] = patch["value"]
    elif op == "add":
        _add(box, patch["path"], patch["value"])
    elif op == "remove":
        _remove(box, patch["path"])
    elif op == "move":
        value = _get(box, patch["from"])
        _remove(box, patch["from"])
        _add(box, patch["path"], value)
    elif op == "copy":
        _add(box, patch["path"], copy.deepcopy(_get(box, patch["from"])))
    elif op == "test":
        if not equal(_get(box, patch["path"]), patch["value"]):
            raise Unfit(patch)
    elif op == "increment":
        value = _get(box, patch["path"])
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Unfit(patch)
        holder, key = _holder(box, patch["path"])
        holder[_key(holder, key)] = value + patch["by"]
    else:
        array = _get(box, patch["path"])
        if not isinstance(array, list):
            raise Unfit(patch)
        if op == "splice":
            if patch["index"] + patch["remove"] > len(array):
                raise Unfit(patch)
            array[patch["index"] : patch["index"] + patch["remove"]] = patch["add"]
        elif op == "append":
            array.append(patch["value"])
        elif op == "add-unique":
            if not any(equal(element, patch["value"]) for element in array):
                array.append(patch["value"])
        elif op == "remove-by-value":
            array[:] = [element for element in array if not equal(element, patch["value"])]
        else:
            raise AssertionError(op)


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None:
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    return not isinstance(a, dict | list) and not isinstance(b, dict | list) and a == b


def _tokens(path: str) -> list[str]:
    return ["root"] + [token.replace("~1", "/").replace("~0", "~") for token in path.split("/")[1:]]


def _is_index(token: str, below: int) -> bool:
    return token in {str(number) for number in range(below)}


def _key(holder: Any, token: str) -> Any:
    return int(token) if isinstance(holder, list) else token


def _child(node: Any, token: str) -> Any:
    if isinstance(node, dict) and token in node:
        return node[token]
    if isinstance(node, list) and _is_index(token, len(node)):
        return node[int(token)]
    raise Unfit(token)


def _get(box: dict[str, Any], path: str) -> Any:
    node: Any = box
    for token in _tokens(path):
        node = _child(node, token)
    return node


def _holder(box: dict[str, Any], path: str, create: bool = False) -> tuple[Any, str]:
    *parents, last = _tokens(path)
    node: Any = box
    for token in parents:
        if create and isinstance(node, dict) and token not in node:
            node[token] = {}
        node = _child(node, token)
    if not isinstance(node, dict | list):
        raise Unfit(path)
    return node, last


def _add(box: dict[str, Any], path: str, value: Any) -> None:
    holder, token = _holder(box, path, create=True)
    if isinstance(holder, dict):
        holder[token] = value
    elif token == "-":
        holder.append(value)
    elif _is_index(token, len(holder) + 1):
        holder.insert(int(token), value)
    else:
        raise Unfit(path)


def _remove(box: dict[str, Any], path: str) -> None:
    holder, token = _holder(box, path)
    _child(holder, token)
    del holder[_key(holder, token)]
