"""Conflicts of a merge as data, and the decisions that settle them: strategies and resolutions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from ontolake.errors import Invalid
from ontolake.history.ids import Key

Side = Literal["ours", "theirs"]
"""`ours` is the branch that is merged into, `theirs` the one that is merged."""

SIDES: tuple[Side, Side] = ("ours", "theirs")


class ConflictKind(StrEnum):
    """Why a merge cannot decide by itself."""

    DIVERGENT_INSERT = "divergent_insert"
    """Both sides inserted the row, with different values."""
    DIVERGENT_UPDATE = "divergent_update"
    """Both sides changed the field to different values."""
    DELETE_UPDATE = "delete_update"
    """One side deleted the row, the other changed it."""
    ORPHAN = "orphan_edge"
    """A row refers to one that the other side deleted."""
    UNIQUE = "unique"
    """Two rows have one value in a unique column."""
    CARDINALITY = "cardinality"
    """A row has more relations than its type allows."""
    VALUE = "value"
    """The merged row breaks a rule: CHECK, NOT NULL, a type."""
    SCHEMA = "schema"
    """Both sides changed the definition of the table in ways that do not fit."""


class Conflict(NamedTuple):
    """Something that both sides decided differently.

    `field` is a column or, in a document, a JSON pointer; None means the row as a whole. `base`, `ours` and `theirs`
    are the values of the field, or the rows where `field` is None; None for a row that is not there. A conflict of kind
    `schema` has no key, and the definitions as values. `rows` names the other rows, as `(table, key)`, with which the
    row breaks a rule; settling the conflict for one side settles these with it.
    """

    table: str
    key: Key
    kind: ConflictKind
    field: str | None = None
    base: Any = None
    ours: Any = None
    theirs: Any = None
    detail: str = ""
    rows: tuple[tuple[str, Key], ...] = ()

    def __str__(self) -> str:
        where = self.table + ("" if self.key is None else f" {self.key!r}")
        at = f", field {self.field!r}" if self.field else ""
        return f"{self.kind.replace('_', ' ')} of {where}{at}" + (f": {self.detail}" if self.detail else "")


class Value(NamedTuple):
    """A value of the user's own, to settle a conflict by; `Value(None)` for a whole row deletes it."""

    value: Any


Take = Literal["ours", "theirs", "base"] | Value
"""What settles a conflict."""

Strategy = Side | Mapping[str, Side] | Callable[[Conflict], Take | None] | None
"""Who wins where both sides changed a field: one side for all tables, one for each of some, or a function that decides
conflict by conflict, and leaves those open for which it returns None. A rule that rows break needs a side."""


class Resolution(NamedTuple):
    """Settles a conflict of one row, or with `field` of one field: for a side, for the base, or by a `Value`.

    For a rule that rows break together, the side says whose rows stay; any of these rows may be named.
    """

    table: str
    key: Key
    field: str | None = None
    take: Take = "ours"

    @classmethod
    def parse(cls, data: Any) -> Resolution:
        """Read `{"table", "key", "field", "take"}` as JSON has it; `take` is a side, `base` or `{"value": …}`.

        Raises `Invalid`, which names what is missing or wrong.
        """
        if not isinstance(data, Mapping) or not isinstance(data.get("table"), str) or "key" not in data:
            raise Invalid(f"a resolution needs a table and a key: {data!r}",
                          hint='write {"table": …, "key": …, "field": …, "take": "ours"}')
        take = data.get("take")
        if isinstance(take, Mapping) and set(take) == {"value"}:
            take = Value(take["value"])
        return checked(cls(data["table"], frozen(data["key"]), data.get("field"), take))  # type: ignore[arg-type]


def checked(resolution: Resolution) -> Resolution:
    """A resolution that is well formed. Raises `Invalid`."""
    if not isinstance(resolution, Resolution):
        raise Invalid(f"{resolution!r} is not a Resolution", hint="Resolution(table, key, field, take='ours')")
    table, key, field, take = resolution
    if not isinstance(table, str) or not (field is None or isinstance(field, str)) or not _is_hashable(frozen(key)):
        raise Invalid(f"{resolution!r} names no row or field", hint="take table, key and field from a conflict")
    if not isinstance(take, Value) and take not in (*SIDES, "base"):
        raise Invalid(f"{resolution.table} {resolution.key!r}: {take!r} settles nothing",
                      hint="take 'ours', 'theirs', 'base' or Value(…)")
    if isinstance(take, Value) and field is None and not (take.value is None or isinstance(take.value, Mapping)):
        raise Invalid(f"{table} {key!r}: {take.value!r} is not a row",
                      hint="give all fields as a dict, or None to delete it; for a field name the field")
    return resolution


def _is_hashable(key: Any) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True


def frozen(key: Any) -> Key:
    """A key that can be compared and hashed: JSON has lists where keys of several parts are tuples."""
    return tuple(frozen(part) for part in key) if isinstance(key, list | tuple) else key


class Decisions:
    """The strategy and the resolutions of one merge. Remembers which resolutions settled something."""

    def __init__(self, strategy: Strategy = None, resolutions: Iterable[Resolution] = ()) -> None:
        """Raises `Invalid` for an unknown strategy or a malformed or repeated resolution."""
        by_table = strategy if isinstance(strategy, Mapping) else {}
        self._decide = strategy if callable(strategy) else None
        alone = [] if strategy is None or self._decide or isinstance(strategy, Mapping) else [strategy]
        for side in (*by_table.values(), *alone):
            if side not in SIDES:
                raise Invalid(f"the strategy {side!r} is not known",
                              hint="'ours' keeps the values of the target, 'theirs' takes those of the source")
        self._strategy = strategy if isinstance(strategy, str) else None
        self._by_table: Mapping[str, Side] = dict(by_table)
        self._resolutions: dict[tuple[str, Key, str | None], Resolution] = {}
        self._tables: set[str] = set()
        for one in resolutions:
            where = (checked(one).table, frozen(one.key), one.field)
            if where in self._resolutions:
                raise Invalid(f"{one.table} {one.key!r} is resolved twice", hint="give one resolution for a field")
            self._resolutions[where] = one
            self._tables.add(one.table)
        self._used: set[tuple[str, Key, str | None]] = set()
        self._naming: set[tuple[str, Key, str | None]] = set()

    def strategy(self, table: str) -> Side | None:
        """The side that wins in a table, for conflicts that no resolution names. None if a function decides."""
        return self._by_table.get(table, self._strategy)

    def has_resolutions(self, table: str) -> bool:
        """Whether conflicts of a table must be asked for one by one."""
        return table in self._tables

    def take(self, conflict: Conflict) -> Take | None:
        """How a conflict is settled; None if it is not."""
        found = self._resolved(conflict)
        if found is not None:
            return found
        return self.strategy(conflict.table) if self._decide is None else self._decided(conflict)

    def _resolved(self, conflict: Conflict) -> Take | None:
        for field in dict.fromkeys((conflict.field, None)):
            where = (conflict.table, frozen(conflict.key), field)
            found = self._resolutions.get(where)
            if found is not None:
                self._used.add(where)
                return self._part(found, conflict)
        return None

    def _named(self, conflict: Conflict) -> Side | None:
        """The side that a resolution takes for one of the other rows with which a row breaks a rule.

        A resolution that settles a conflict of that row alone says nothing of the rule.
        """
        for table, key in conflict.rows:
            where = (table, frozen(key), None)
            found = self._resolutions.get(where)
            if found is not None and found.take in SIDES and (where in self._naming or where not in self._used):
                self._naming.add(where)
                self._used.add(where)
                return found.take
        return None

    def _decided(self, conflict: Conflict) -> Take | None:
        """What the function of the caller says. Raises `Invalid` if that settles nothing."""
        assert self._decide is not None
        take = self._decide(conflict)
        return None if take is None else checked(Resolution(conflict.table, conflict.key, conflict.field, take)).take

    def _part(self, found: Resolution, conflict: Conflict) -> Take:
        """What a resolution of a whole row means for one of its fields."""
        take = found.take
        if isinstance(take, Value) and found.field is None and conflict.field is not None:
            if not isinstance(take.value, Mapping):
                return take
            from ontolake.history.pointers import value_at

            return Value(value_at(take.value, conflict.field))
        return take

    def whole(self, table: str, key: Key) -> Value | None:
        """The row that a resolution gives for a row in conflict as a whole, if it gives one."""
        found = self._resolutions.get((table, frozen(key), None))
        return found.take if found is not None and isinstance(found.take, Value) else None

    def side(self, conflict: Conflict) -> Side | None:
        """The side that settles a conflict about rules or definitions; None if none does.

        Raises `Invalid` if a resolution gives a value there: a rule is settled by whose rows stay.
        """
        take = self._resolved(conflict) or self._named(conflict) or self.take(conflict)
        if isinstance(take, Value) or take == "base":
            raise Invalid(f"{conflict.table} {conflict.key!r}: a conflict of kind {conflict.kind.value} is settled by "
                          "a side", hint="take 'ours' or 'theirs': whose rows stay")
        return take

    def check_used(self) -> None:
        """Raise `Invalid` if a resolution is for something that is not in conflict."""
        for where, one in self._resolutions.items():
            if where not in self._used:
                at = f", field {one.field!r}" if one.field else ""
                raise Invalid(f"{one.table} {one.key!r}{at} is not in conflict, so there is nothing to resolve",
                              hint="a dry run shows the conflicts")


def unsettled(conflicts: Sequence[Conflict], decisions: Decisions) -> list[Conflict]:
    """The conflicts that nothing settles."""
    return [conflict for conflict in conflicts if decisions.take(conflict) is None]
