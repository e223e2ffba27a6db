"""Documents against bare SQLite that writes the same rows, and reads and branches against the length of a history."""

from __future__ import annotations

import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
from report import Report, Taken, in_turns, repeated

from ontolake.documents import Patch, Set, Space, open_space
from ontolake.documents.schema import LAYOUT

TABLES = ("commit", "revision", "head", "branch", "snapshot")
BATCH = 100


def document(number: int) -> dict[str, Any]:
    return {"value": {"name": f"customer {number}", "count": 0, "tags": ["new", "web"], "address": {"city": "Ulm"}}}


def bump(id: str) -> Patch:
    return Patch(id, [{"op": "increment", "path": "/value/count", "by": 1}])


class Bare:
    """SQLite and nothing else: it writes rows that were worked out before, in the same transactions.

    The rows are those that a space wrote, taken from its file, so that both sides store the same bytes in the same
    order with the same pragmas.
    """

    INSERTS: tuple[tuple[str, str], ...] = (
        ("commit", 'INSERT INTO "commit" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)'),
        ("revision", "INSERT INTO revision VALUES (?, ?, ?, ?, ?, ?, ?)"),
        ("head", "INSERT INTO head VALUES (?, ?, ?, ?)"
                 " ON CONFLICT (branch, id) DO UPDATE SET seq = excluded.seq, op_index = excluded.op_index"),
        ("snapshot", "INSERT INTO snapshot VALUES (?, ?, ?, ?) ON CONFLICT (branch, id, seq) DO NOTHING"),
    )  # fmt: skip

    def __init__(self, url: str, source: Space) -> None:
        self.connection = LAYOUT.open(url, readonly=False, takeover=False, synchronous="NORMAL")
        read = source._database.connection
        self.commits: list[dict[str, list[Any]]] = []
        for (seq,) in read.execute('SELECT seq FROM "commit" ORDER BY seq').fetchall():
            revisions = read.execute("SELECT * FROM revision WHERE commit_seq = ? ORDER BY op_index", (seq,)).fetchall()
            self.commits.append({
                "commit": read.execute('SELECT * FROM "commit" WHERE seq = ?', (seq,)).fetchall(),
                "revision": revisions,
                "head": list({row[1]: row[:4] for row in revisions}.values()),
                "snapshot": read.execute("SELECT * FROM snapshot WHERE seq = ?", (seq,)).fetchall(),
            })  # fmt: skip
        self.done = 0

    def write(self, count: int) -> None:
        """The next `count` transactions."""
        execute, executemany = self.connection.execute, self.connection.executemany
        for rows in self.commits[self.done : self.done + count]:
            execute("BEGIN IMMEDIATE")
            for table, insert in self.INSERTS:
                if rows[table]:
                    executemany(insert, rows[table])
            execute("UPDATE branch SET head_seq = ? WHERE name = ''", (rows["commit"][0][0],))
            execute("COMMIT")
        self.done += count


class Ours:
    """A space that is given the same transactions."""

    def __init__(self, folder: Path, transactions: list[list[Any]]) -> None:
        self.space = open_space(f"{folder}/", "ours")
        self.transactions = transactions
        self.done = 0

    def write(self, count: int) -> None:
        for operations in self.transactions[self.done : self.done + count]:
            self.space.transact("benchmark", self.done, operations)
            self.done += 1


def against_bare(folder: Path, transactions: list[list[Any]], warm: int, rounds: int) -> tuple[float, float]:
    """Seconds a transaction that bare SQLite and a space take, in turns."""
    with open_space(f"{folder}/", "rehearsal") as rehearsal:
        rehearsal.snapshots.pause = 3600  # every snapshot has to be there to be copied
        for number, operations in enumerate(transactions):
            rehearsal.transact("benchmark", number, operations)
        bare = Bare(f"{folder}/bare.sqlite", rehearsal)
    ours = Ours(folder, transactions)
    for side in (bare, ours):
        side.write(warm)
    each = (len(transactions) - warm) // rounds
    theirs, own = in_turns(lambda: bare.write(each), lambda: ours.write(each), rounds=rounds)
    ours.space.close()
    bare.connection.close()
    return theirs / each, own / each


def one_patch(report: Report, folder: Path) -> None:
    """A patch a transaction, on one of a thousand entities."""
    chance = random.Random(1)
    entities, patched = (200, 2_000) if report.small else (1_000, 12_000)
    transactions: list[list[Any]] = [[Set(f"customer/{n}", document(n)) for n in range(entities)]]
    transactions += [[bump(f"customer/{chance.randrange(entities)}")] for _ in range(patched)]
    theirs, own = against_bare(folder, transactions, warm=1, rounds=10)
    report.at_least("one-patch transactions / bare SQLite", theirs / own, 0.5,
                    f"{1 / own:,.0f}/s against {1 / theirs:,.0f}/s")


def batches(report: Report, folder: Path) -> None:
    """A hundred operations a transaction: patches of entities here and there, and new documents."""
    chance = random.Random(2)
    entities, count = (1_000, 60) if report.small else (5_000, 300)
    kinds: dict[str, Callable[[int], Any]] = {
        "patches": lambda number: bump(f"customer/{chance.randrange(entities)}"),
        "sets": lambda number: Set(f"customer/{entities + number}", document(number)),
    }
    for kind, make in kinds.items():
        place = folder / kind
        place.mkdir()
        transactions: list[list[Any]] = [[Set(f"customer/{n}", document(n)) for n in range(entities)]]
        transactions += [[make(BATCH * batch + n) for n in range(BATCH)] for batch in range(count)]
        theirs, own = against_bare(place, transactions, warm=1, rounds=10)
        rate = BATCH / own
        report.at_least(f"{kind} in batches of {BATCH} / bare SQLite, or 100,000 a second",
                        max(theirs / own, 0.5 * rate / 100_000), 0.5,
                        f"{rate:,.0f} operations/s against {BATCH / theirs:,.0f}")  # fmt: skip


def p50(action: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        action()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def reads(report: Report, folder: Path) -> None:
    """The same entity with a short and with a long history behind it, among many others."""
    long = 2_000 if report.small else 10_000
    with open_space(f"{folder}/", "reads") as space:
        space.transact("benchmark", 0, [Set(f"customer/{n}", document(n)) for n in range(1_000)])
        histories = {"short": 10, "long": long}
        number = 1
        middle: dict[str, list[int]] = {}
        for id, revisions in histories.items():
            space.transact("benchmark", number, [Set(id, document(0))])
            for _ in range(revisions - 1):
                number += 1
                space.transact("benchmark", number, [bump(id)])
            number += 1
            middle[id] = [revision.seq for revision in space.history(id)]
        space.snapshots.compact()
        chance = random.Random(3)
        around = middle["long"][long // 2 - 250 : long // 2 + 250]
        rounds: dict[str, list[float]] = {"short": [], "long": [], "past": []}
        for _ in range(20):
            rounds["short"].append(p50(lambda: space.read("short"), 200))
            rounds["long"].append(p50(lambda: space.read("long"), 200))
            rounds["past"].append(p50(lambda: space.read("long", seq=chance.choice(around)), 200))
        short, now, past = (statistics.median(taken) for taken in rounds.values())
        kept = space._database.connection.execute("SELECT count(*) FROM snapshot WHERE id = 'long'").fetchall()[0][0]
    report.at_most(f"current read, {long:,} revisions / 10 revisions", now / short, 1.5,
                   f"p50 {now * 1e6:,.0f} µs against {short * 1e6:,.0f} µs")  # fmt: skip
    report.at_most(f"read in the middle of {long:,} revisions / current read", past / now, 5,
                   f"p50 {past * 1e6:,.0f} µs; {kept} snapshots kept")  # fmt: skip


def branches(report: Report, folder: Path) -> None:
    """Branch creation in a space of many entities."""
    entities = 100_000 if report.small else 1_000_000
    with open_space(f"{folder}/", "branches") as space:
        for start in range(0, entities, 10_000):
            space.transact("benchmark", start, [Set(f"customer/{n}", {"n": n}) for n in range(start, start + 10_000)])
        connection: apsw.Connection = space._database.connection
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        before = connection.total_changes()
        taken = []
        for number in range(20):
            begun = time.perf_counter()
            space.branches.create(f"try-{number}")
            taken.append(time.perf_counter() - begun)
        rows = (connection.total_changes() - before) / 20
    typical = statistics.median(taken)
    report.at_most(f"creating a branch with {entities:,} entities, in units of 10 ms", typical / 0.01, 1,
                   f"{typical * 1000:.2f} ms, {rows:g} rows written")  # fmt: skip


class ByHand:
    """What a user would write with SQLite alone: a table of current documents, and one of all that there were."""

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path))
        self.connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                                "CREATE TABLE current (id TEXT PRIMARY KEY, seq INTEGER, document TEXT);"
                                "CREATE TABLE past (id TEXT, seq INTEGER, document TEXT, PRIMARY KEY (id, seq))"
                                ).fetchall()
        self.seq = 0

    def put(self, documents: dict[str, dict[str, Any]]) -> None:
        self.seq += 1
        rows = [(id, self.seq, json.dumps(one)) for id, one in documents.items()]
        with self.connection:
            self.connection.executemany("INSERT OR REPLACE INTO current VALUES (?, ?, ?)", rows)
            self.connection.executemany("INSERT INTO past VALUES (?, ?, ?)", rows)

    def bump(self, id: str) -> None:
        found = self.read(id)
        found["value"]["count"] += 1
        self.put({id: found})

    def read(self, id: str, seq: int | None = None) -> dict[str, Any]:
        sql, values = ("SELECT document FROM current WHERE id = ?", (id,)) if seq is None else (
            "SELECT document FROM past WHERE id = ? AND seq <= ? ORDER BY seq DESC LIMIT 1", (id, seq))
        found: dict[str, Any] = json.loads(str(self.connection.execute(sql, values).get))
        return found


def as_users_do(report: Report, folder: Path) -> None:
    """A first load, then many small commits, then reads, branches and merges. Nothing is set."""
    chance = random.Random(4)
    entities, commits, asked, tries = (5_000, 500, 500, 20) if report.small else (50_000, 3_000, 2_000, 60)
    documents = {f"customer/{n}": document(n) for n in range(entities)}
    ids = list(documents)
    hand = ByHand(folder / "hand.db")
    with open_space(str(folder / "ours"), "shop") as space:
        parts = [ids[start : start + 1_000] for start in range(0, entities, 1_000)]
        ours, theirs = repeated(
            len(parts), lambda n: space.transact(*space.next_request(), [Set(id, documents[id]) for id in parts[n]]),
            lambda n: hand.put({id: documents[id] for id in parts[n]}))
        report.compare(f"load of {entities:,} documents / by hand", ours, theirs, 3)
        report.steady("load", ours)
        chosen = [chance.choice(ids) for _ in range(commits)]
        ours, theirs = repeated(commits, lambda n: space.transact(*space.next_request(), [bump(chosen[n])]),
                                lambda n: hand.bump(chosen[n]))
        report.compare("one patch a commit / by hand", ours, theirs, 3)
        report.steady("one patch a commit", ours)
        hot = repeated(commits, lambda n: space.transact(*space.next_request(), [bump("customer/1")]))[0]
        report.steady("patches of one document", hot)
        middle = space.last_seq() // 2
        for name, seq in (("now", None), ("in the middle of the history", middle)):
            ours, theirs = repeated(asked, lambda n, seq=seq: space.read(chosen[n % commits], seq=seq),
                                    lambda n, seq=seq: hand.read(chosen[n % commits], seq))
            report.compare(f"read of a document {name} / by hand", ours, theirs, 5)
        created, first, merged = Taken(), Taken(), Taken()
        for number in range(tries):
            name, some = f"try-{number}", [bump(id) for id in chance.sample(ids, 50)]
            created.add(lambda name=name: space.branches.create(name))
            first.add(lambda name=name, some=some: space.transact(*space.next_request(), some, branch=name))
            merged.add(lambda name=name: space.branches.merge(name))
        report.steady("a new branch", created)
        report.steady("50 patches on a new branch", first)
        report.steady("a merge of 50 documents", merged)
        batch = repeated(20, lambda n: space.transact(
            *space.next_request(), [bump(id) for id in chance.sample(ids, 50)]))[0]
        report.compare("a merge of 50 documents / a commit of 50 patches", merged, batch, 3)
    hand.connection.close()


def main() -> None:
    report = Report("documents")
    parts = (as_users_do,) if report.as_users_do else ()
    for part in (*parts, *((one_patch, batches, reads, branches) if report.tuned else ())):
        folder = Path(tempfile.mkdtemp(prefix="documents-"))
        try:
            part(report, folder)
        finally:
            shutil.rmtree(folder)
    report.finish()


if __name__ == "__main__":
    main()
