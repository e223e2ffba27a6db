"""Lines of an import, read and checked: every bad one is found before anything is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec
from pydantic import ValidationError

from ontolake.errors import Invalid
from ontolake.model.errors import ModelError, SchemaValidationError
from ontolake.model.scalars.base import json_text
from ontolake.model.schema import diff, schema_of
from ontolake.model.types import TypeInfo
from ontolake.ontology.errors import QueryError
from ontolake.ontology.events.copies import event_of, schedule_of
from ontolake.ontology.events.records import KeptEvent, KeptQueue, KeptSchedule
from ontolake.ontology.moving.json_values import plain
from ontolake.ontology.typed_store import TypedStore

Row = tuple[Any, ...]
_MEMBERS = "kind, type, key, fields, commit_id"
_Type = tuple[TypeInfo, Callable[[Any], Any], dict[str, str]]


class BadLine(NamedTuple):
    """A line that cannot be imported, and why."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    kind: str
    type: str = ""
    fields: msgspec.Raw = msgspec.Raw(b"")
    key: Any = None
    schema: Any = None
    event: Any = None
    schedule: Any = None
    commit_id: int | None = None


_decode = msgspec.json.Decoder(_Line).decode


class Lines:
    """What files of lines say: the rows of each type, encoded, by key, and the lines that say nothing useful.

    Of two lines with one key the second is bad, unless `repeated` says that the `first` or the `last` counts.
    """

    def __init__(self, store: TypedStore, *, repeated: str = "bad") -> None:
        self.rows: dict[TypeInfo, dict[Any, Row]] = {}
        self.events: list[KeptEvent] = []
        self.schedules: list[KeptSchedule] = []
        self.bad: list[BadLine] = []
        self.count = 0
        self._store = store
        self._repeated = repeated
        self._schemas: list[Any] = []
        self._types: dict[tuple[str, str], _Type] = {}
        self._places: dict[tuple[TypeInfo, Any], tuple[str, int]] = {}

    @property
    def queue(self) -> KeptQueue:
        """What the lines say of the queue of events."""
        return KeptQueue(tuple(self.events), tuple(self.schedules))

    def read(self, name: str, lines: Iterable[bytes]) -> None:
        """Read one file. What is wrong with it is added to `bad`."""
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            self.count += 1
            try:
                self._take(line, name, number)
            except SchemaValidationError as error:
                self._refuse(name, number, error.message)
            except (ModelError, QueryError, Invalid) as error:
                self._refuse(name, number, error.message + (f" ({error.hint})" if error.hint else ""))

    def _refuse(self, name: str, number: int, reason: str) -> None:
        self.bad.append(BadLine(name, number, reason))

    def _take(self, line: bytes, name: str, number: int) -> None:
        found = _parsed(line)
        if found.kind == "schema":
            self._learn(found.schema)
            return
        if found.kind == "event":
            self.events.append(event_of(found.event))
            return
        if found.kind == "schedule":
            self.schedules.append(schedule_of(found.schedule))
            return
        info, validate, renamed = self._type(found.kind, found.type)
        try:
            obj = validate(_named(bytes(found.fields), renamed) if renamed else bytes(found.fields))
        except ValidationError as error:
            raise SchemaValidationError.of(error, info.name, found.key) from None
        row = info.encode(obj)
        key = info.key_of(row)
        if found.key is not None:
            _check_key(info, row, found.key)
        known = self.rows.setdefault(info, {})
        if key in known and self._repeated != "last":
            if self._repeated == "bad":
                file, first = self._places[info, key]
                raise SchemaValidationError(f"line {first} of {file} has this key too", type_name=info.name, key=key)
            return
        known[key] = row
        self._places[info, key] = (name, number)

    def _learn(self, schema: Any) -> None:
        """A schema that the store does not have is taken for that of its type; another one than it has is refused."""
        try:
            kind, name, fields, keys = schema["kind"], schema["name"], schema["fields"], schema["keys"]
            sound = kind in ("entity", "relation") and isinstance(name, str) and set(keys) <= set(fields)
        except (TypeError, KeyError):
            sound = False
        if not sound:
            raise SchemaValidationError("this is not a schema")
        for info in self._store.types:
            if (info.kind, info.name) == (kind, name):
                change = diff(schema_of(info.cls), schema)
                if change:
                    raise SchemaValidationError(f"the store has another schema: {change}")
                return
        try:
            self._store.learn([schema])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SchemaValidationError(f"the schema of {name} cannot be used: {error}") from None
        self.rows.setdefault(self._store.find(name, kind), {})  # it becomes known, even if it has no rows

    def _type(self, kind: str, name: str) -> _Type:
        known = self._types.get((kind, name))
        if known is None:
            if kind not in ("entity", "relation"):
                raise SchemaValidationError(f"the kind is entity, relation, schema, event or schedule, not {kind!r}")
            if not name:
                raise SchemaValidationError("it names no type")
            info = self._store.find(name, "entity" if kind == "entity" else "relation")
            renamed = {column.stored: column.name for column in info.all_columns if column.stored != column.name}
            validator = info.cls.__pydantic_validator__
            known = info, lambda text: validator.validate_json(text, strict=True), renamed
            self._types[kind, name] = known
        return known


def _parsed(line: bytes) -> _Line:
    try:
        return _decode(line)
    except msgspec.ValidationError as error:
        raise SchemaValidationError(f"a line has {_MEMBERS}: {error}") from None
    except msgspec.DecodeError as strictly:
        try:
            loosely = json.loads(line)  # which knows NaN and the infinities
        except (ValueError, RecursionError):
            raise SchemaValidationError(f"this is not JSON: {strictly}") from None
    if not isinstance(loosely, dict):
        raise SchemaValidationError("a line is a JSON object")
    fields = msgspec.Raw(json.dumps(loosely.pop("fields", None)).encode())
    try:
        found = msgspec.convert(loosely, _Line)
    except msgspec.ValidationError as error:
        raise SchemaValidationError(f"a line has {_MEMBERS}: {error}") from None
    found.fields = fields
    return found


def _named(fields: bytes, names: dict[str, str]) -> str | bytes:
    """Fields by their attributes, where those are called differently."""
    found = json.loads(fields or b"null")
    if not isinstance(found, dict):
        return fields
    return json.dumps({names.get(name, name): value for name, value in found.items()})


def _check_key(info: TypeInfo, row: Row, given: Any) -> None:
    keys = [plain(column, value) for column, value in zip(info.keys, row, strict=False)]
    expected = keys[0] if info.kind == "entity" else keys
    if info.parts and isinstance(given, list):
        given = json_text(given)
    if given != expected:
        raise SchemaValidationError(f"the key {given!r} is not that of the fields, {expected!r}", type_name=info.name)
