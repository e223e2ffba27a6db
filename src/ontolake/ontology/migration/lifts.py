"""Lifts: rows of one schema as rows of another where nobody has to say how.

Fields may be renamed (`Field(was=…)`), take more than before, come with a default or None, and go. Values that stay are
handed over as they are encoded, so that they are the same to the bit. Everything else needs an upgrader.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic_core import to_jsonable_python

from ontolake.model import scalars
from ontolake.model.columns import Column
from ontolake.model.field import UNSET
from ontolake.model.scalars.base import json_text
from ontolake.model.schema import Schema, key_fields
from ontolake.model.stored import StoredType
from ontolake.model.types import TypeInfo
from ontolake.model.widening import Conversion, Exactly, spec_text, unchanged, widening
from ontolake.ontology.errors import MigrationError, SchemaValidationError
from ontolake.ontology.repository.protocol import Row

if TYPE_CHECKING:
    import pyarrow as pa


class FieldLift(NamedTuple):
    """What becomes of one field. `before` and `after` are its stored names, None for one that comes or goes.

    `types` says which type becomes which, if it does; `default` which value a new field gets.
    """

    what: Literal["kept", "renamed", "widened", "added", "dropped"]
    before: str | None
    after: str | None
    types: str | None = None
    default: str | None = None

    def __str__(self) -> str:
        if self.what == "dropped":
            return f"{self.before} dropped"
        if self.what == "added":
            return f"{self.after} added as {self.default}"
        name = f"{self.before} renamed {self.after}" if self.what == "renamed" else f"{self.after}"
        return f"{name} {self.types}" if self.types else f"{name} kept" if self.what == "kept" else name


class Unliftable(NamedTuple):
    """Why rows need an upgrader, a reason for each field."""

    reasons: tuple[str, ...]


class _Source(NamedTuple):
    """Where the value of a new column comes from: an old column, as encoded or as JSON, or a default."""

    after: Column
    before: Column | None = None
    step: Conversion = unchanged
    default: Column | None = None
    """The declared column whose default it is; None stands for None."""


class Lift:
    """What makes rows of one schema rows of another. `fields` says it, field by field."""

    def __init__(self, old: StoredType, new: StoredType, fields: Sequence[FieldLift], sources: Sequence[_Source]
                 ) -> None:  # fmt: skip
        self.old = old
        self.new = new
        self.fields = tuple(fields)
        self._sources = {one.after.stored: one for one in sources}

    def rows(self, rows: Iterable[Row], order: Sequence[str] | None = None) -> Iterator[Row]:
        """Encoded rows in the order of `StoredType.all_columns` of the old schema, whatever stands behind them, as
        encoded rows of the new one: in the same order of its own, or in that of these stored names.

        Raises `MigrationError`, naming the key, for a value that the new type cannot be equal to.
        """
        names = [column.stored for column in self.new.all_columns] if order is None else order
        places = {column.stored: place for place, column in enumerate(self.old.all_columns)}
        sources = [self._sources[name] for name in names]
        # One more value behind each row, which stands for what comes from nowhere.
        pick = itemgetter(*(len(places) if one.before is None else places[one.before.stored] for one in sources))
        changes = [(place, self._converted(one)) for place, one in enumerate(sources)
                   if one.before is None or self._converted(one) is not unchanged]  # fmt: skip
        width, single = len(places), len(sources) == 1
        for row in rows:
            known = (*row[:width], None)
            found = (pick(known),) if single else pick(known)
            if not changes:
                yield found
                continue
            values = list(found)
            for place, change in changes:
                if change is not unchanged and (values[place] is not None or sources[place].before is None):
                    try:
                        values[place] = change(values[place])
                    except (ValueError, ArithmeticError) as error:
                        raise self._misfit(row, sources[place].after, error) from error
            yield tuple(values)

    def values(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The same for a row of Python values by stored names. Raises `MigrationError`."""
        found: dict[str, Any] = {}
        for name, one in self._sources.items():
            if one.before is None:
                found[name] = None if one.default is None else one.default.default_value()
                continue
            value = row[one.before.stored]
            whole = one.before.scalar is None or isinstance(one.step, Exactly)
            try:
                found[name] = one.step(value) if whole and value is not None else value
            except ValueError as error:
                key = tuple(row[column.stored] for column in self.old.keys)
                raise _misfit(self.new.name, key[0] if len(key) == 1 else key, name, error) from error
        return found

    def table(self, table: pa.Table) -> pa.Table | None:
        """The same for an Arrow table by stored names. None if values have to be looked at one by one.

        Left to the caller: columns that get a default, and ends of relations that get another type.
        """
        import pyarrow as pa

        found = {}
        ends = self.new.keys[:2] if self.new.kind == "relation" else ()
        for name, one in self._sources.items():
            if one.before is None:
                if one.default is None:
                    found[name] = pa.nulls(len(table), one.after.arrow_type)
                continue
            values = table.column(one.before.stored)
            if isinstance(one.step, Exactly) and None not in (one.before.scalar, one.after.scalar):
                try:
                    values = values.cast(one.after.arrow_type)  # which refuses what it cannot keep
                except pa.ArrowInvalid:
                    return None
            elif one.after not in ends and self._converted(one) is not unchanged:
                return None
            found[name] = values
        return pa.table(found)

    def _converted(self, one: _Source) -> Conversion:
        """What makes an encoded value of the old column one of the new."""
        if one.before is None:
            return unchanged if one.default is None else _default(one.default, self.new.name)
        old, new = one.before, one.after
        if old.scalar is not None and new.scalar is not None:
            return one.step
        if old.scalar is None and new.scalar is None:
            return unchanged if one.step is unchanged else lambda text: json_text(one.step(json.loads(text)))
        if new.scalar is None:
            return lambda value: json_text(one.step(_jsonable(old.decode(value))))
        return lambda text: new.type.encode(new.type.from_json(one.step(json.loads(text))))

    def _misfit(self, row: Row, column: Column, error: Exception) -> MigrationError:
        places = [self.old.all_columns.index(key) for key in self.old.keys]
        key = tuple(key.decode(row[place]) for key, place in zip(self.old.keys, places, strict=True))
        return _misfit(self.new.name, key[0] if len(key) == 1 else key, column.stored, error)


def _misfit(type_name: str, key: Any, field: str, error: Exception) -> MigrationError:
    return MigrationError(f"{type_name} {key!r}.{field} does not fit: {error}",
                          hint=f"an upgrader of {type_name} can say what becomes of it")


def _default(column: Column, type_name: str) -> Conversion:
    """The encoded default of a column, worked out once unless it is made for every row."""
    def made(_: Any) -> Any:
        try:
            found = column.encode(column.default_value(), type_name)
            if isinstance(found, str):
                found.encode()
        except SchemaValidationError as error:
            raise MigrationError(f"the default of a new field does not fit: {error}") from error
        return found

    if column.default is not column.default_value():
        return made
    known = made(None)
    return lambda _: known


def _jsonable(value: Any) -> Any:
    return to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="constants", fallback=scalars.jsonable)


def lift_of(stored: StoredType, info: TypeInfo) -> Lift | Unliftable:
    """The lift of stored rows to a type as it is declared now."""
    from ontolake.model.schema import schema_of

    return lift_between(stored.schema, schema_of(info.cls), info.all_columns)


def lift_between(old: Schema, new: Schema, declared: Iterable[Column] = ()) -> Lift | Unliftable:
    """The lift from one schema of a type to another, or why there is none.

    `declared` are the columns of the type as code has it now, which know defaults and earlier names; without them new
    fields can only be None, and nothing was renamed.
    """
    known = {column.stored: column for column in declared}
    before, after = StoredType(old), StoredType(new)
    sources, twice = _sources_of(before, after, known)
    reasons = [f"{one} was the name of more than one field" for one in twice]
    taken = set(sources.values())
    dropped = [name for name in before.by_name if name not in taken]
    fields: list[FieldLift] = []
    columns: list[_Source] = []
    ends = new["keys"][:2] if after.kind == "relation" else []
    reasons += _keys_moved(old, new, sources, ends)
    for name, column in after.by_name.items():
        source = sources.get(name)
        if source is None:
            found = _added(column, _declared_as(name, known), dropped)
        else:
            found = _moved(before.by_name[source], column, after.name if name in ends else None)
        if isinstance(found, str):
            reasons.append(found)
        else:
            fields.append(found[0])
            columns.append(found[1])
    fields += [FieldLift("dropped", name, None) for name in dropped]
    if reasons:
        return Unliftable(tuple(reasons))
    return Lift(before, after, fields, columns)


def _keys_moved(old: Schema, new: Schema, sources: Mapping[str, str], ends: Sequence[str]) -> list[str]:
    if (old.get("left"), old.get("right")) != (new.get("left"), new.get("right")):
        return ["it leads to other types"]
    if [sources.get(name) for name in new["keys"]] != old["keys"]:
        return [f"the keys were {', '.join(old['keys'])} and are {', '.join(new['keys'])}"]
    parts, before = key_fields(new), key_fields(old)
    if tuple(sources.get(name) for name in parts) != before:
        return [f"the keys were {', '.join(before)} and are {', '.join(parts)}"]
    return [f"the key {name} gets another type" for name in parts
            if name not in ends and old["fields"][sources[name]] != new["fields"][name]]


def _declared_as(name: str, known: Mapping[str, Column]) -> Column | None:
    """The field of today that a name stands for, or once stood for."""
    found = known.get(name)
    return found or next((column for column in known.values() if name in (column.was or ())), None)


def _names_before(name: str, column: Column | None) -> Sequence[str]:
    """The earlier names of what is called `name` in some schema."""
    was = () if column is None or column.was is None else column.was
    return was[was.index(name) + 1 :] if name in was else was


def _sources_of(
    before: StoredType, after: StoredType, known: Mapping[str, Column]
) -> tuple[dict[str, str], list[str]]:  # fmt: skip
    """The old name of every new field that had one, and names that two fields lay claim to."""
    renamed: dict[str, str] = {}
    for name in after.by_name:
        if name not in before.by_name:
            earlier = _names_before(name, _declared_as(name, known))
            found = next((one for one in earlier if one in before.by_name), None)
            if found is not None:
                renamed[name] = found
    claimed = list(renamed.values())
    kept = {name: name for name in after.by_name if name in before.by_name and name not in claimed}
    return {**kept, **renamed}, sorted({name for name in claimed if claimed.count(name) > 1})


def _added(column: Column, declared: Column | None, dropped: Sequence[str]) -> tuple[FieldLift, _Source] | str:
    name = column.stored
    if dropped and (declared is None or declared.was is None):
        return (f"{name} is new and {', '.join(dropped)} {'is' if len(dropped) == 1 else 'are'} gone: "
                f"declare {name} with was={dropped[0]!r} if it was renamed, with was=() if not")
    if declared is not None and declared.default is not UNSET:
        shown = "made" if declared.default_value() is not declared.default else repr(declared.default)
        return FieldLift("added", None, name, default=shown), _Source(column, default=declared)
    if column.nullable:
        return FieldLift("added", None, name, default="None"), _Source(column)
    return f"{name} is new and has no default"


def _moved(old: Column, new: Column, end_of: str | None) -> tuple[FieldLift, _Source] | str:
    what: Any = "kept" if old.stored == new.stored else "renamed"
    if old.spec == new.spec:
        return FieldLift(what, old.stored, new.stored), _Source(new, old)
    types = f"{spec_text(old.spec)} → {spec_text(new.spec)}"
    if end_of is not None:  # the ends of a relation follow the keys of their entities
        step: Conversion | None = lambda value: new.type.encode(retyped(end_of, old, new, old.decode(value)))  # noqa: E731
    else:
        step = widening(old.spec, new.spec)
    if step is None:
        return f"{new.stored} changes from {types}"
    return FieldLift("widened" if what == "kept" else what, old.stored, new.stored, types), _Source(new, old, step)


def key_text(column: Column, value: Any) -> str:
    """A key as text, which stays when a key gets another type: 5 and "5" are one key."""
    return str(value if column.codec.encode is None else column.codec.encode(value))


def retyped(type_name: str, old: Column, new: Column, value: Any) -> Any:
    """The key of an end as one of the type that the key of its entity has now. Raises `MigrationError`."""
    text = key_text(old, value)
    try:
        return int(text) if new.sqlite_type == "INTEGER" else new.decode(text)
    except ValueError as error:
        raise MigrationError(f"{new.name} {value!r} of {type_name} is no {new.scalar}, as the key of its end is now"
                             ) from error


__all__ = ["FieldLift", "Lift", "Unliftable", "key_text", "lift_between", "lift_of", "retyped"]
