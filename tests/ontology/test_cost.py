"""What things cost: a key is looked up by an index, and a commit costs the same however much was stored before it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa
import pytest
from marking import slow_after

from ontolake.model import Entity, Field
from ontolake.ontology import Session, count, left, right
from ontolake.ontology.query.plan import Plan

from .shop import ENTITIES, RELATIONS, Customer, Order, Placed, Rated


@contextmanager
def filled(url: str, engine: str) -> Iterator[Session]:
    with Session(url, entity_types=ENTITIES, relation_types=RELATIONS, engine_version=engine) as found:
        found.ensure(Customer(id=f"c{n}", name=f"n{n}") for n in range(300))
        found.ensure(Order(id=n, total=Decimal(n), at=datetime(2024, 1, 1)) for n in range(300))
        found.ensure(Placed(left_key=f"c{n}", right_key=n) for n in range(300))
        found.ensure(Rated(left_key=f"c{n}", right_key=n, year="2024") for n in range(300))
        found.commit()
        yield found
        found.discard()


@pytest.fixture
def session(native: str, engine: str) -> Iterator[Session]:
    with filled(native, engine) as found:
        yield found


@pytest.fixture(scope="module", params=slow_after(1, ["v2", "v1"]))
def looked_at(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """One for all tests that only look."""
    with filled(str(tmp_path_factory.mktemp("cost") / "store.db"), request.param) as found:
        yield found


LOOKUPS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "text key": (lambda q: q.entities(Customer).where(Customer.id == "c7"), 1),
    "integer key": (lambda q: q.entities(Order).where(Order.id == 7), 1),
    "some keys": (lambda q: q.entities(Order).where(Order.id.in_([7, 8])), 2),
    "key and field": (lambda q: q.entities(Order).where(Order.id == 7, Order.total > 1), 1),
    "key in the past": (lambda q: q.entities(Order).where(Order.id == 7).as_of(1), 1),
    "history of a key": (lambda q: q.entities(Customer).where(Customer.id == "c7").with_history(), 1),
    "left end": (lambda q: q.relations(Placed).where(Placed.left_key == "c7"), 1),
    "right end": (lambda q: q.relations(Placed).where(Placed.right_key == 7), 1),
    "both ends": (lambda q: q.relations(Rated).where(Rated.left_key == "c7", Rated.right_key == 7), 1),
    "field of an end": (lambda q: q.relations(Placed).where(Placed.left_key == "c7", right(Placed).total > 1), 1),
    "key of an end": (lambda q: q.relations(Placed).where(Placed.left_key == "c7", left(Placed).id == "c7"), 1),
    "forward": (lambda q: q.entities(Customer).where(Customer.id == "c7").via(Placed), 1),
    "backward": (lambda q: q.entities(Order).where(Order.id == 7).via(Placed).via(Rated), 1),
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_a_lookup_by_key_uses_an_index(looked_at: Session, name: str) -> None:
    ask, number = LOOKUPS[name]
    query = ask(looked_at.query())
    assert len(query.collect()) == number
    assert not scans(looked_at, query._plan, query._values), "no table is read from end to end"
    assert query.first() is not None


def scans(session: Session, plan: Plan, values: Any) -> list[str]:
    repository: Any = session.repository
    statement = repository._statements[plan]
    details = repository.db.execute("EXPLAIN QUERY PLAN " + statement.sql, statement.parameters(values)).fetchall()
    return [row[3] for row in details if row[3].startswith("SCAN")]


def test_an_index_that_was_asked_for_is_used(native: str) -> None:
    class Tagged(Entity):
        id: Field[str] = Field(primary_key=True)
        tag: Field[str] = Field(index=True)
        number: Field[int] = Field(index=True)

    with Session(native, entity_types=[Tagged]) as session:
        session.ensure(Tagged(id=f"t{n}", tag=f"tag{n}", number=n) for n in range(300))
        session.commit()
        between = (Tagged.number > 290) & (Tagged.number <= 299)
        for condition in (Tagged.tag == "tag7", Tagged.tag.startswith("tag29"), Tagged.number == 7, between):
            query = session.query().entities(Tagged).where(condition)
            assert 0 < len(query.collect()) < 12
            assert not scans(session, query._plan, query._values), condition


def pages_written(session: Session, work: Callable[[], object]) -> tuple[int, int]:
    """How many statements a piece of work takes, and how many pages it writes."""
    repository: Any = session.repository
    db: apsw.Connection = repository.db
    statements: list[str] = []
    before = db.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0]
    db.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: statements.append(event["sql"]))
    try:
        work()
    finally:
        db.trace_v2(0)
    return len(statements), db.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0] - before


def commit_one(session: Session, number: int) -> tuple[int, int]:
    def work() -> None:
        session.ensure(Customer(id="c1", name=f"changed {number}"))
        assert session.commit() is not None

    return pages_written(session, work)


def test_a_commit_costs_the_same_after_many_commits(session: Session) -> None:
    for number in range(10):
        commit_one(session, number)
    early = [commit_one(session, 100 + number) for number in range(5)]
    for number in range(1000):
        session.ensure(Customer(id=f"c{number % 50}", name=f"later {number}"))
        session.commit()
    late = [commit_one(session, 10_000 + number) for number in range(5)]
    assert {statements for statements, _ in early} == {statements for statements, _ in late}
    assert early[0][0] <= 9
    assert min(pages for _, pages in late) <= min(pages for _, pages in early) + 2, "trees grow by a level at most"


def test_a_commit_costs_the_same_with_many_types(tmp_path: Path, engine: str) -> None:
    def costs(number: int) -> tuple[int, int]:
        types = [Customer, *(_type(n) for n in range(number))]
        url = str(tmp_path / f"{number}.db")
        with Session(url, entity_types=types, engine_version=engine) as session:
            session.ensure(cls(id="x") for cls in types[1:])
            session.ensure(Customer(id="c1", name="first"))
            session.commit()
            commit_one(session, 1)
            return commit_one(session, 2)

    few, many = costs(1), costs(60)
    assert few[0] == many[0]
    assert many[1] <= few[1] + 1


def _type(number: int) -> Any:
    return type(Entity)(f"Type{number}", (Entity,), {
        "__module__": __name__, "__qualname__": f"Type{number}", "__annotations__": {"id": Field[str]},
        "id": Field(primary_key=True)})  # fmt: skip


def test_a_bulk_commit_takes_as_many_statements_for_many_rows_as_for_few(session: Session) -> None:
    def without_staging(number: int, name: str) -> int:
        session.ensure(Customer(id=f"c{n}", name=name) for n in range(number))
        return pages_written(session, session.commit)[0] - number  # one short statement stages a row

    without_staging(20, "the first time more is to be prepared")
    assert without_staging(20, "few") == without_staging(250, "many") <= 12


def test_a_traversal_is_one_statement(session: Session) -> None:
    query = session.query().entities(Customer).via(Placed).via(Rated)
    query.collect()
    found: list[Any] = []
    statements, _ = pages_written(session, lambda: found.extend(query.collect()))
    assert len(found) == 300
    assert statements == 1


def steps(session: Session, work: Callable[[Session], object]) -> int:
    """The instructions that SQLite runs for this."""
    found: list[int] = []
    db = session.repository.db  # type: ignore[attr-defined]
    work(session)  # so that statements are there
    db.trace_v2(apsw.SQLITE_TRACE_PROFILE,
                lambda event: found.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]))
    try:
        work(session)
    finally:
        db.trace_v2(0)
    return sum(found)


READS: dict[str, Callable[[Session], object]] = {
    "lookup": lambda s: s.query().entities(Order).where(Order.id == 7).first(),
    "scan": lambda s: s.query().entities(Order).collect(),
    "filter": lambda s: s.query().entities(Order).where(Order.total < 30).count(),
    "groups": lambda s: s.query().entities(Customer).group_by(Customer.name).agg(n=count()),
    "as_of": lambda s: s.query().entities(Customer).as_of(1).count(),
    "traversal": lambda s: s.query().entities(Customer).via(Placed).collect(),
}


def test_branches_and_deletions_cost_nothing_where_there_are_none(tmp_path: Path) -> None:
    with filled(str(tmp_path / "v2.db"), "v2") as older, filled(str(tmp_path / "v3.db"), "v3") as newer:
        found = {name: steps(newer, work) / steps(older, work) for name, work in READS.items()}
    assert all(ratio < 1.05 for ratio in found.values()), found


def test_a_branch_three_deep_costs_little_more_than_the_first(tmp_path: Path) -> None:
    with filled(url := str(tmp_path / "v3.db"), "v3") as first:
        alone = {name: steps(first, work) for name, work in READS.items()}
        for name, parent in (("one", "main"), ("two", "one"), ("three", "two")):
            first.branches.create(name, parent=parent)
            with Session(url, branch=name, entity_types=ENTITIES, relation_types=RELATIONS) as session:
                session.ensure(Customer(id="c3", name=name))
        with Session(url, branch="three", entity_types=ENTITIES, relation_types=RELATIONS) as deep:
            found = {name: steps(deep, work) / alone[name] for name, work in READS.items()}
    assert found["as_of"] < 1.05
    # The first branch takes eleven instructions a row, since it looks for successors with one cursor; it was sixteen.
    assert found.pop("scan") < 2.7
    assert all(ratio < 1.7 for ratio in found.values()), found


class Spread(Entity):
    id: Field[int] = Field(primary_key=True)
    f: Field[int]
    text: Field[str] = Field(default="x" * 60)


def _read_calls() -> int:
    """How often this thread has read from files, ever."""
    lines = Path("/proc/thread-self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["syscr"])


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the calls of a thread are counted by Linux")
def test_a_merge_of_rows_far_apart_reads_no_page_twice(tmp_path: Path) -> None:
    """A table larger than the cache that SQLite has by itself, and more changed pages than that would hold."""
    rows, changed = 40_000, range(0, 40_000, 50)
    url = str(tmp_path / "a.db")
    with Session(url, entity_types=[Spread], engine_version="v3") as main:
        main.ensure_arrow(Spread, pa.table({"id": range(rows), "f": [0] * rows, "text": ["x" * 60] * rows}))
        main.commit()
        main.branches.create("try")
        with Session(url, entity_types=[Spread], branch="try") as work:
            work.ensure_arrow(Spread, pa.table({"id": changed, "f": [1] * len(changed),
                                                "text": ["x" * 60] * len(changed)}))  # fmt: skip
            work.commit()
        main.ensure(Spread(id=1, f=5))
        main.commit()
        pages = Path(url).stat().st_size // 4096
        before = _read_calls()
        main.merge("try")
        assert _read_calls() - before < min(pages, len(changed)) / 2
        assert main.query().entities(Spread).where(Spread.f == 1).count() == len(changed)
