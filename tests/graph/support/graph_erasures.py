"""A graph in which a row has left traces in many places, and ways to find all of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ontolake.errors import NotFound
from ontolake.graph import Blob, Graph, Vector
from ontolake.graph.tables.row_files import TableFiles
from ontolake.model import Entity, Field, Relation

KEY = "needle-7f3a91c2d4e85b60"
MARKER = "zq8xk1vw5jt3yhb9"
"""A word that is in every state of the row and in no other: an index on text holds it, too."""
REASON = "asked for by its owner"


class Person(Entity):
    id: Field[str] = Field(primary_key=True)
    text: Field[str | None] = Field(default=None)
    age: Field[int | None] = Field(default=None, index=True)
    near: Field[Vector(4) | None] = Field(default=None)  # type: ignore[valid-type]
    photo: Field[Blob | None] = Field(default=None)


class Friend(Relation[Person, Person]):
    since: Field[int | None] = Field(default=None)


PEOPLE = [Person, Friend]


def person(id: str, text: str = "somebody", **fields: Any) -> dict[str, Any]:
    chance = random.Random(id)
    return {"id": id, "text": text, "age": chance.randrange(100), "near": [chance.random() for _ in range(4)], **fields}


def secret(number: int) -> dict[str, Any]:
    return person(KEY, f"{MARKER} {number}", age=1000 + number, photo=f"{MARKER} photo {number}".encode())


def live(graph: Graph) -> None:
    """Have a row inserted, changed, deleted and inserted again, on branches, behind tags, with indexes."""
    graph.load(Person, [person(f"p{number}") for number in range(40)])
    graph.load(Person, [secret(1)])
    for column, kind in (("text", "text"), ("near", "vector"), ("id", "btree")):
        graph.index(Person, column, kind=kind)
    graph.tags.create("early")
    graph.branches.create("work")
    graph.load(Person, [secret(2), person("w1")], branch="work")
    graph.branches.create("deep", parent="work")
    graph.delete(Person, [KEY, "p3"])
    graph.load(Person, [person("m1")])
    graph.branches.create("quiet")
    graph.optimize()
    graph.load(Person, [secret(3), person("p5", "changed")])
    graph.tags.create("late")
    graph.branches.create("still")
    graph.load(Person, [person("d1")], branch="deep")
    graph.delete(Person, [KEY], branch="deep")


def states(graph: Graph, without: Any = None) -> dict[str, dict[str, dict[Any, Any]]]:
    """What every commit of every branch shows, by its id; commits that cannot be read are left out."""
    found: dict[str, dict[str, dict[Any, Any]]] = {}
    for branch in graph.branches.list():
        for commit in graph.commits(branch=branch.name):
            try:
                snapshot = graph.snapshot(commit.id, branch=branch.name)
                found[commit.id] = {table: {key: row for key, row in snapshot.rows(table) if key != without}
                                    for table in snapshot.tables()}
            except NotFound:
                continue
    return found


def bytes_with(url: str, *words: str) -> list[str]:
    """The files with one of these words in them."""
    wanted = [word.encode() for word in words]
    files = (path for path in Path(url).rglob("*") if path.is_file())
    return sorted(str(path) for path in files if any(word in path.read_bytes() for word in wanted))


def decoded(url: str, table: str, kind: str = "node") -> Iterator[tuple[str, Any]]:
    """All values that Lance reads: from every version of a table on every line, from every data file with rows that are
    deleted, and from every file of an index."""
    import lance
    from lance.file import LanceFileReader

    with Graph.open(url, read_only=True) as graph:
        place, location = graph.parts.place, graph.types()[f"{kind}:{table}"].location
        files = TableFiles(place, location)
    base = lance.dataset(f"{place.root}/{location}")
    for line, version in files.versions:
        found = base.checkout_version((line, version)).to_table()
        yield from ((f"version {line}:{version}", row) for row in found.to_pylist())
    keys = [*(stored.key for stored in files.data.values()), *(key for keys in files.indexes.values() for key in keys)]
    for key in keys:
        if key.endswith(".lance"):
            for row in LanceFileReader(f"{place.root}/{key}").read_all().to_table().to_pylist():
                yield key, row


def mentions(value: Any, words: Iterable[str]) -> bool:
    """Whether one of these words is somewhere in a value."""
    return any(word in repr(value) for word in words)


def traces(url: str, table: str = "Person") -> list[str]:
    """Where the row has left something, in bytes or in what Lance makes of them."""
    words = (KEY, MARKER)
    return bytes_with(url, *words) + sorted({where for where, row in decoded(url, table) if mentions(row, words)})
