"""Widenings: which types of a field take every value of another, and what a value becomes.

Values are meant as JSON has them, or as a column of the scalar does. Nothing is rounded: a whole number that no float
is equal to is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ontolake.model import scalars
from ontolake.model.typespec import Spec, scalar_of

Conversion = Callable[[Any], Any]

_NO_SCALARS = {"NoneType", "Any"}


def unchanged(value: Any) -> Any:
    """The conversion of a value that stays as it is."""
    return value


class Exactly:
    """The conversion of numbers to another type, of which each must have one that is equal to it."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def __call__(self, value: Any) -> Any:
        """The number; a value that is no whole number as it is. Raises `ValueError` if nothing is equal to it."""
        if type(value) is not int:
            return value
        try:
            found = self._kind(value)
        except (OverflowError, ArithmeticError):
            found = None
        if found != value:
            raise ValueError(f"no {self._kind.__name__} is equal to {value}")
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Exactly) and other._kind is self._kind

    def __hash__(self) -> int:
        return hash(self._kind)


def widening(before: Spec, after: Spec) -> Conversion | None:
    """What makes values of a type values of a wider one; `unchanged` if they stay as they are.

    None if `after` does not take every value that `before` does, or if a value could be taken for another one.
    """
    if before == after:
        return unchanged
    old, new = _members(before), _members(after)
    found = [(member, next(filter(None, (_member(member, one) for one in _equal_first(member, new))), None))
             for member in old]  # fmt: skip
    if any(step is None for _, step in found):
        return None
    changing = [(member, step) for member, step in found if step is not unchanged and step is not None]
    if not changing:
        return unchanged
    first = changing[0][1]
    if isinstance(first, Exactly) and all(step == first for _, step in changing):
        return first
    # Which member of a union a list or a dict belongs to cannot be told: there must be one.
    many = [member for member, _ in found if member["kind"] in ("list", "dict", "typed_dict", "ref")]
    if len(many) == 1 and len(changing) == 1 and not any(_is_any(member) for member in old):
        step = changing[0][1]
        return lambda value: step(value) if isinstance(value, list | dict) else value
    return None


def _members(spec: Spec) -> list[Spec]:
    return list(spec["members"]) if spec["kind"] == "union" else [spec]


def _equal_first(member: Spec, others: list[Spec]) -> list[Spec]:
    return sorted(others, key=lambda one: one != member)


def _is_any(spec: Spec) -> bool:
    return bool(spec["kind"] == "primitive" and spec["name"] == "Any")


def _member(before: Spec, after: Spec) -> Conversion | None:
    """The conversion from one member of a union to another."""
    if before == after:
        return unchanged
    kind = before["kind"]
    if kind in ("enum", "literal"):
        return unchanged if _values_fit(before, after) else None
    if kind != after["kind"]:
        return None
    if kind == "primitive":
        return _number(before["name"], after["name"])
    if kind == "list":
        return _list(before, after)
    if kind == "dict":
        step = widening(before["value"], after["value"])
        if step is None or before["key"] != after["key"]:
            return None
        return unchanged if step is unchanged else lambda value: {name: step(one) for name, one in value.items()}
    return _typed_dict(before, after) if kind == "typed_dict" else None


def _number(before: str, after: str) -> Conversion | None:
    if {before, after} & _NO_SCALARS:
        return None
    old, new = scalars.get(before), scalars.get(after)
    return Exactly(new.python) if after in old.widens and old.python is int else None


def _values_fit(before: Spec, after: Spec) -> bool:
    """Whether every value of an enum or a literal is one of another, or of the scalar that all of them are."""
    if after["kind"] in ("enum", "literal"):
        known = {(type(value), value) for value in after["values"]}
        return all((type(value), value) in known for value in before["values"])
    scalar, nullable = scalar_of(before)
    return after["kind"] == "primitive" and scalar is not None and not nullable and after["name"] == scalar


def _list(before: Spec, after: Spec) -> Conversion | None:
    if before.get("container") != after.get("container") or ("items" in before) != ("items" in after):
        return None
    if "items" not in before:
        step = widening(before["item"], after["item"])
        if step is None or step is unchanged:
            return step
        return lambda value: [step(one) for one in value]
    if len(before["items"]) != len(after["items"]):
        return None
    steps = [widening(one, two) for one, two in zip(before["items"], after["items"], strict=True)]
    if any(step is None for step in steps):
        return None
    if all(step is unchanged for step in steps):
        return unchanged
    return lambda value: [step(one) for step, one in zip(steps, value, strict=True) if step is not None]


def _typed_dict(before: Spec, after: Spec) -> Conversion | None:
    """Keys may come that are not required, and stay or become optional; none may go."""
    old, new = before["fields"], after["fields"]
    if not set(old) <= set(new) or not set(after["required"]) <= set(before["required"]):
        return None
    steps = {name: widening(old[name], new[name]) for name in old}
    if any(step is None for step in steps.values()):
        return None
    if all(step is unchanged for step in steps.values()):
        return unchanged
    return lambda value: {name: (steps.get(name) or unchanged)(one) for name, one in value.items()}


def spec_text(spec: Spec) -> str:
    """A type in a word or two, as messages have it."""
    kind = spec["kind"]
    if kind == "union":
        return " | ".join(spec_text(part) for part in sorted(spec["members"], key=lambda one: _is_none(one)))
    if kind == "list" and "item" in spec:
        return f"{spec.get('container', 'list')}[{spec_text(spec['item'])}]"
    if kind == "dict":
        return f"dict[{spec_text(spec['key'])}, {spec_text(spec['value'])}]"
    if kind == "literal":
        return f"Literal[{', '.join(map(repr, spec['values']))}]"
    return "None" if _is_none(spec) else str(spec.get("name") or spec.get("container") or kind)


def _is_none(spec: Spec) -> bool:
    return bool(spec["kind"] == "primitive" and spec["name"] == "NoneType")

