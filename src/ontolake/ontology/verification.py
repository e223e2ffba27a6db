"""Reading all that a typed store holds, of every schema version, to find what cannot be right.

The repository looks after its own layout; here rows are looked at: that their commits exist, that values are of their
types and can be read, that schemas have the hashes they say. A relation that leads nowhere is no damage, and is told
apart from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ontolake.errors import OntolakeError, StorageError
from ontolake.history import Damage
from ontolake.model.codecs import NAN, failure
from ontolake.model.columns import Column
from ontolake.model.restoration import annotation_of, restore
from ontolake.model.schema import schema_hash
from ontolake.model.stored import StoredType
from ontolake.model.types import type_info
from ontolake.model.typespec import scalar_of
from ontolake.ontology.query.plan import Plan, Values
from ontolake.ontology.repository.protocol import Repository, SchemaVersion

if TYPE_CHECKING:
    from ontolake.ontology.repository.branched import BranchedRepository

_BATCH = 20_000
_NAMED = 5
Progress = Callable[[str, int, int | None], None]


class Dangling(NamedTuple):
    """Relations of a type whose end on one side is not there: how many, and the key of one."""

    type_name: str
    side: str
    rows: int
    example: Any


def verify(repository: Repository, progress: Progress = lambda step, done, total: None) -> Iterator[Damage]:
    """Yield all damage."""
    yield from _guarded("layout", repository.check())
    try:
        commits = repository.commit_ids()
        types = sorted({*repository.schemas(), *repository.dropped()})
    except (ValueError, OntolakeError) as error:
        yield Damage("commits and schemas", f"they cannot be read: {error}")
        return
    done = [0]
    for kind, name in types:
        for version in repository.every_version(kind, name):
            where = f"{kind} {name}, version {version.schema_version_id}"
            yield from _guarded(where, _rows(repository, version, commits, done, progress))
    if repository.keeps_unique:
        yield from _guarded("unique fields", _duplicates(cast("BranchedRepository", repository)))


def _duplicates(repository: BranchedRepository) -> Iterator[Damage]:
    """Values of unique fields that several rows of a branch have now. Empty ones do not count."""
    for branch in repository.branch_rows():
        there = repository.on(branch.id)
        for (kind, name), version in there.schemas().items():
            stored = StoredType(version.schema)
            places = [stored.all_columns.index(column) for column in stored.unique]
            held: list[Counter[Any]] = [Counter() for _ in places]
            for row in there.read_stored(stored) if places else ():
                for count, place in zip(held, places, strict=True):
                    if row[place] is not None:
                        count[row[place]] += 1
            for column, count in zip(stored.unique, held, strict=True):
                for value, rows in islice(((one, rows) for one, rows in count.items() if rows > 1), _NAMED):
                    yield Damage(f"{kind} {name}, branch {branch.name}",
                                 f"{column.stored} is unique, and {rows} rows have {value!r}")


def _guarded(where: str, found: Iterator[Damage]) -> Iterator[Damage]:
    """What is found, and as damage too what makes reading on impossible."""
    try:
        yield from found
    except StorageError as error:
        yield Damage(where, error.message)


def _rows(
    repository: Repository, version: SchemaVersion, commits: Collection[int], done: list[int], progress: Progress
) -> Iterator[Damage]:  # fmt: skip
    """The damage in a schema and in all rows that were written under it."""
    yield from check_schema(version)
    try:
        checks = _Checks(version)
    except _NO_SCHEMA:
        return  # told with the schema
    rows = iter(repository.stored_history(version))
    while batch := list(islice(rows, _BATCH)):
        yield from checks.look_at(batch, commits)
        done[0] += len(batch)
        progress("rows", done[0], None)
    yield from checks.rest()


def check_schema(version: SchemaVersion) -> Iterator[Damage]:
    """The damage in a schema itself."""
    where = f"schema of {version.type_kind} {version.type_name}, version {version.schema_version_id}"
    if schema_hash(version.schema) != version.schema_hash:
        yield Damage(where, f"its hash is not {version.schema_hash}")
    try:
        _Checks(version)
    except _NO_SCHEMA as error:
        yield Damage(where, f"it is not a schema: {error}")


_NO_SCHEMA = (KeyError, TypeError, ValueError, AttributeError, OntolakeError)


def check_rows(version: SchemaVersion, rows: list[tuple[Any, ...]], commits: Collection[int]) -> Iterator[Damage]:
    """The damage in some rows that were written under a schema version, each with its commit behind it."""
    checks = _Checks(version)
    for start in range(0, len(rows), _BATCH):
        yield from checks.look_at(rows[start : start + _BATCH], commits)
    yield from checks.rest()


class _Checks:
    """The checks of one schema version, a batch of rows at a time, and within it a column at a time."""

    def __init__(self, version: SchemaVersion) -> None:
        self._stored = StoredType(version.schema)
        self._where = f"{version.type_kind} {version.type_name}, version {version.schema_version_id}"
        self._decoders = [_decoder(column) for column in self._stored.all_columns]
        self._keys = [self._stored.all_columns.index(key) for key in self._stored.keys]
        self._seen: dict[tuple[str, str], int] = {}

    def look_at(self, batch: list[tuple[Any, ...]], commits: Collection[int]) -> Iterator[Damage]:
        *columns, of = zip(*batch, strict=True)
        if not set(of).issubset(commits):
            for row in batch:
                if row[-1] not in commits:
                    yield from self._damage(row, "", f"there is no commit {row[-1]}")
        for number, (column, values) in enumerate(zip(self._stored.all_columns, columns, strict=True)):
            allowed = {*column.type.stored, *((type(None),) if column.nullable else ())}
            decode = self._decoders[number]
            if set(map(type, values)) <= allowed and (decode is None or _readable(decode, values)):
                continue
            for row in batch:
                problem = _problem(column, row[number], allowed, decode)
                if problem:
                    yield from self._damage(row, column.stored, problem)

    def _damage(self, row: tuple[Any, ...], field: str, problem: str) -> Iterator[Damage]:
        kind = (field, problem.split(":")[0])
        self._seen[kind] = self._seen.get(kind, 0) + 1
        if self._seen[kind] <= _NAMED:
            key = ", ".join(str(row[place]) for place in self._keys)
            yield Damage(f"{self._where}: {key} at commit {row[-1]}", f"{field}: {problem}" if field else problem)

    def rest(self) -> Iterator[Damage]:
        """How many more rows have what was named for the first ones."""
        for (field, problem), count in self._seen.items():
            if count > _NAMED:
                yield Damage(self._where, f"{count} rows in all: {f'{field}: ' if field else ''}{problem}")


def _decoder(column: Column) -> Callable[[Any], Any] | None:
    """What reads a value of a column, where not every value of its Python type can be one."""
    from ontolake.model.codecs import codec_for

    if column.type.codec.decode is None and column.spec["kind"] == "primitive":
        return None
    if column.type.truth:
        return lambda value: {0: False, 1: True}[value]
    if column.sqlite_type == "REAL":
        return None
    allowed = _allowed(column)
    if allowed is not None:
        return lambda value: allowed[value]
    return codec_for(annotation_of(column.spec), column.spec).decode


def _allowed(column: Column) -> dict[Any, Any] | None:
    parts = column.spec["members"] if column.spec["kind"] == "union" else [column.spec]
    parts = [part for part in parts if part.get("name") != "NoneType"]
    if scalar_of(column.spec)[0] is None or not all(part["kind"] in ("enum", "literal") for part in parts):
        return None
    return {value: value for part in parts for value in part["values"]}


def _readable(decode: Callable[[Any], Any], values: tuple[Any, ...]) -> bool:
    try:
        for value in set(values):
            if value is not None:
                decode(value)
    except (ValueError, KeyError, TypeError, ArithmeticError):
        return False
    return True


def _problem(column: Column, value: Any, allowed: set[type], decode: Callable[[Any], Any] | None) -> str | None:
    if value is None:
        return None if column.nullable else "a value is missing"
    if column.sqlite_type == "REAL" and value == NAN:
        return None
    if type(value) not in allowed:
        return f"not of the type {column.scalar or 'JSON'}: {value!r}"
    if decode is not None:
        try:
            decode(value)
        except (ValueError, KeyError, TypeError, ArithmeticError) as error:
            return f"it cannot be read: {failure(error)}"
    return None


def dangling(repository: Repository) -> Iterator[Dangling]:
    """Relations as they are now whose ends are not there."""
    classes = restore(version.schema for version in repository.schemas().values())
    keys: dict[str, set[Any]] = {}
    for kind, name in sorted(classes):
        if kind != "relation":
            continue
        info = type_info(classes[kind, name])
        places = [info.all_columns.index(column) for column in info.keys]
        for side, place, end in (("left", places[0], info.left), ("right", places[1], info.right)):
            if end.__name__ not in keys:
                keys[end.__name__] = _keys_of(repository, end)
            known = keys[end.__name__]
            missing = [row[place] for row in repository.run(Plan(info.cls), Values()) if row[place] not in known]
            if missing:
                yield Dangling(name, side, len(missing), missing[0])


def _keys_of(repository: Repository, cls: Any) -> set[Any]:
    info = type_info(cls)
    place = info.all_columns.index(info.keys[0])
    return {row[place] for row in repository.run(Plan(cls), Values())}
