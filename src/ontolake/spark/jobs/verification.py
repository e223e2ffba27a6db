"""`verify`: all that a store holds, read by workers, to find what cannot be right.

Of a typed store on objects: that every object is there with the bytes that were written, that files have the rows,
commits and keys that manifests say, that every value can be read, and that what was merged since, and with it the
latest state, is what comes out when it is worked out again from what each commit wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ontolake.errors import Corruption, OntolakeError
from ontolake.history import Damage
from ontolake.ontology.repository.jobs import Looked, Verified, together
from ontolake.ontology.repository.protocol import SchemaVersion
from ontolake.ontology.verification import check_rows, check_schema
from ontolake.parallel import Split, View, open_parallel
from ontolake.spark.jobs.places import file_jobs, kind, typed, workers_of
from ontolake.spark.jobs.workers import Workers
from ontolake.stores import find, find_shared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ontolake.ontology.repository.ranges import KeyRange


def verify(url: str, *, spark: SparkSession | Workers | None = None, parts: int | None = None) -> Verified:
    """Read everything, and return all damage that is found. Raises `NotFound` if nothing is there."""
    store = find_shared(url)
    where, of = store.site.url, kind(store)
    workers = workers_of(spark, parts)
    if of == "objects":
        with typed(where) as repository:
            return file_jobs(repository).verify(workers)
    if of == "graph":
        from ontolake.spark.jobs.graphs import verify_graph

        return verify_graph(where, workers)
    if of == "sqlite":
        return _typed_in_sqlite(where, workers)
    return together(workers, _own_parts(where, workers))


# typed stores in SQLite


@dataclass(frozen=True)
class States:
    """A range of keys, as all its states are stored and as it is now."""

    history: KeyRange
    latest: KeyRange
    version: SchemaVersion
    commits: frozenset[int]


class OldVersion(NamedTuple):
    """The rows of a version of a type that is not current any more."""

    url: str
    version: SchemaVersion
    commits: frozenset[int]


def _typed_in_sqlite(url: str, workers: Workers) -> Verified:
    from ontolake.ontology.parallel.tables import TypedParallel

    items: list[tuple[Callable[[Any], Looked], Any]] = [(look_at_layout, url)]
    with typed(url) as repository:
        names = sorted({*repository.schemas(), *repository.dropped()})
        damage = [one for name in names for version in repository.schema_versions(*name)
                  for one in check_schema(version)]
    if damage:  # rows cannot be read by what is no schema
        return Verified((*look_at_layout(url).damage, *damage), 1, 0)
    try:
        with TypedParallel(url) as store:
            repository = store.repository
            head = repository.head()
            commits = frozenset(commit.id for commit in repository.commits())
            for (kind, name), current in sorted(repository.schemas().items()):
                latest = cast("Sequence[KeyRange]", store.splits(f"{kind}/{name}", View(head), parts=workers.parts))
                everything = cast("KeyRange", store.splits(f"{kind}/{name}", View(head, "history"), parts=1)[0])
                items += [(look_at_states, States(_within(everything, one), one, current, commits)) for one in latest]
            for kind, name in names:
                now = repository.schemas().get((kind, name))
                items += [(look_at_version, OldVersion(url, version, commits))
                          for version in repository.schema_versions(kind, name)
                          if now is None or version.schema_version_id != now.schema_version_id]  # fmt: skip
    except (ValueError, OntolakeError) as error:
        found = look_at_layout(url)
        more = (Damage("commits and schemas", f"they cannot be read: {error}"),)
        return Verified((*found.damage, *more), 1, 0)
    return together(workers, items)


def _within(everything: KeyRange, one: KeyRange) -> KeyRange:
    from dataclasses import replace

    return replace(everything, low=one.low, high=one.high)


def look_at_layout(url: str) -> Looked:
    """SQLite's own structures, commits and schemas, and how they refer to each other."""
    with typed(url) as repository:
        return Looked(tuple(repository.check()), 0)


def look_at_version(part: OldVersion) -> Looked:
    """Rows that were written under a version that is not current any more."""
    with typed(part.url) as repository:
        rows = list(repository.stored_history(part.version))
    return Looked(tuple(check_rows(part.version, rows, part.commits)), len(rows))


def look_at_states(part: States) -> Looked:
    """All states of a range of keys, and whether the last of each is the one that reads give."""
    from ontolake.model.stored import StoredType
    from ontolake.ontology.arrow.physical import key_texts, rows_of
    from ontolake.spark.jobs.migration import stored_table

    stored = StoredType(part.version.schema)
    with typed(part.history.url) as repository:
        history, latest = stored_table(repository, part.history), stored_table(repository, part.latest)
    rows = list(rows_of(stored.all_columns, history))
    damage = list(check_rows(part.version, rows, part.commits))
    last: dict[Any, Any] = {}
    for key, row in zip(key_texts(stored, history).to_pylist(), rows, strict=True):
        if key not in last or row[-1] >= last[key][-1]:
            last[key] = row
    now = dict(zip(key_texts(stored, latest).to_pylist(), rows_of(stored.all_columns, latest), strict=True))
    damage += differing(f"{stored.kind} {stored.name}", last, now)
    return Looked(tuple(damage), len(rows))


def differing(where: str, wanted: dict[Any, Any], found: dict[Any, Any]) -> Iterator[Damage]:
    """Damage if the latest state is not what history says, with one key for which that is so."""
    wrong = [key for key in {**wanted, **found} if wanted.get(key) != found.get(key)]
    if wrong:
        yield Damage(where, f"the latest state of {len(wrong)} keys is not what history says, such as {wrong[0]!r}")


# documents and SQL tables


def _own_parts(url: str, workers: Workers) -> list[tuple[Callable[[Any], Looked], Any]]:
    """The check of the database as a whole, and every row once more by ranges, as others read it."""
    items: list[tuple[Callable[[Any], Looked], Any]] = [(look_at_database, url)]
    with open_parallel(url) as store:
        view = store.view()
        for table in store.tables():
            items += [(look_at_split, (table, split)) for split in store.splits(table, view, parts=workers.parts)]
    return items


def look_at_database(url: str) -> Looked:
    """What the database itself knows to check."""
    try:
        with find(url).opened() as store:
            return Looked(tuple(store.verify()), 0)
    except Corruption as error:
        return Looked((Damage("database", error.message),), 0)


def look_at_split(part: tuple[str, Split]) -> Looked:
    """Rows of a range, read as any reader would."""
    table, split = part
    try:
        return Looked((), sum(batch.num_rows for batch in split.read()))
    except Corruption as error:
        return Looked((Damage(table, error.message),), 0)
