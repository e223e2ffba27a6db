"""Filters: what comparing a field gives, as data that an engine turns into its own language.

A condition is a shape and its values. The shape is made of named tuples that can be hashed, so an engine may keep
what it made of one; the values stand beside it in the order in which the shape mentions them.
Missing values follow SQL: a comparison with one is neither true nor false, and `~` leaves it so.

Nodes are a closed union and operators are literals. Whoever takes filters apart ends with `assert_never`, so that the
type checker names every place that does not handle a new node or operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Generic, Literal, NamedTuple, NoReturn, TypeVar, assert_never

from ontolake.model.errors import SchemaValidationError

T_co = TypeVar("T_co", covariant=True)
DEEPEST = 100
"""How deep `&`, `|` and `~` may be nested in each other. What is alike side by side is one level."""

Side = Literal["left", "right"]
CompareOp = Literal["==", "!=", "<", "<=", ">", ">="]
MatchOp = Literal["startswith", "endswith", "contains"]
MemberOp = Literal["in"]
TestOp = Literal["is_null", "is_not_null", "is_true", "is_false"]
JunctionOp = Literal["and", "or"]
NegationOp = Literal["not"]
MeasureOp = Literal["count", "sum", "avg", "min", "max", "avg_len", "count_where"]


class ValueRef(NamedTuple):
    """A value of a row: a field of `owner`, of an endpoint if there is a `side`, at a path inside it if there is one.

    `path` goes through objects; `any_path` goes through lists too, and means any of the values that it finds. `at` is
    the position of the row on the path of a traversal; without it, the last row of `owner` is meant.
    """

    owner: Any
    name: str
    side: Side | None = None
    path: tuple[str | int, ...] = ()
    any_path: tuple[str, ...] | None = None
    at: int | None = None


class Compare(NamedTuple):
    """`ref op value`, or `ref op other`."""

    op: CompareOp
    ref: ValueRef | Measure
    other: ValueRef | None = None


class Match(NamedTuple):
    """Text that starts with, ends with or contains a value."""

    op: MatchOp
    ref: ValueRef


class Member(NamedTuple):
    """A value that is one of `size` values."""

    op: MemberOp
    ref: ValueRef
    size: int


class UnaryTest(NamedTuple):
    """`is_null`, `is_not_null`, `is_true`, `is_false`."""

    op: TestOp
    ref: ValueRef


class Junction(NamedTuple):
    """`and`, `or` of two or more, none of which is a junction of the same kind."""

    op: JunctionOp
    parts: tuple[Shape, ...]


class Negation(NamedTuple):
    """`not` of a filter."""

    op: NegationOp
    part: Shape


class Measure(NamedTuple):
    """An aggregate of a group: `count`, `sum`, `avg`, `min`, `max`, `avg_len`, `count_where`."""

    op: MeasureOp
    ref: ValueRef | None = None
    where: Shape | None = None


Leaf = Compare | Match | Member | UnaryTest
"""A filter that is not made of others."""
Shape = Leaf | Junction | Negation


def balanced(op: str, parts: Sequence[str]) -> str:
    """Conditions joined as a tree that is as flat as can be: engines allow for a depth of some hundreds only."""
    while len(parts) > 1:
        pairs = [f"({' '.join((one, op, two))})" for one, two in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + list(parts[len(pairs) * 2 :])
    return parts[0]


def refs_of(shape: Shape) -> Iterator[ValueRef]:
    """The fields that a filter mentions, but not those of aggregates in it."""
    match shape:
        case Junction():
            for part in shape.parts:
                yield from refs_of(part)
        case Negation():
            yield from refs_of(shape.part)
        case Compare():
            if not isinstance(shape.ref, Measure):
                yield shape.ref
                if shape.other is not None:
                    yield shape.other
        case Match() | Member() | UnaryTest():
            yield shape.ref
        case _:
            assert_never(shape)


def with_refs(shape: Shape, change: Callable[[ValueRef], ValueRef]) -> Shape:
    """The same filter with other fields."""
    match shape:
        case Junction():
            return Junction(shape.op, tuple(with_refs(part, change) for part in shape.parts))
        case Negation():
            return Negation(shape.op, with_refs(shape.part, change))
        case Compare():
            if isinstance(shape.ref, Measure):
                return shape._replace(ref=measure_with_refs(shape.ref, change))
            return Compare(shape.op, change(shape.ref), None if shape.other is None else change(shape.other))
        case Match() | Member() | UnaryTest():
            return shape._replace(ref=change(shape.ref))
        case _:
            assert_never(shape)


def slots(shape: Shape) -> int:
    """How many values a filter takes."""
    match shape:
        case Junction():
            return sum(map(slots, shape.parts))
        case Negation():
            return slots(shape.part)
        case Compare():
            inner = slots(shape.ref.where) if isinstance(shape.ref, Measure) and shape.ref.where is not None else 0
            return inner + (0 if shape.other is not None else 1)
        case Match():
            return 1
        case Member():
            return shape.size
        case UnaryTest():
            return 0
        case _:
            assert_never(shape)


def measure_with_refs(measure: Measure, change: Callable[[ValueRef], ValueRef]) -> Measure:
    """The same aggregate of other fields."""
    return Measure(measure.op, None if measure.ref is None else change(measure.ref),
                   None if measure.where is None else with_refs(measure.where, change))


class Condition:
    """A filter. Combine with `&`, `|` and `~`."""

    __slots__ = ("depth", "shape", "values")

    def __init__(self, shape: Shape, values: tuple[Any, ...] = (), depth: int = 0) -> None:
        if depth > DEEPEST:
            raise SchemaValidationError(f"a filter is nested more than {DEEPEST} levels deep",
                                        hint="write what is alike side by side: a | b | c, or field.in_(values)")
        self.shape = shape
        self.values = values
        self.depth = depth

    def __and__(self, other: Condition) -> Condition:
        return _joined("and", self, other)

    def __or__(self, other: Condition) -> Condition:
        return _joined("or", self, other)

    def __invert__(self) -> Condition:
        if isinstance(self.shape, Negation):
            return Condition(self.shape.part, self.values, self.depth - 1)
        return Condition(Negation("not", self.shape), self.values, self.depth + 1)

    def __bool__(self) -> NoReturn:
        raise TypeError("a filter is neither true nor false: combine filters with & | ~, not with and, or, not")

    def __repr__(self) -> str:
        return f"Condition({self.shape!r}, {self.values!r})"


def _joined(op: JunctionOp, left: Condition, right: Condition) -> Condition:
    if not isinstance(right, Condition):
        raise TypeError(f"{right!r} is not a filter")
    shape = joined(op, left.shape, right.shape)
    depths = [one.depth if isinstance(one.shape, Junction) and one.shape.op == op else one.depth + 1
              for one in (left, right)]
    return Condition(shape, left.values + right.values, max(depths) if isinstance(shape, Junction) else 0)


def joined(op: JunctionOp, left: Shape, right: Shape) -> Shape:
    """`left op right`. What is of the same kind stands side by side, and alternatives of one field become a list."""
    before = left.parts if isinstance(left, Junction) and left.op == op else (left,)
    behind = right.parts if isinstance(right, Junction) and right.op == op else (right,)
    if op == "or" and (found := _one_of(before[-1], behind[0])) is not None:
        before, behind = (*before[:-1], found), behind[1:]
    parts = before + behind
    return parts[0] if len(parts) == 1 else Junction(op, parts)


def narrowed(
    shape: Shape | None, values: tuple[Any, ...], conditions: Sequence[Condition]
) -> tuple[Shape, tuple[Any, ...]]:  # fmt: skip
    """A filter and its values with more conditions, all of which must hold."""
    if shape is None and len(conditions) == 1:
        return conditions[0].shape, conditions[0].values
    shapes = [*(() if shape is None else (shape,)), *(condition.shape for condition in conditions)]
    parts = [part for one in shapes
             for part in (one.parts if isinstance(one, Junction) and one.op == "and" else (one,))]
    given = tuple(chain(values, *(condition.values for condition in conditions)))
    return parts[0] if len(parts) == 1 else Junction("and", tuple(parts)), given


def _one_of(left: Shape, right: Shape) -> Member | None:
    """`a == 1 | a == 2` as `a.in_([1, 2])`; None if the two are anything else."""
    one, two = _alternatives(left), _alternatives(right)
    return Member("in", left.ref, one + two) if one and two and left.ref == right.ref else None  # type: ignore


def _alternatives(shape: Shape) -> int:
    """How many values a field may have, if that is what a filter says; else 0."""
    if isinstance(shape, Member):
        return shape.size
    return int(isinstance(shape, Compare) and shape.op == "==" and shape.other is None
               and isinstance(shape.ref, ValueRef))


class Comparable(Generic[T_co]):
    """What can be compared with a value, which gives a filter."""

    __slots__ = ("ref",)
    ref: ValueRef | Measure

    def __eq__(self, other: Any) -> Condition:  # type: ignore[override]
        return self.compare("==", other)

    def __ne__(self, other: Any) -> Condition:  # type: ignore[override]
        return self.compare("!=", other)

    def __lt__(self, other: Any) -> Condition:
        return self.compare("<", other)

    def __le__(self, other: Any) -> Condition:
        return self.compare("<=", other)

    def __gt__(self, other: Any) -> Condition:
        return self.compare(">", other)

    def __ge__(self, other: Any) -> Condition:
        return self.compare(">=", other)

    __hash__ = object.__hash__

    def compare(self, op: CompareOp, other: Any) -> Condition:
        """`self op other`, as the operators of Python have it."""
        if other is None or other is True or other is False:
            instead = ".is_null() or .is_not_null()" if other is None else ".is_true() or .is_false()"
            raise TypeError(f"cannot compare {self!r} with {other!r} through {op}"
                            + (f": use {instead}" if isinstance(self.ref, ValueRef) else ""))
        if isinstance(other, FieldRef):
            if isinstance(self.ref, Measure):
                raise TypeError("an aggregate can be compared with a value only")
            return Condition(Compare(op, self.ref, other.ref))
        _check_text(self.ref, other)
        return Condition(Compare(op, self.ref), (other,))

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{self!r} is a field, neither true nor false: use .is_true()")


class FieldRef(Comparable[T_co]):
    """A field in a query: compare it, match it, look inside it, order by it."""

    __slots__ = ()
    ref: ValueRef

    def __init__(self, ref: ValueRef) -> None:
        self.ref = ref

    def __repr__(self) -> str:
        owner = getattr(self.ref.owner, "__name__", self.ref.owner)
        place = f"{self.ref.side}({owner})" if self.ref.side else owner
        return f"{place}.{self.ref.name}" + "".join(f"[{part!r}]" for part in self.ref.path)

    def startswith(self, text: str) -> Condition:
        """Text that starts with this. Case counts, and no character is a wildcard."""
        return self._match("startswith", text)

    def endswith(self, text: str) -> Condition:
        return self._match("endswith", text)

    def contains(self, text: str) -> Condition:
        return self._match("contains", text)

    def _match(self, op: MatchOp, text: str) -> Condition:
        if not isinstance(text, str):
            raise TypeError(f"{self!r}.{op} takes text, not {text!r}")
        _check_text(self.ref, text)
        return Condition(Match(op, self.ref), (text,))

    def in_(self, values: Iterable[Any]) -> Condition:
        """One of these values; none of them matches nothing."""
        if isinstance(values, str | bytes):
            raise TypeError(f"{self!r}.in_ takes a list of values, not one text")
        found = tuple(values)
        if any(value is None for value in found):
            raise TypeError(f"{self!r}.in_ cannot look for None: add | {self!r}.is_null()")
        for value in found:
            _check_text(self.ref, value)
        return Condition(Member("in", self.ref, len(found)), found)

    def is_null(self) -> Condition:
        return Condition(UnaryTest("is_null", self.ref))

    def is_not_null(self) -> Condition:
        return Condition(UnaryTest("is_not_null", self.ref))

    def is_true(self) -> Condition:
        return Condition(UnaryTest("is_true", self.ref))

    def is_false(self) -> Condition:
        return Condition(UnaryTest("is_false", self.ref))

    def path(self, path: str) -> FieldRef[Any]:
        """The value at `a.b` inside a JSON field. `a.0` or `a[0]` is an element of a list."""
        _check_text(self.ref, path)
        return FieldRef(self._inside()._replace(path=self.ref.path + parse_path(path)))

    def __getitem__(self, key: str | int) -> FieldRef[Any]:
        """The value under one key of a JSON field, dots and all, or one element of a list."""
        if isinstance(key, bool) or not isinstance(key, str | int):
            raise TypeError(f"{self!r}[…] takes a key or a position, not {key!r}")
        _check_text(self.ref, key)
        return FieldRef(self._inside()._replace(path=(*self.ref.path, key)))

    def any_path(self, path: str = "") -> FieldRef[Any]:
        """Any of the values at a path that goes through lists: `Order.lines.any_path("sku") == "x"`."""
        _check_text(self.ref, path)
        parts = tuple(str(part) for part in parse_path(path.replace("[*]", ""))) if path else ()
        return FieldRef(self._inside()._replace(any_path=parts))

    def _inside(self) -> ValueRef:
        if self.ref.any_path is not None:
            raise TypeError("a path cannot go on behind any_path()")
        return self.ref

    def __iter__(self) -> NoReturn:
        raise TypeError(f"{self!r} is a field, not a list")

    def asc(self) -> Order:
        return Order(self.ref, False)

    def desc(self) -> Order:
        return Order(self.ref, True)


class Order(NamedTuple):
    """What to order by, and which way. Missing values come first, last when descending."""

    ref: ValueRef
    descending: bool


class Aggregate(Comparable[Any]):
    """An aggregate of a group: give it to `agg`, or compare it in `having`."""

    __slots__ = ("values",)
    ref: Measure

    def __init__(self, measure: Measure, values: tuple[Any, ...] = ()) -> None:
        self.ref = measure
        self.values = values

    def compare(self, op: CompareOp, other: Any) -> Condition:
        found = super().compare(op, other)
        return Condition(found.shape, self.values + found.values)

    def __repr__(self) -> str:
        return f"{self.ref.op}({self.ref.ref.name if self.ref.ref else ''})"


def _check_text(ref: ValueRef | Measure, value: Any) -> None:
    """Raise `SchemaValidationError` for text that is not Unicode, half of a pair of surrogates: none is ever stored."""
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            field = ref if isinstance(ref, ValueRef) else ref.ref
            owner = getattr(field.owner, "__name__", None) if field is not None else None
            raise SchemaValidationError(f"the text {value[:100]!r} is not Unicode: {error.reason}", type_name=owner,
                                        field=field.name if field is not None else None) from None


def parse_path(path: str) -> tuple[str | int, ...]:
    """The steps of `a.b[0].c`."""
    if not isinstance(path, str) or not path:
        raise SchemaValidationError(f"a path must be text such as 'a.b', not {path!r}")
    steps: list[str | int] = []
    for part in path.split("."):
        name, *positions = part.split("[")
        if not name and not (positions and not steps):
            raise SchemaValidationError(f"the path {path!r} has an empty step")
        if name:
            steps.append(int(name) if name.isdigit() and name.isascii() else name)
        for position in positions:
            digits = position.removesuffix("]")
            if digits == position or not (digits.isdigit() and digits.isascii()):
                raise SchemaValidationError(f"the path {path!r} has {'[' + position!r} in it, which is no position")
            steps.append(int(digits))
    return tuple(steps)
