"""Branch, tag, diff, merge and blame of every model, at several sizes, beside DoltLite on a local file.

The same work for all: a table of records with two fields, of which a branch changes some spread over all of it, while
the first branch changes another one, so that every merge is a real one. Stores of all sizes are there at once, and each
step is done to each of them in turns, so that what else the machine does hits all alike. What takes a millisecond is
done many times. DoltLite takes the place of SQLite in a whole process, so it runs in one of its own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from report import Report, seconds

CHANGED = 1000
ROUNDS = 5
QUICK = 20
"""Branches and tags that are made before the rounds: their times are too short for a few of them to tell."""
VERSIONS = 1000


class Subject(ABC):
    """A store of one model. Records are `(id, f, g)`; a change gives `f` of some ids another value."""

    name: str

    @abstractmethod
    def load(self, size: int) -> None: ...

    @abstractmethod
    def change(self, branch: str, ids: Iterable[int], value: int) -> None: ...

    def branch(self, name: str) -> None:
        self.store.branches.create(name)

    def tag(self, name: str) -> None:
        self.store.tags.create(name)

    def diff(self, one: str, other: str) -> int:
        return sum(1 for _ in self.store.diff(self.store.at(self._ref(one)), self.store.at(self._ref(other))))

    def merge(self, source: str) -> None:
        self.store.merge(source, "main")

    def blame(self, id: int) -> None:
        self.store.blame(self.table, self.key(id))

    def key(self, id: int) -> Any:
        return id

    def _ref(self, text: str) -> Any:
        from ontolake.history import Ref

        return Ref.parse(text)

    def close(self) -> None:
        self.store.close()

    store: Any
    table: str


class Documents(Subject):
    name, table = "documents", "documents"

    def __init__(self, folder: Path) -> None:
        from ontolake.documents import open_space

        self.store = open_space(f"{folder}/", "bench")

    def key(self, id: int) -> str:
        return f"r{id:08}"

    def _set(self, branch: str, ids: Iterable[int], value: int) -> None:
        from ontolake.documents import Set

        self.store.transact(*self.store.next_request(), [Set(self.key(id), {"f": value, "g": id}) for id in ids],
                            branch="" if branch == "main" else branch)  # fmt: skip

    def load(self, size: int) -> None:
        for start in range(0, size, 20_000):
            self._set("main", range(start, min(start + 20_000, size)), 0)

    def change(self, branch: str, ids: Iterable[int], value: int) -> None:
        self._set(branch, ids, value)


class Nodes(Subject):
    name, table = "graph", "node/Item"

    def __init__(self, folder: Path) -> None:
        from ontolake.graph import Graph
        from ontolake.model import Entity, Field

        class Item(Entity):
            id: Field[int] = Field(primary_key=True)
            f: Field[int]
            g: Field[int]

        self.store = Graph.init(f"{folder}/graph/", types=[Item])

    def load(self, size: int) -> None:
        self._put("main", range(size), 0)

    def change(self, branch: str, ids: Iterable[int], value: int) -> None:
        self._put(branch, ids, value)

    def _put(self, branch: str, ids: Iterable[int], value: int) -> None:
        import pyarrow as pa

        ids = list(ids)
        self.store.load("Item", pa.table({"id": ids, "f": [value] * len(ids), "g": ids}), branch=branch)


class Tables(Subject):
    name, table, place = "SQL (pages)", "app.public.items", "file://{}/bench.db"

    def __init__(self, folder: Path) -> None:
        from ontolake.sql import open_database

        self._open = open_database
        self._url = self.place.format(folder)
        self.store = open_database(self._url)
        self.store.execute("CREATE DATABASE app; CREATE SCHEMA app.public; USE app; "
                           "CREATE TABLE items (id BIGINT PRIMARY KEY, f BIGINT, g BIGINT)")

    def load(self, size: int) -> None:
        import pyarrow as pa

        self.store.bulk_load("items", pa.table({"id": list(range(size)), "f": [0] * size, "g": list(range(size))}))

    def change(self, branch: str, ids: Iterable[int], value: int) -> None:
        found = ", ".join(map(str, ids))
        statement = f"UPDATE items SET f = {value} WHERE id IN ({found})"
        if branch == "main":
            self.store.execute(statement)
            return
        with self._open(self._url, branch=branch, database="app") as there:
            there.execute(statement)


class NativeTables(Tables):
    """The same in a native SQLite file."""

    name, place = "SQL (file)", "{}/bench.db"


class Typed(Subject):
    """Entities of engine v3 in a native SQLite file."""

    name, table = "typed", "entity/Item"

    def __init__(self, folder: Path) -> None:
        from ontolake.model import Entity, Field
        from ontolake.ontology import Session

        class Item(Entity):
            id: Field[int] = Field(primary_key=True)
            f: Field[int]
            g: Field[int]

        self._item, self._session, self._url = Item, Session, f"{folder}/typed.db"
        self.store = Session(self._url, entity_types=[Item], engine_version="v3")

    def load(self, size: int) -> None:
        self._put(self.store, range(size), 0)

    def change(self, branch: str, ids: Iterable[int], value: int) -> None:
        if branch == "main":
            self._put(self.store, ids, value)
            return
        with self._session(self._url, entity_types=[self._item], branch=branch) as there:
            self._put(there, ids, value)

    def _put(self, session: Any, ids: Iterable[int], value: int) -> None:
        import pyarrow as pa

        ids = list(ids)
        session.ensure_arrow(self._item, pa.table({"id": ids, "f": [value] * len(ids), "g": ids}))
        session.commit()


class Dolt(Subject):
    """The same in a child, one line of JSON a call; the child measures."""

    name = "DoltLite"

    def __init__(self, folder: Path) -> None:
        self._child = subprocess.Popen([sys.executable, __file__, "--dolt", str(folder / "dolt.db")], text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
        self.taken = 0.0

    def ask(self, *call: Any) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps(call) + "\n")
        self._child.stdin.flush()
        answer = self._child.stdout.readline()
        if not answer:
            raise RuntimeError(f"DoltLite ended while it did {call[0]}")
        self.taken = json.loads(answer)

    def load(self, size: int) -> None:
        self.ask("load", size)

    def change(self, branch: str, ids: Iterable[int], value: int) -> None:
        self.ask("change", branch, list(ids), value)

    def branch(self, name: str) -> None:
        self.ask("branch", name)

    def tag(self, name: str) -> None:
        self.ask("tag", name)

    def diff(self, one: str, other: str) -> int:
        self.ask("diff", one, other)
        return 0

    def merge(self, source: str) -> None:
        self.ask("merge", source)

    def close(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait()


def serve_dolt(path: str) -> None:
    """The child: reads calls, does them, writes how long each took."""
    import doltlite  # noqa: F401, I001 -- before sqlite3, whose library it replaces
    import sqlite3

    db = sqlite3.connect(path, isolation_level=None)

    def run(sql: str, *values: Any) -> list[Any]:
        return db.execute(sql, values).fetchall()

    def load(size: int) -> None:
        run("CREATE TABLE items (id INTEGER PRIMARY KEY, f INTEGER, g INTEGER)")
        run("BEGIN")
        db.executemany("INSERT INTO items VALUES (?, 0, ?)", ((id, id) for id in range(size)))
        run("COMMIT")
        run("SELECT dolt_commit('-A', '-m', 'load')")

    def change(branch: str, ids: list[int], value: int) -> None:
        run("SELECT dolt_checkout(?)", branch)
        run("BEGIN")
        db.executemany("UPDATE items SET f = ? WHERE id = ?", ((value, id) for id in ids))
        run("COMMIT")
        run("SELECT dolt_commit('-A', '-m', 'change')")
        run("SELECT dolt_checkout('main')")

    calls: dict[str, Callable[..., Any]] = {
        "load": load, "change": change, "branch": lambda name: run("SELECT dolt_branch(?)", name),
        "tag": lambda name: run("SELECT dolt_tag(?)", name),
        "diff": lambda one, other: run(
            "SELECT count(*) FROM dolt_diff_items WHERE from_ref = ? AND to_ref = ?", one, other),
        "merge": lambda source: run("SELECT dolt_merge(?)", source),
    }  # fmt: skip
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(seconds(lambda name=name, arguments=arguments: calls[name](*arguments))), flush=True)


SUBJECTS: dict[str, type[Subject]] = {"documents": Documents, "graph": Nodes, "sql": Tables,
                                      "sql-file": NativeTables, "typed": Typed, "dolt": Dolt}  # fmt: skip


class Figures(dict[str, float]):
    """Median seconds by what was done."""


def timed(subject: Subject, action: Callable[[], object]) -> float:
    """Seconds of one call: of DoltLite those that its process measured."""
    taken = seconds(action)
    return subject.taken if isinstance(subject, Dolt) else taken


def measure(subjects: dict[int, Subject], changed: int, rounds: int = ROUNDS) -> dict[int, Figures]:
    """Load stores of some sizes, and do everything to each of them some times, step by step in turns."""
    taken: dict[int, dict[str, list[float]]] = {size: {} for size in subjects}
    for size, subject in subjects.items():
        subject.load(size)

    def take(what: str, actions: dict[int, Callable[[], object]]) -> None:
        for size, action in actions.items():
            taken[size].setdefault(what, []).append(timed(subjects[size], action))

    for number in range(QUICK if rounds > 1 else 0):
        for what in ("branch", "tag"):
            take(what, {size: partial(getattr(subject, what), f"{what}{number}") for size, subject in subjects.items()})
    for number in range(rounds):
        steps = {size: one_round(subject, size, changed, number) for size, subject in subjects.items()}
        for what in next(iter(steps.values())):
            take(what, {size: step[what] for size, step in steps.items() if what != "direct" or changed < size})
    return {size: Figures({what: median(each) for what, each in found.items()}) for size, found in taken.items()}


def one_round(subject: Subject, size: int, changed: int, number: int) -> dict[str, Callable[[], object]]:
    """What is done to a store, in order."""
    step, name = max(size // changed, 1), f"b{number}"
    ids = range(number % step, size - 5 * step, step)[:changed]  # the last ones are for the first branch
    return {
        "branch": lambda: subject.branch(name), "tag": lambda: subject.tag(f"t{number}"),
        "write": lambda: subject.change(name, ids, number + 1),
        "main": lambda: subject.change("main", [size - 1 - number * step], 99),
        "diff": lambda: subject.diff("main", name), "merge": lambda: subject.merge(name),
        # As many rows, spread in the same way, written to the branch that the merge has written them to.
        "direct": lambda: subject.change("main", [id + step // 2 for id in ids], number + 1),
    }  # fmt: skip


def blame(subject: Subject) -> float:
    subject.load(10)
    for number in range(VERSIONS):
        subject.change("main", [5], number + 1)
    return median(seconds(lambda: subject.blame(5)) for _ in range(5))


def measured(kind: type[Subject], sizes: Sequence[int], changed: int, rounds: int = ROUNDS) -> dict[int, Figures]:
    """What `measure` gives for new stores of a kind, which are removed afterwards."""
    with ExitStack() as stack:
        return measure({size: stack.enter_context(opened(kind)) for size in sizes}, changed, rounds)


@contextmanager
def opened(kind: type[Subject]) -> Iterator[Subject]:
    """A new store of a kind, which is removed afterwards."""
    folder = Path(tempfile.mkdtemp())
    subject = kind(folder)
    try:
        yield subject
    finally:
        subject.close()
        shutil.rmtree(folder, ignore_errors=True)


def has_dolt() -> bool:
    return subprocess.run([sys.executable, "-c", "import doltlite"], capture_output=True, check=False).returncode == 0


def shown(taken: float) -> str:
    return f"{taken * 1000:.1f} ms"


def as_users_do(report: Report) -> None:
    sizes = (2_000, 20_000) if report.small else (10_000, 100_000, 1_000_000)
    dolt = measured(Dolt, sizes, CHANGED) if has_dolt() else {}
    if not dolt:
        report.note("DoltLite is not installed: pip install 'ontolake[bench]'")
    for kind in (Documents, Nodes, NativeTables, Tables, Typed):
        found = measured(kind, sizes, CHANGED)
        least, most = found[sizes[0]], found[sizes[-1]]
        for what in ("branch", "tag"):
            worst = max(figures[what] for figures in found.values())
            report.at_most(f"{kind.name}: {what}, the slowest size, in units of 10 ms", worst / 0.01, 1, shown(worst))
        for what in ("branch", "tag", "diff", "merge"):
            report.at_most(f"{kind.name}: {what}, {sizes[-1]:,} rows / {sizes[0]:,} rows", most[what] / least[what],
                           1.5, f"{shown(most[what])} against {shown(least[what])}")
        report.at_most(f"{kind.name}: merge of {CHANGED:,} rows / writing them to the same branch",
                       most["merge"] / most["direct"], 3, f"{shown(most['merge'])} against {shown(most['direct'])}")
        with opened(kind) as subject:
            taken = blame(subject)
        report.at_most(f"{kind.name}: blame of a row with {VERSIONS:,} versions, in units of 50 ms", taken / 0.05, 1,
                       shown(taken))
        for what in ("branch", "diff", "merge") if dolt else ():
            theirs = dolt[sizes[-1]][what]
            report.at_most(f"{kind.name}: {what} at {sizes[-1]:,} rows / DoltLite", most[what] / theirs, 3,
                           f"{shown(most[what])} against {shown(theirs)}")
        if dolt and not report.small:
            size = sizes[-1]
            whole, theirs = (measured(one, [size], size, rounds=1)[size]["merge"] for one in (kind, Dolt))
            report.at_most(f"{kind.name}: merge of {sizes[-1]:,} changed rows / DoltLite", whole / theirs, 1,
                           f"{shown(whole)} against {shown(theirs)}")


def main() -> None:
    if "--dolt" in sys.argv:
        serve_dolt(sys.argv[-1])
        return
    report = Report("versioning")
    if report.as_users_do:
        as_users_do(report)
    report.finish()


if __name__ == "__main__":
    main()
