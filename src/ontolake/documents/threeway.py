"""The rules of merging one entity, pure: what two sides changed since a base, and whether that fits together."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from ontolake.documents import codec, pointers
from ontolake.documents.codec import Document, Json
from ontolake.documents.pointers import Tokens
from ontolake.history import threeway
from ontolake.history.threeway import Disputed


class _Gone:
    """The value of an edit that removes. It equals itself alone."""


GONE: Final = _Gone()

Edits = dict[Tokens, Json | _Gone]
"""What was changed: a new value, or GONE, at each of some paths, none of which leads to another."""


class DocumentOutcome(NamedTuple):
    """What to do to the target: nothing, take the source's state, apply patches, or ask somebody."""

    kind: str
    """One of `nothing`, `take`, `combine`, `conflict`."""
    patches: Sequence[dict[str, Any]] = ()
    paths: tuple[str, ...] = ()
    """Where a conflict is; "" when it is about the whole document."""


NOTHING = DocumentOutcome("nothing")
TAKE = DocumentOutcome("take")

Base = Document | Disputed | None
"""A document, or one with disputed values in it, or a disputed one as a whole; None if it is not there."""


def merge(base: Base, source: Document | None, target: Document | None) -> DocumentOutcome:
    """How the change from `base` to `source` is brought to `target`. None stands for an entity that is not there."""
    decided = threeway.decide(base, source, target, codec.same)
    if decided is threeway.Outcome.KEEP:
        return NOTHING
    if decided is threeway.Outcome.TAKE:
        return TAKE
    if not isinstance(base, dict) or source is None or target is None:
        return DocumentOutcome("conflict", paths=("",))
    ours, theirs = edits(base, source), edits(base, target)
    _drop_agreed(ours, theirs)
    clashes = sorted(_clashes(ours, theirs) | _clashes(theirs, ours))
    if clashes:
        return DocumentOutcome("conflict", paths=tuple(pointers.format(path) for path in clashes))
    return DocumentOutcome("combine", [_patch(base, path, value) for path, value in ours.items()]) if ours else NOTHING


def virtual(base: Base, ours: Base, theirs: Base) -> Base:
    """What merging two bases gives. Where they conflict, the result is disputed."""
    decided = threeway.decide(base, theirs, ours, codec.same)
    if decided is not threeway.Outcome.CLASH:
        return ours if decided is threeway.Outcome.KEEP else theirs
    if not isinstance(base, dict) or not isinstance(ours, dict) or not isinstance(theirs, dict):
        return Disputed()
    mine, new = edits(base, ours), edits(base, theirs)
    _drop_agreed(mine, new)
    clashes = _clashes(mine, new) | _clashes(new, mine)
    merged: Document = copy.deepcopy(ours)
    for path, value in new.items():
        if path not in clashes:
            _put(merged, path, value)
    for clash in clashes:
        # The shorter of two overlapping paths wins: everything below it is disputed.
        _put(merged, next(path for path in _prefixes(clash) if path in mine or path in new), Disputed())
    return merged


def undisputed(base: Base) -> Document | None:
    """A base without what is disputed, as it can be shown; None if that is all of it."""
    if not isinstance(base, dict):
        return None
    return {key: undisputed(value) if isinstance(value, dict) else value for key, value in base.items()
            if not isinstance(value, Disputed)}  # fmt: skip


def _put(document: Document, path: Tokens, value: Json | Disputed | _Gone) -> None:
    holder = _holder(document, path)
    if value is GONE:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value


def _holder(document: Document, path: Tokens) -> Json:
    """The object in which a path ends."""
    for token in path[:-1]:
        document = document[token]
    return document


def edits(before: Document, after: Document) -> Edits:
    """The paths at which two documents differ. Only objects are looked into: an array is changed as a whole."""
    found: Edits = {}
    _collect(before, after, (), found)
    return found


def _collect(before: Document, after: Document, at: Tokens, found: Edits) -> None:
    for key in before:
        if key not in after:
            found[*at, key] = GONE
    for key, value in after.items():
        if key not in before:
            found[*at, key] = value
        elif isinstance(value, dict) and isinstance(before[key], dict):
            _collect(before[key], value, (*at, key), found)
        elif not codec.same(before[key], value):
            found[*at, key] = value


def _drop_agreed(one: Edits, other: Edits) -> None:
    """Leave out what both sides did alike."""
    for path in one.keys() & other.keys():
        if codec.same(one[path], other[path]):
            del one[path], other[path]


def _clashes(edited: Iterable[Tokens], others: Edits) -> set[Tokens]:
    """The paths that are, or lie below, one that the other side has edited too."""
    return {path for path in edited if any(prefix in others for prefix in _prefixes(path))}


def _prefixes(path: Tokens) -> Iterator[Tokens]:
    """The paths that lead to a path, shortest first, and itself."""
    return (path[:length] for length, _ in enumerate(path, 1))


def _patch(base: Document, path: Tokens, value: Json | _Gone) -> dict[str, Any]:
    pointer = pointers.format(path)
    if value is GONE:
        return {"op": "remove", "path": pointer}
    return {"op": "replace" if path[-1] in _holder(base, path) else "add", "path": pointer, "value": value}
