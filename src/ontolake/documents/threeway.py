"""The rules of merging one entity, pure: what two sides changed since a base, and whether that fits together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from ontolake.documents import codec, pointers
from ontolake.documents.codec import Document, Json
from ontolake.documents.pointers import Tokens


class _Gone:
    """The value of an edit that removes."""


GONE: Final = _Gone()

Edits = dict[Tokens, Json | _Gone]
"""What was changed: a new value, or GONE, at each of some paths, none of which leads to another."""


class Outcome(NamedTuple):
    """What to do to the target: nothing, take the source's state, apply patches, or ask somebody."""

    kind: str
    """One of `nothing`, `take`, `combine`, `conflict`."""
    patches: Sequence[dict[str, Any]] = ()
    paths: tuple[str, ...] = ()
    """Where a conflict is; "" when it is about the whole document."""


NOTHING = Outcome("nothing")
TAKE = Outcome("take")


def merge(base: Document | None, source: Document | None, target: Document | None) -> Outcome:
    """How the change from `base` to `source` is brought to `target`. None stands for an entity that is not there."""
    if codec.same(source, base) or codec.same(source, target):
        return NOTHING
    if codec.same(target, base):
        return TAKE
    if base is None or source is None or target is None:
        return Outcome("conflict", paths=("",))
    ours, theirs = edits(base, source), edits(base, target)
    for path in ours.keys() & theirs.keys():
        if _same_edit(ours[path], theirs[path]):
            del ours[path], theirs[path]
    clashes = sorted(_clashes(ours, theirs) | _clashes(theirs, ours))
    if clashes:
        return Outcome("conflict", paths=tuple(pointers.format(path) for path in clashes))
    return Outcome("combine", [_patch(base, path, value) for path, value in ours.items()]) if ours else NOTHING


def edits(before: Document, after: Document) -> Edits:
    """The paths at which two documents differ. Only objects are looked into: an array is changed as a whole."""
    found: Edits = {}
    _collect(before, after, (), found)
    return found


def _collect(before: Document, after: Document, at: Tokens, found: Edits) -> None:
    for key in before.keys() - after.keys():
        found[*at, key] = GONE
    for key, value in after.items():
        if key not in before:
            found[*at, key] = value
        elif isinstance(value, dict) and isinstance(before[key], dict):
            _collect(before[key], value, (*at, key), found)
        elif not codec.same(before[key], value):
            found[*at, key] = value


def _same_edit(a: Json | _Gone, b: Json | _Gone) -> bool:
    return a is b if a is GONE or b is GONE else codec.same(a, b)


def _clashes(edited: Iterable[Tokens], others: Edits) -> set[Tokens]:
    """The paths that are, or lie below, one that the other side has edited too."""
    return {path for path in edited if any(path[:length] in others for length in range(len(path) + 1))}


def _patch(base: Document, path: Tokens, value: Json | _Gone) -> dict[str, Any]:
    pointer = pointers.format(path)
    if value is GONE:
        return {"op": "remove", "path": pointer}
    parent: Json = base
    for token in path[:-1]:
        parent = parent[token]
    return {"op": "replace" if path[-1] in parent else "add", "path": pointer, "value": value}
