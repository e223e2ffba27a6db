"""Typed data against bare sqlite3 with typed columns, doing the same work in the same run.

The bare side keeps history too: a row per key and commit, an index on both, the latest state found by SQL, in the
quicker of two ways. Both sides write with the same durability.
"""

from __future__ import annotations

import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from report import Report, Taken, in_turns, repeated, seconds

from ontolake.model import Entity, Field, Relation
from ontolake.ontology import Session, count, sum_


class Item(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    number: Field[int]
    price: Field[float]
    tier: Field[str]
    active: Field[bool]


class Box(Entity):
    id: Field[str] = Field(primary_key=True)


class Holds(Relation[Box, Item]):
    amount: Field[int]


COLUMNS = "entity_key, name, number, price, tier, active, commit_id"
TABLE = """CREATE TABLE item (entity_key TEXT NOT NULL, commit_id INTEGER NOT NULL, name TEXT NOT NULL,
    number INTEGER NOT NULL, price REAL NOT NULL, tier TEXT NOT NULL, active INTEGER NOT NULL,
    PRIMARY KEY (entity_key, commit_id))"""
LATEST = """NOT EXISTS (SELECT 1 FROM item AS newer WHERE newer.entity_key = item.entity_key
    AND newer.commit_id > item.commit_id)"""
ALSO_LATEST = """item.rowid IN (SELECT place FROM (SELECT rowid AS place, max(commit_id) FROM item WHERE {bound}
    GROUP BY entity_key))"""
INSERT = "INSERT INTO item VALUES (?, ?, ?, ?, ?, ?, ?)"


def rows(size: int, start: int = 0) -> list[tuple[Any, ...]]:
    return [(f"k{n * 7919 % 1_000_003 + start:010d}", f"name {n}", n, n * 0.5, "gold" if n % 10 else "silver",
             n % 2 == 0) for n in range(size)]  # fmt: skip


def bare(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", TABLE,
                      "CREATE INDEX item_commit ON item (commit_id)",
                      "CREATE TABLE commits (id INTEGER PRIMARY KEY AUTOINCREMENT, created_at TEXT)"):
        db.execute(statement)
    return db


def opened(path: Path, engine: str | None = None, branch: str | None = None) -> Session:
    return Session(str(path), entity_types=[Item, Box], relation_types=[Holds], engine_version=engine, branch=branch)


class Places:
    """Fresh files, one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0

    def next(self) -> Path:
        self._count += 1
        return self._folder / f"{self._count}.db"


def insert(db: sqlite3.Connection, given: list[tuple[Any, ...]], commit: int) -> None:
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO commits (created_at) VALUES ('now')")
    db.executemany(INSERT, ((row[0], commit, *row[1:]) for row in given))
    db.execute("COMMIT")


def loading(report: Report, places: Places, size: int) -> None:
    given = rows(size)
    objects = [Item(id=r[0], name=r[1], number=r[2], price=r[3], tier=r[4], active=r[5]) for r in given]
    names = list(Item.model_fields)
    table = pa.table({name: [row[n] for row in given] for n, name in enumerate(names)})

    def ours(declare: Callable[[Session], None]) -> float:
        session = opened(places.next())
        taken = seconds(lambda: (declare(session), session.commit()))
        session.close()
        return taken

    def theirs() -> float:
        db = bare(places.next())
        taken = seconds(lambda: insert(db, given, 1))
        db.close()
        return taken

    times = [(ours(lambda s: s.ensure(objects)), ours(lambda s: s.ensure_arrow(Item, table)), theirs())
             for _ in range(3)]  # fmt: skip
    mine, arrow, base = (sorted(part)[1] for part in zip(*times, strict=True))
    report.at_most(f"ensure {size:,} new entities and commit", mine / base, 3, f"{mine:.2f} s")
    report.at_most(f"ensure_arrow {size:,} new entities and commit", arrow / base, 1.5, f"{arrow:.2f} s")


def committing(report: Report, places: Places, size: int) -> None:
    session, db = opened(places.next()), bare(places.next())
    state = {"n": 0}

    def ours() -> None:
        for _ in range(20):
            state["n"] += 1
            session.ensure(Item(id=f"new{state['n']}", name="x", number=1, price=1.0, tier="gold", active=True))
            session.commit()

    def theirs() -> None:
        for _ in range(20):
            state["n"] += 1
            insert(db, [(f"new{state['n']}", "x", 1, 1.0, "gold", True)], state["n"])

    mine, base = in_turns(ours, theirs, rounds=size // 20)  # often, since a disk has its moods
    report.at_least("one-row commits with full durability", base / mine, 0.7, f"{20 / mine:.0f} a second")
    session.close()
    db.close()


def growing(report: Report, places: Places, size: int) -> None:
    session = opened(places.next())

    def commits(number: int) -> float:
        begun = time.perf_counter()
        for n in range(number):
            session.ensure(Item(id=f"k{n % 100}", name=str(time.perf_counter_ns()), number=n, price=1.0, tier="gold",
                                active=True))
            session.commit()
        return (time.perf_counter() - begun) / number

    commits(10)
    early = min(commits(100) for _ in range(3))
    commits(size)
    late = min(commits(100) for _ in range(3))
    report.at_most(f"cost of a commit after {size:,} commits against after 10", late / early, 1.3)
    session.close()


def reading(report: Report, places: Places, size: int, big: int) -> None:
    session, db = opened(places.next()), bare(places.next())
    given = rows(big)
    table = pa.table({name: [row[n] for row in given] for n, name in enumerate(Item.model_fields)})
    session.ensure_arrow(Item, table)
    session.commit()
    insert(db, given, 1)
    items = session.query().entities(Item)

    def arrow(found: list[Any]) -> None:
        parts = list(zip(*found, strict=True))
        pa.table([pa.array(part) for part in parts], names=COLUMNS.split(", "))

    def compare(name: str, target: float, ours: Callable[[], object], sql: str, values: tuple[Any, ...] = (),
                made: Callable[[list[Any]], object] = len, ways: tuple[str, ...] = ()) -> None:
        theirs = [lambda way=way: made(db.execute(sql.format(latest=way), values).fetchall())
                  for way in ways or (LATEST, ALSO_LATEST.format(bound=1))]  # fmt: skip
        mine, *others = in_turns(ours, *theirs, rounds=3)
        base = min(others)
        report.at_most(name, mine / base, target, f"{mine * 1000:.1f} ms against {base * 1000:.1f}")

    latest = f"SELECT {COLUMNS} FROM item WHERE {{latest}}"
    compare(f"to_arrow() of {big:,}", 1.2, items.to_arrow, latest, made=arrow)
    compare(f"collect() of {size:,}", 3, items.limit(size).collect, f"{latest} LIMIT {size}")
    key = given[big // 2][0]
    lookup = f"SELECT {COLUMNS} FROM item WHERE entity_key = ? ORDER BY commit_id DESC LIMIT 1"

    def many(action: Callable[[], object]) -> Callable[[], None]:
        return lambda: [action() for _ in range(1000)] and None

    mine, base = in_turns(many(lambda: session.query().entities(Item).where(Item.id == key).first()),
                          many(lambda: db.execute(lookup, (key,)).fetchone()))
    report.at_most("first() by primary key", mine / base, 5, f"{mine * 1000:.0f} µs against {base * 1000:.0f}")
    report.at_most("first() by primary key, in µs", mine * 1000, 100)
    changed = [(row[0], "changed", *row[2:]) for row in given[: big // 10]]
    session.ensure_arrow(Item, pa.table({name: [row[n] for row in changed]
                                         for n, name in enumerate(Item.model_fields)}))
    session.commit()
    insert(db, changed, 2)
    compare("filtered count", 2, items.where(Item.number > big // 2).count,
            "SELECT count(*) FROM item WHERE number > ? AND {latest}", (big // 2,))
    compare("group_by", 2, lambda: items.group_by(Item.tier).agg(n=count(), total=sum_(Item.price)),
            "SELECT tier, count(*), sum(price) FROM item WHERE {latest} GROUP BY 1")
    newer = "newer.commit_id > item.commit_id"
    past = (LATEST.replace(newer, f"{newer} AND newer.commit_id <= 1") + " AND commit_id <= 1",
            ALSO_LATEST.format(bound="commit_id <= 1"))
    compare("as_of, counted", 2, items.as_of(1).where(Item.active.is_true()).count,
            "SELECT count(*) FROM item WHERE active = 1 AND {latest}", ways=past)
    compare("as_of, collected", 2, items.as_of(1).where(Item.number < size).collect,
            f"SELECT {COLUMNS} FROM item WHERE number < ? AND {{latest}}", (size,), ways=past)
    compare("with_history, collected", 2, items.with_history().where(Item.number < size).collect,
            f"SELECT {COLUMNS} FROM item WHERE number < ?", (size,), ways=("",))
    db.execute("CREATE TABLE holds (left_key TEXT, right_key TEXT, commit_id INTEGER, amount INTEGER, "
               "PRIMARY KEY (left_key, right_key, commit_id))")
    db.execute("CREATE INDEX holds_reverse ON holds (right_key)")
    links = [(f"b{n % 1000}", given[n][0], n) for n in range(size)]
    session.ensure(Box(id=f"b{n}") for n in range(1000))
    session.ensure(Holds(left_key=a, right_key=b, amount=n) for a, b, n in links)
    session.commit()
    db.executemany("INSERT INTO holds VALUES (?, ?, 3, ?)", links)
    db.execute("CREATE TABLE box (entity_key TEXT PRIMARY KEY, commit_id INTEGER)")
    db.executemany("INSERT INTO box VALUES (?, 3)", ((f"b{n}",) for n in range(1000)))
    joined = """SELECT item.*, h.*, b.* FROM item JOIN holds AS h ON h.right_key = item.entity_key
        JOIN box AS b ON b.entity_key = h.left_key WHERE {latest}
        AND NOT EXISTS (SELECT 1 FROM holds AS n WHERE n.left_key = h.left_key AND n.right_key = h.right_key
        AND n.commit_id > h.commit_id)"""
    compare(f"reverse traversal of {size:,} relations", 2, items.via(Holds).collect, joined)
    session.close()
    db.close()


def small_commits(report: Report, places: Places, size: int, commits: int) -> None:
    """A first load, then many commits of a hundred rows, half of them new and half changed, then reads."""
    session, db = opened(places.next()), bare(places.next())
    given = rows(size)
    session.ensure_arrow(Item, pa.table({name: [row[n] for row in given]
                                         for n, name in enumerate(Item.model_fields)}))
    session.commit()
    insert(db, given, 1)

    def batch(number: int) -> list[tuple[Any, ...]]:
        changed = [(row[0], f"changed {number}", *row[2:]) for row in given[number * 50 % size :][:50]]
        return [*changed, *((f"new {number} {n}", "x", n, 1.0, "gold", True) for n in range(50))]

    def ours(number: int) -> None:
        session.ensure(Item(id=r[0], name=r[1], number=r[2], price=r[3], tier=r[4], active=r[5]) for r in batch(number))
        session.commit()

    mine, base = repeated(commits, ours, lambda n: insert(db, batch(n), n + 2))
    report.compare(f"{commits:,} commits of 100 rows in {size:,} / bare", mine, base, 3)
    report.steady("commits of 100 rows", mine)
    lookup = f"SELECT {COLUMNS} FROM item WHERE entity_key = ? ORDER BY commit_id DESC LIMIT 1"
    keys = [given[n * 50 % size][0] for n in range(1000)]
    mine, base = repeated(1000, lambda n: session.query().entities(Item).where(Item.id == keys[n]).first(),
                          lambda n: db.execute(lookup, (keys[n],)).fetchone())
    report.compare("first() by primary key, after them / bare", mine, base, 5)
    now, past = repeated(5, lambda n: session.query().entities(Item).where(Item.number < 100).count(),
                         lambda n: session.query().entities(Item).as_of(1).where(Item.number < 100).count())
    report.compare(f"a filtered count as of {commits:,} commits ago / now", past, now, 3)
    session.close()
    db.close()


def filled(path: Path, size: int, engine: str) -> Session:
    """A store whose rows were written at once, and a tenth of them again."""
    session = opened(path, engine)
    for given in (rows(size), [(*row[:2], row[2] + 1, *row[3:]) for row in rows(size)[:: 10]]):
        session.ensure_arrow(Item, pa.table({name: [row[n] for row in given]
                                             for n, name in enumerate(Item.model_fields)}))
        session.commit()
    return session


def engines(report: Report, places: Places, size: int) -> None:
    """v3 against v2 on the first branch, and on a branch three deep against the first, by processor time.

    Each pair has the same rows. The first pair has a file each, with one session: SQLite drops what it has cached of a
    file when another session writes to it, which would be held against v3. Both sides of the second pair share one.
    """
    older, newer = filled(places.next(), size, "v2"), filled(places.next(), size, "v3")
    first = filled(path := places.next(), size, "v3")
    for session in (older, newer):
        session.ensure(_new(n) for n in range(3))
        session.commit()
    newer.branches.create("aside")
    for depth in range(3):
        first.branches.create(f"b{depth}", parent=f"b{depth - 1}" if depth else "main")
        with opened(path, branch=f"b{depth}") as work:
            work.ensure(_new(depth))
    deep = opened(path, branch="b2")
    key, number = rows(size)[size // 2][0], iter(range(1, 1_000_000))

    def commit(session: Session) -> None:
        at = next(number)
        session.ensure(Item(id=row[0], name=row[1], number=-at, price=row[3], tier=row[4], active=row[5])
                       for row in rows(1000))
        session.commit()

    def lookups(session: Session) -> None:
        for _ in range(500):
            session.query().entities(Item).where(Item.id == key).first()

    def single(session: Session) -> None:
        for _ in range(50):
            session.ensure(Item(id=f"one{next(number)}", name="n", number=0, price=0.0, tier="gold", active=True))
            session.commit()

    works: dict[str, Callable[[Session], object]] = {
        "50 commits of one row": single, "commit of 1,000 rows": commit, "500 lookups": lookups,
        "scan to Arrow": lambda session: session.query().entities(Item).to_arrow(),
        "filter": lambda session: session.query().entities(Item).where(Item.tier == "silver").count(),
        "groups": lambda session: session.query().entities(Item).group_by(Item.tier).agg(n=count(), t=sum_(Item.price)),
        "as_of": lambda session: session.query().entities(Item).as_of(1).count(),
    }  # fmt: skip
    for name, job in works.items():
        two, one = repeated(21, lambda _, job=job: job(newer), lambda _, job=job: job(older))
        report.compare_work(f"v3: {name} against v2", two, one, 1.05)
        three, two = repeated(11, lambda _, job=job: job(deep), lambda _, job=job: job(first))
        report.compare_work(f"v3: {name} three branches deep", three, two, 1.3)
    for session in (older, newer, first, deep):
        session.close()


def _new(number: int) -> Item:
    return Item(id=f"new{number}", name="n", number=0, price=0.0, tier="gold", active=True)


def scanning(report: Report, places: Places, size: int) -> None:
    """Full scans to Arrow against `fetchall` of plain sqlite3 from a table that has no history."""
    session, db = opened(path := places.next(), "v3"), bare(places.next())
    given = rows(size)
    names = list(Item.model_fields)
    session.ensure_arrow(Item, pa.table({name: [row[n] for row in given] for n, name in enumerate(names)}))
    session.commit()
    insert(db, given, 1)
    items = session.query().entities(Item)

    def plain() -> None:
        db.execute(f"SELECT {COLUMNS} FROM item").fetchall()

    def fresh() -> None:
        with opened(path) as other:
            other.query().entities(Item).to_arrow()

    base, first = in_turns(plain, rounds=3)[0], seconds(items.to_arrow)
    report.at_most(f"the first to_arrow() of {size:,} rows / plain fetchall", first / base, 1.5, f"{first:.2f} s")

    def compare(name: str, ours: Callable[[], object]) -> None:
        mine, base = in_turns(ours, plain, rounds=3)
        report.at_most(f"{name} of {size:,} rows / plain fetchall", mine / base, 0.35,
                       f"{mine * 1000:.0f} ms against {base * 1000:.0f}")

    compare("to_arrow()", items.to_arrow)
    compare("to_arrow() in a new session", fresh)
    compare("as_of, to_arrow()", items.as_of(1).to_arrow)
    session.branches.create("try")
    with opened(path, branch="try") as work:
        work.ensure(Item(**dict(zip(names, (*row[:2], -1, *row[3:]), strict=True))) for row in given[: size // 100])
        work.commit()
        compare("to_arrow() on a branch", work.query().entities(Item).to_arrow)
    changed = [(*row[:2], row[2] + 1, *row[3:]) for row in given[::10]]
    session.ensure_arrow(Item, pa.table({name: [row[n] for row in changed] for n, name in enumerate(names)}))
    session.commit()
    compare("to_arrow() after a tenth has changed", items.to_arrow)
    session.close()
    db.close()


def branching(report: Report, places: Places, size: int) -> None:
    """Branches, merges and deletions, whose cost is that of what changed."""
    few = min(10_000, size // 5)
    paths = {stored: places.next() for stored in (few, size)}
    sessions = {stored: filled(path, stored, "v3") for stored, path in paths.items()}
    for stored, session in sessions.items():
        creating = [seconds(partial(session.branches.create, f"t{n}")) for n in range(5)]
        report.at_most(f"branches.create at {stored:,} rows, ms", statistics.median(creating) * 1000, 5)
    near, far = (merging(sessions, paths, kind) for kind in ("neighbouring", "scattered"))
    for kind, stored, taken in (("neighbouring", size, near), ("scattered", size, far), ("scattered", few, far)):
        report.compare_work(f"merge of 1,000 {kind} rows in {stored:,} against committing them",
                            taken[stored].merges, taken[stored].commits, 3)
    report.compare_work(f"merge of neighbouring rows in {size:,} against {few:,}",
                        near[size].merges, near[few].merges, 1.3)
    # Rows far apart have a leaf of the index each, which has to be read and written. A direct commit does that, too.
    more, fewer = (far[stored].commits.work_median for stored in (size, few))
    report.note(f"committing 1,000 scattered rows directly takes {more * 1000:.1f} ms in {size:,} rows and "
                f"{fewer * 1000:.1f} ms in {few:,}: {more / fewer:.2f} times as much")
    bound = 1.3 * (1 + (more - fewer) / far[few].merges.work_median)
    report.compare_work(f"merge of scattered rows in {size:,} against {few:,} (1.3 and what a direct commit grows by)",
                        far[size].merges, far[few].merges, float(f"{bound:.2f}"))
    for session in sessions.values():
        session.close()
    session = filled(places.next(), min(size, 100_000), "v3")
    some = rows(size)[: min(10_000, size // 4)]
    updating, deleting = Taken(), Taken()
    for round in range(5):
        session.ensure(Item(**dict(zip(Item.model_fields, (*row[:2], -1 - round, *row[3:]), strict=True)))
                       for row in some)
        updating.add(partial(settled, session, session.commit))
        session.delete(Item, [row[0] for row in some])
        deleting.add(partial(settled, session, session.commit))
        session.ensure(Item(**dict(zip(Item.model_fields, row, strict=True))) for row in some)
        session.commit()
    report.compare_work(f"deleting {len(some):,} rows against updating them", deleting, updating, 1.3)
    session.close()


def settled(session: Session, action: Callable[[], object]) -> None:
    """Do something, and wait for the checkpoint that it starts in the background, so that all of its work counts."""
    action()
    session.repository.db.wait_for_checkpoint()  # type: ignore[attr-defined]


class Merged(NamedTuple):
    """What commits of 1,000 rows on branches took, and what merging these branches did."""

    commits: Taken
    merges: Taken


def merging(sessions: dict[int, Session], paths: dict[int, Path], kind: str) -> dict[int, Merged]:
    """Changes of 1,000 rows in stores of several sizes, merged, in turns: rows whose keys are `neighbouring` or not."""
    found = {stored: Merged(Taken(), Taken()) for stored in paths}
    given = {stored: sorted(rows(stored))[stored // 2 :][:1000] if kind == "neighbouring" else rows(stored)[:1000]
             for stored in paths}
    for round in range(9):
        for stored, session in sessions.items():
            session.branches.create(f"{kind}{round}")
            with opened(paths[stored], branch=f"{kind}{round}") as work:
                work.ensure(Item(**dict(zip(Item.model_fields, (*row[:2], -2 - round, *row[3:]), strict=True)))
                            for row in given[stored])
                found[stored].commits.add(partial(settled, work, work.commit))
            found[stored].merges.add(partial(settled, session, partial(session.merge, f"{kind}{round}")))
    return found


def erasing(report: Report, places: Places, size: int) -> None:
    """An erasure writes one file, the store, anew, so that no byte of the row is left: what a VACUUM of it costs."""
    filled(path := places.next(), size, "v3").close()  # two builds of SQLite in one process must not share a file
    shutil.copy(path, twin := places.next())
    session = opened(path)
    db = sqlite3.connect(twin, isolation_level=None)
    keys = iter(row[0] for row in rows(10))
    mine, base = in_turns(lambda: session.erase(Item, next(keys), "asked for", dry_run=False),
                          lambda: db.execute("VACUUM"), rounds=3)
    report.at_most(f"erasing one of {size:,} rows / VACUUM by plain sqlite3", mine / base, 3,
                   f"{mine * 1000:.0f} ms against {base * 1000:.0f}")
    session.close()
    db.close()


def main() -> None:
    """All parts use typed stores as they are: there is nothing to set, and no upkeep to call."""
    report = Report("typed data")
    small = report.small
    with tempfile.TemporaryDirectory() as folder:
        places = Places(Path(folder))
        if report.as_users_do:
            loading(report, places, 20_000 if small else 100_000)
            committing(report, places, 100 if small else 300)
            growing(report, places, 1000 if small else 3_000)
            small_commits(report, places, 20_000 if small else 100_000, 100 if small else 300)
            reading(report, places, 20_000 if small else 30_000, 50_000 if small else 150_000)
            engines(report, places, 20_000 if small else 100_000)
            branching(report, places, 50_000 if small else 1_000_000)
            erasing(report, places, 60_000 if small else 200_000)
            scanning(report, places, 60_000 if small else 1_000_000)
        if report.tuned:  # more of the same
            growing(report, places, 1000 if small else 10_000)
            reading(report, places, 20_000 if small else 100_000, 100_000 if small else 1_000_000)
    report.finish()


if __name__ == "__main__":
    main()
