"""Three-way merging of JSON by path: what two sides changed since a base, and whether that fits together.

Objects merge key by key. Arrays merge by element where every element is an object with an identity: a key `id`, `_id`,
`key` or `name` whose values are distinct on all three sides. Paths name such an element by it: `/items/id=5/price`.
The order follows the side that changed it; elements that the source added come behind the element that they follow
there. Other arrays merge by position as long as neither side moved elements: each side has as many as the base, or has
added some at the end. Otherwise the array is in conflict as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ontolake.history.conflicts import Conflict, ConflictKind, Decisions, Value
from ontolake.history.pointers import format as pointer
from ontolake.history.threeway import Disputed, Outcome, decide

Json = Any
Tree = dict[str, Json]

IDENTITIES = ("id", "_id", "key", "name")
"""Keys that identify an element of an array, in order of preference."""


class _Absent:
    """What stands at a path where nothing is. It equals itself alone."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()


def same_json(one: Json, other: Json) -> bool:
    """Whether two values are equal as JSON: 1 and 1.0 are, 1 and true are not, the order of keys does not matter."""
    return bool(one == other) and _same_kinds(one, other)


def _same_kinds(one: Json, other: Json) -> bool:
    """Given that Python finds them equal: whether no boolean stands where the other has a number."""
    if isinstance(one, dict):
        return all(_same_kinds(child, other[key]) for key, child in one.items())
    if isinstance(one, list):
        return all(map(_same_kinds, one, other))
    return isinstance(one, bool) == isinstance(other, bool)


class MergedTree(NamedTuple):
    """What merging one document gives: the document, None if it is deleted; and what is not settled."""

    tree: Tree | None
    outcome: Outcome
    """KEEP: the target's document stays; TAKE: the source's comes in its place; CLASH: `tree` combines both."""
    conflicts: tuple[Conflict, ...] = ()
    settled: bool = False
    """Whether decisions were needed."""


class _Merge:
    """One three-way merge of one document. `settle` decides a path on which both sides differ."""

    def __init__(self, settle: Callable[[tuple[str, ...], Json, Json, Json], Json]) -> None:
        self._settle = settle

    def value(self, path: tuple[str, ...], base: Json, ours: Json, theirs: Json) -> Json:
        outcome = decide(base, theirs, ours, same_json)
        if outcome is Outcome.KEEP:
            return ours
        if outcome is Outcome.TAKE:
            return theirs
        if isinstance(ours, dict) and isinstance(theirs, dict) and isinstance(base, dict):
            return self._object(path, base, ours, theirs)
        if isinstance(ours, list) and isinstance(theirs, list) and isinstance(base, list):
            name = _identity(base, ours, theirs)
            if name is not None:
                return self._array(path, name, base, ours, theirs)
            if _in_place(base, ours) and _in_place(base, theirs) and len(base) in (len(ours), len(theirs)):
                return self._positions(path, base, ours, theirs)
        return self._settle(path, base, ours, theirs)

    def _object(self, path: tuple[str, ...], base: Tree, ours: Tree, theirs: Tree) -> Tree:
        merged: Tree = {}
        for key in (*ours, *(key for key in theirs if key not in ours), *(key for key in base if key not in ours
                                                                          and key not in theirs)):
            found = self.value((*path, key), base.get(key, ABSENT), ours.get(key, ABSENT), theirs.get(key, ABSENT))
            if found is not ABSENT:
                merged[key] = found
        return merged

    def _array(self, path: tuple[str, ...], name: str, base: list[Tree], ours: list[Tree], theirs: list[Tree]) -> Json:
        """Arrays of elements that have an identity. Where both sides reordered them differently, that is a conflict."""
        old, mine, new = ({_token(one[name]): one for one in side} for side in (base, ours, theirs))
        order = _order(list(old), list(mine), list(new))
        if order is None:
            return self._settle(path, base, ours, theirs)
        merged = []
        for token in order:
            found = self.value((*path, f"{name}={token}"), old.get(token, ABSENT), mine.get(token, ABSENT),
                               new.get(token, ABSENT))
            if found is not ABSENT:
                merged.append(found)
        return merged


    def _positions(self, path: tuple[str, ...], base: list[Json], ours: list[Json], theirs: list[Json]) -> Json:
        """Arrays whose elements kept their places; one side may have added some at the end."""
        merged = [self.value((*path, str(place)), *values) for place, values in
                  enumerate(zip(base, ours, theirs, strict=False))]  # fmt: skip
        return merged + ours[len(base) :] + theirs[len(base) :]


def _in_place(base: list[Json], side: list[Json]) -> bool:
    """Whether the elements of the base are where they were: some may have changed, or others follow them."""
    return len(side) == len(base) or (len(side) > len(base) and same_json(side[: len(base)], base))


def _identity(*sides: list[Json]) -> str | None:
    """The key by which the elements of arrays can be told apart; None if there is none."""
    for name in IDENTITIES:
        if all(_identifies(name, side) for side in sides):
            return name
    return None


def _identifies(name: str, side: list[Json]) -> bool:
    values = [one.get(name) if isinstance(one, dict) else None for one in side]
    tokens = {_token(value) for value in values if isinstance(value, str | int) and not isinstance(value, bool)}
    return len(tokens) == len(values)


def _token(value: str | int) -> str:
    return value if isinstance(value, str) else str(value)


def _order(base: list[str], ours: list[str], theirs: list[str]) -> list[str] | None:
    """All elements of two sides in an order that both could have; None if both sides reordered what they share."""
    shared = {*ours} & {*theirs}
    mine, new = [one for one in ours if one in shared], [one for one in theirs if one in shared]
    kept = [one for one in base if one in shared]
    own_order = [one for one in mine if one in kept] == kept
    their_order = [one for one in new if one in kept] == kept
    if mine != new and not own_order and not their_order:
        return None
    lead, other = (theirs, ours) if own_order and not their_order else (ours, theirs)
    order, known = list(lead), {*lead}
    for position, one in enumerate(other):
        if one not in known:
            before = next((other[i] for i in range(position - 1, -1, -1) if other[i] in known), None)
            order.insert(0 if before is None else order.index(before) + 1, one)
            known.add(one)
    return order


def merge_trees(
    table: str, key: str, base: Tree | Disputed | None, ours: Tree | None, theirs: Tree | None, decisions: Decisions
) -> MergedTree:  # fmt: skip
    """Bring the change from `base` to `theirs` to `ours`, for one document; None stands for one that is not there."""
    outcome = decide(base, theirs, ours, same_json)
    if outcome is Outcome.KEEP:
        return MergedTree(ours, outcome)
    if outcome is Outcome.TAKE:
        return MergedTree(theirs, outcome)
    conflicts: list[Conflict] = []
    used = False

    def settle(path: tuple[str, ...], old: Json, mine: Json, new: Json) -> Json:
        nonlocal used
        kind = _kind(old, mine, new)
        before, own, other = (None if value is ABSENT else undisputed(value) for value in (old, mine, new))
        conflict = Conflict(table, key, kind, pointer(path) if path else None, before, own, other, _DETAILS[kind])
        take = decisions.take(conflict)
        if take is None:
            conflicts.append(conflict)
            return mine
        used = True
        if isinstance(take, Value):
            return take.value
        return {"ours": mine, "theirs": new, "base": conflict.base if old is not ABSENT else ABSENT}[take]

    if ours is None or theirs is None:
        found = settle((), base, ours, theirs)
        return MergedTree(None if found is ABSENT else found, Outcome.CLASH, tuple(conflicts), used)
    merged = _Merge(settle).value((), _fields_of(base), ours, theirs)
    whole = decisions.whole(table, key) if used else None
    return MergedTree(merged if whole is None else whole.value, Outcome.CLASH, tuple(conflicts), used)


_DETAILS = {
    ConflictKind.DIVERGENT_INSERT: "both sides added it, differently",
    ConflictKind.DIVERGENT_UPDATE: "both sides changed it, differently",
    ConflictKind.DELETE_UPDATE: "one side deleted it, the other changed it",
}


def _kind(base: Json, ours: Json, theirs: Json) -> ConflictKind:
    if base is ABSENT or isinstance(base, Disputed):
        return ConflictKind.DIVERGENT_INSERT if base is ABSENT else ConflictKind.DIVERGENT_UPDATE
    if ours is ABSENT or theirs is ABSENT or (isinstance(base, dict) and (ours is None or theirs is None)):
        return ConflictKind.DELETE_UPDATE
    return ConflictKind.DIVERGENT_UPDATE


def virtual_tree(
    base: Tree | Disputed | None, ours: Tree | Disputed | None, theirs: Tree | Disputed | None
) -> Tree | Disputed | None:  # fmt: skip
    """What merging two bases gives. Where they conflict, the result is disputed."""
    outcome = decide(base, theirs, ours, same_json)
    if outcome is not Outcome.CLASH:
        return ours if outcome is Outcome.KEEP else theirs
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return Disputed()
    merged = _Merge(lambda path, *values: Disputed()).value((), _fields_of(base), ours, theirs)
    return merged if isinstance(merged, dict) else Disputed()


def _fields_of(base: Tree | Disputed | None) -> Tree:
    """The base of documents that both sides have: one that both inserted, or that is disputed, has no fields yet."""
    return base if isinstance(base, dict) else {}


def undisputed(value: Json) -> Json:
    """A value without what is disputed in it, as it can be shown; None if that is all of it."""
    if isinstance(value, Disputed):
        return None
    if isinstance(value, dict):
        return {key: undisputed(one) for key, one in value.items() if not isinstance(one, Disputed)}
    if isinstance(value, list):
        return [undisputed(one) for one in value if not isinstance(one, Disputed)]
    return value


def differing(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> Iterator[str]:
    """The fields, as JSON pointers, in which two documents differ; those that only one has count as well."""
    yield from _differing((), before or {}, after or {})


def _differing(path: tuple[str, ...], before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for key in (*before, *(key for key in after if key not in before)):
        old, new = before.get(key, ABSENT), after.get(key, ABSENT)
        if isinstance(old, dict) and isinstance(new, dict) and (old or new):
            yield from _differing((*path, key), old, new)
        elif not same_json(old, new):
            yield pointer((*path, key))
