"""Reading ahead: a scan costs a round trip for hundreds of pages, whatever order they lie in."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from marking import slow_after

from ontolake.engine.ahead import ReadAhead, children
from ontolake.objects import ObjectStore
from ontolake.objects.testing import CountingStore

Connect = Callable[..., apsw.Connection]
Behind = Callable[[Callable[[ObjectStore], ObjectStore]], str]
PAYLOAD = bytes(900)
ROWS = 12_000


@pytest.fixture
def stores() -> list[CountingStore]:
    """The stores that were opened, the newest last."""
    return []


@pytest.fixture
def place(behind: Behind, stores: list[CountingStore]) -> str:
    """A database on a store that counts."""

    def wrap(store: ObjectStore) -> ObjectStore:
        stores.append(CountingStore(store))
        return stores[-1]

    return behind(wrap)


Ask = Callable[[str], tuple[int, int]]


@pytest.fixture
def ask(place: str, stores: list[CountingStore], connect: Connect) -> Ask:
    """Runs a query on a database that nobody has read yet: how many pages it has, and how many requests it took."""

    def ask(query: str) -> tuple[int, int]:
        reader = connect(place, readonly=True, cache_bytes=0)
        pages = reader.execute("PRAGMA page_count").get
        stores[-1].reset()
        reader.execute(query).fetchall()
        requests = stores[-1].total
        reader.close()
        return pages, requests

    return ask


@pytest.mark.slow
def test_a_scan_of_a_table_that_was_filled_in_order(place: str, ask: Ask, connect: Connect) -> None:
    writer = connect(place)
    writer.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    with writer:
        writer.executemany("INSERT INTO t VALUES (?, ?)", ((i, PAYLOAD) for i in range(ROWS)))
    writer.close()
    pages, requests = ask("SELECT sum(length(x)) FROM t")
    assert pages > 2900
    assert requests < 35


@pytest.mark.slow
def test_a_scan_of_a_table_that_was_filled_in_any_order(place: str, ask: Ask, connect: Connect) -> None:
    """Its pages follow each other in the tree, not in the file."""
    order = list(range(ROWS))
    random.Random(1).shuffle(order)
    writer = connect(place)
    writer.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    for start in range(0, ROWS, ROWS // 4):
        with writer:
            writer.executemany("INSERT INTO t VALUES (?, ?)", ((i, PAYLOAD) for i in order[start : start + ROWS // 4]))
    writer.close()
    pages, requests = ask("SELECT sum(length(x)) FROM t")
    assert pages > 2900
    assert requests < 60


def test_a_scan_of_an_index_and_of_a_table_without_rowids(place: str, ask: Ask, connect: Connect) -> None:
    chance = random.Random(2)
    writer = connect(place)
    writer.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x); CREATE INDEX by_x ON t(x)")
    writer.execute("CREATE TABLE w(key PRIMARY KEY, x) WITHOUT ROWID")
    keys = [chance.randbytes(300) for _ in range(8000)]
    with writer:
        writer.executemany("INSERT INTO t(x) VALUES (?)", ((key,) for key in keys))
        writer.executemany("INSERT INTO w VALUES (?, NULL)", ((key,) for key in keys))
    writer.close()
    for query in ("SELECT count(DISTINCT x) FROM t INDEXED BY by_x", "SELECT count(DISTINCT key) FROM w"):
        pages, requests = ask(query)
        assert pages > 2000
        assert requests < 70


def test_long_values_are_read_in_few_requests(place: str, ask: Ask, connect: Connect) -> None:
    writer = connect(place)
    writer.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    with writer:
        writer.executemany("INSERT INTO t(x) VALUES (?)", ((bytes(2_000_000),) for _ in range(6)))
    writer.close()
    pages, requests = ask("SELECT sum(length(x || '')) FROM t")
    assert pages > 2900
    assert requests < 60


def test_tables_that_were_filled_in_turns_and_are_read_in_turns(place: str, ask: Ask, connect: Connect) -> None:
    writer = connect(place)
    writer.execute("CREATE TABLE a(id INTEGER PRIMARY KEY, x); CREATE TABLE b(id INTEGER PRIMARY KEY, x)")
    with writer:
        for i in range(ROWS // 2):
            writer.execute("INSERT INTO a VALUES (?1, ?2)", (i, PAYLOAD))
            writer.execute("INSERT INTO b VALUES (?1, ?2)", (i, PAYLOAD))
    writer.close()
    pages, requests = ask("SELECT sum(length(a.x) + length(b.x)) FROM a JOIN b USING (id)")
    assert pages > 2900
    assert requests < 70


def test_a_scan_from_the_middle_backwards_and_of_one_row(place: str, ask: Ask, connect: Connect) -> None:
    writer = connect(place)
    writer.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    with writer:
        writer.executemany("INSERT INTO t VALUES (?, ?)", ((i, PAYLOAD) for i in range(ROWS)))
    writer.close()
    assert ask(f"SELECT sum(length(x)) FROM t WHERE id > {ROWS // 2}")[1] < 25
    assert ask("SELECT x FROM t WHERE id = 77")[1] <= 5
    assert ask("SELECT sum(length(x)) FROM (SELECT x FROM t ORDER BY id DESC)")[1] < 35


def test_a_writer_reads_ahead_too_and_keeps_what_it_has_read(
    place: str, stores: list[CountingStore], connect: Connect
) -> None:
    writer = connect(place)
    writer.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    with writer:
        writer.executemany("INSERT INTO t VALUES (?, ?)", ((i, PAYLOAD) for i in range(ROWS)))
    writer.close()
    writer = connect(place, cache_bytes=0, maintenance="off")  # compaction beside it would be counted, too
    writer.execute("UPDATE t SET x = 'y' WHERE id = 1")
    stores[-1].reset()
    writer.execute("UPDATE t SET x = x || x'00'")
    assert stores[-1].total < 40
    stores[-1].reset()
    writer.execute("UPDATE t SET x = NULL WHERE id < 4")
    assert stores[-1].total == stores[-1].writes == 1


# the rules by themselves
@pytest.fixture
def inner_pages(tmp_path: Path) -> tuple[list[bytes], dict[int, list[int]]]:
    """The pages of a file that SQLite wrote, and what its own tables say of the pages below each inner page."""
    path = tmp_path / "native.db"
    native = apsw.Connection(str(path))
    native.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x); CREATE INDEX by_x ON t(x)")
    order = list(range(4000))
    random.Random(3).shuffle(order)
    with native:
        native.executemany("INSERT INTO t VALUES (?, ?)", ((i, f"{i:0200}") for i in order))
    below: dict[int, list[int]] = {}
    # A path of dbstat names a page's place below its parent: '/', '/000/', '/000/1a7/', …
    tables = [row[0] for row in native.execute("SELECT name FROM sqlite_schema WHERE rootpage > 1")]
    for table in tables:
        rows = list(native.execute("SELECT path, pageno FROM dbstat WHERE name = ? ORDER BY path", (table,)))
        numbers = {row[0]: row[1] for row in rows}
        for name, number in rows:
            parent = name.rstrip("/").rpartition("/")[0] + "/"
            if parent in numbers and parent != name:
                below.setdefault(numbers[parent], []).append(number)
    native.close()
    data = path.read_bytes()
    return [data[at : at + 4096] for at in range(0, len(data), 4096)], below


def test_an_inner_page_names_what_lies_below_it(inner_pages: tuple[list[bytes], dict[int, list[int]]]) -> None:
    pages, below = inner_pages
    assert len(below) > 3
    for number, image in enumerate(pages, 1):
        if number > 1:
            assert children(image, len(pages)) == below.get(number, []), f"page {number}"


def test_what_only_looks_like_an_inner_page_names_nothing() -> None:
    chance = random.Random(4)
    for _ in range(2000):
        image = bytes([chance.choice((2, 5))]) + chance.randbytes(1023)
        named = children(image, 100)
        assert all(1 < page <= 100 for page in named)
    assert children(b"\5" + bytes(4095), 100) == []
    # A map of an auto-vacuum database begins like an inner page of a table.
    assert children((b"\5" + (7).to_bytes(4, "big")) * 819 + b"\0", 10_000) == []


def fetches(ahead: ReadAhead, order: list[int], image_of: Callable[[int], bytes], last: int) -> int:
    """How often something has to be fetched for a scan that reads these pages in this order."""
    fetched: set[int] = set()
    count = 0
    for number in order:
        if number not in fetched:
            count += 1
            wanted = ahead.guess(number, last)
            assert wanted[0] == number
            assert len(wanted) == len(set(wanted)) <= 256
            for page in wanted:
                fetched.add(page)
                ahead.learn(page, image_of(page), last)
    return count


@pytest.mark.parametrize("step", [1, -1])
def test_a_scan_is_foreseen_over_all_levels_of_a_tree(
    step: int, inner_pages: tuple[list[bytes], dict[int, list[int]]]
) -> None:
    pages, below = inner_pages
    roots = set(below) - {page for named in below.values() for page in named}

    def walk(number: int) -> list[int]:
        return [number] + [page for child in below.get(number, [])[::step] for page in walk(child)]

    for root in roots:
        order = walk(root)
        assert fetches(ReadAhead(), order, lambda page: pages[page - 1], len(pages)) < 6 + len(order) / 30


@pytest.mark.parametrize(("width", "count", "most"), slow_after(2, [(12, 160, 25), (400, 64, 125), (400, 400, 750)]))
@pytest.mark.parametrize("step", [1, -1])
def test_a_scan_of_a_wide_and_of_a_narrow_tree(width: int, count: int, most: int, step: int) -> None:
    """Up to 160,000 pages, which are more than are kept in mind, and lie in any order."""
    numbers = list(range(3, 3 + count + width * count))
    random.Random(5).shuffle(numbers)
    root, middles = 2, numbers[:count]
    leaves = {middle: numbers[count + width * i : count + width * (i + 1)] for i, middle in enumerate(middles)}
    images = {root: inner(middles[::step])} | {middle: inner(named[::step]) for middle, named in leaves.items()}
    last = 3 + count + width * count
    assert children(images[root], last) == middles[::step]
    ahead = ReadAhead()
    order = [root, *(page for middle in middles for page in (middle, *leaves[middle]))]
    assert fetches(ahead, order, lambda page: images.get(page, b"\x0d"), last) <= most
    assert len(ahead._places) <= 50_000


def inner(named: list[int]) -> bytes:
    """An inner page of a table that names these pages."""
    count = len(named) - 1
    head = bytes([5]) + bytes(2) + count.to_bytes(2, "big") + (4096 - 5 * count).to_bytes(2, "big") + b"\0"
    head += named[-1].to_bytes(4, "big")
    pointers = b"".join((4096 - 5 * (i + 1)).to_bytes(2, "big") for i in range(count))
    cells = b"".join(page.to_bytes(4, "big") + b"\1" for page in reversed(named[:-1]))
    return head + pointers + bytes(4096 - len(head) - len(pointers) - len(cells)) + cells
