"""What a merge and an erasure read: as much as changed, or as can hold the key, however many rows there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from hashlib import shake_256
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from ontolake.objects import ObjectStore, open_store
from ontolake.objects.testing import CountingStore
from ontolake.ontology import Session
from ontolake.ontology.repository.objects.files import Files
from ontolake.ontology.repository.objects.layout import DataFile
from ontolake.ontology.sizes import Sizes

from .conftest import fresh_memory
from .works import Human, Knows

GROUP = 100
SIZES = Sizes(group_rows=GROUP, small_rows=50, kept_groups=4)


class Read(NamedTuple):
    """What was read: requests to the store, rows, and the files that these were in."""

    requests: dict[str, int]
    rows: int
    files: set[str]


def opened(store: ObjectStore, branch: str = "main") -> Session:
    return Session(store.url, entity_types=[Human], relation_types=[Knows], branch=branch,
                   config={"connect": {"store": store}, "sizes": SIZES})


def read_by(monkeypatch: pytest.MonkeyPatch, store: CountingStore, work: Callable[[Session], Any]) -> Read:
    """What some work reads, in a session that has read nothing before."""
    rows: Counter[str] = Counter()
    parsed = Files._parsed

    def counted(files: Files, file: DataFile, read: Callable[[], Any]) -> Any:
        found = parsed(files, file, read)
        rows[file.path] += len(found) if isinstance(found, pa.Table) else 0
        return found

    with opened(store) as session, monkeypatch.context() as patched:
        patched.setattr(Files, "_parsed", counted)
        store.reset()
        work(session)
        return Read(dict(store.operations), sum(rows.values()), {path for path, count in rows.items() if count})


def name(n: int) -> str:
    """A name that does not compress: files are longer than the end that is read ahead with their directory."""
    return shake_256(str(n).encode()).hexdigest(128)


def people(count: int) -> list[Human]:
    return [Human(id=f"p{n:06}", name=name(n)) for n in range(count)]


@pytest.mark.slow
def test_a_merge_reads_as_much_as_changed_however_many_rows_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def merged(count: int) -> Read:
        store = CountingStore(open_store(fresh_memory()))
        with opened(store) as session:
            session.ensure(people(count))
            session.commit()
            session.branches.create("side")
            session.ensure(Human(id=f"p{n:06}", name="ours") for n in range(100, 110))
            session.commit()
        with opened(store, "side") as session:
            session.ensure(Human(id=f"p{n:06}", name="theirs") for n in range(300, 310))
            session.ensure(Human(id=f"p{n:06}", name=name(n), age=7) for n in range(105, 107))
            session.delete(Human, "p000305")
            session.commit()

        def work(session: Session) -> None:
            result = session.merge("side", into="main", strategy="theirs")
            assert result.commit is not None
            assert (result.commit.id, result.base) == (4, 1)

        read = read_by(monkeypatch, store, work)
        with opened(store) as session:
            assert session.query().entities(Human).where(Human.name == "theirs").count() == 9
            assert session.query().entities(Human).count() == count - 1
        return read

    few, many = merged(1_000), merged(10_000)
    assert many.rows == few.rows <= 2 * GROUP + 10 + 12, "two row groups, and what each side wrote"
    assert many.requests == few.requests
    assert len(many.files) == len(few.files) == 3, "the rows that were there first, and those of each side"


@pytest.mark.slow
def test_an_erasure_reads_the_files_that_can_hold_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def erased(count: int, commits: int) -> Read:
        store = CountingStore(open_store(fresh_memory()))
        with opened(store) as session:
            session.ensure(people(count))
            session.commit()
            for number in range(commits):  # files with other keys
                session.ensure(Human(id=f"q{number}-{n}", name="another") for n in range(3))
                session.commit()
            session.ensure(Human(id="p000100", name="again"))
            session.commit()

        def work(session: Session) -> None:
            assert session.erase(Human, "p000100", "asked for", dry_run=False).items == 2

        return read_by(monkeypatch, store, work)

    few, more, many = erased(1_000, 2), erased(1_000, 8), erased(10_000, 8)
    assert len(few.files) == len(more.files) == len(many.files) == 2
    # A row group to find the key, then the file as a whole, which is written anew; and the other file.
    assert (few.rows, more.rows, many.rows) == (GROUP + 1_001, GROUP + 1_001, GROUP + 10_001)
    assert few.requests["get_range"] == many.requests["get_range"]
