"""Every key goes to the database that its range is in, and comes back from there, one operation at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apsw
import pytest

from ontolake.sql import Database
from ontolake.sql.keyspace import ranges
from ontolake.sql.keyspace.layout import TABLES
from ontolake.sql.keyspace.ranges import RangeKeyspace, Routed, RoutedRange
from ontolake.sql.keyspace.vectors import Strings
from ontolake.sql.keyspace.versions import BATCH, Keyspace, KeySpan

TABLE = b"\x20" + (100).to_bytes(8, "big")
ALL = KeySpan(TABLE, b"\x20" + (101).to_bytes(8, "big"))


def key(number: int) -> bytes:
    return TABLE + bytes((number,))


def numbers(found: Iterable[bytes]) -> list[int]:
    return [each[-1] for each in found]


def entries(wanted: Iterable[int], text: str = "v") -> list[tuple[bytes, bytes]]:
    return [(key(n), f"{text}{n}".encode()) for n in wanted]


def connection() -> apsw.Connection:
    made = apsw.Connection(":memory:")
    made.execute(TABLES)
    return made


class Places(NamedTuple):
    """Keys 0 to 9 and from 40 on are in `main`, 10 to 19 and 30 to 39 in `one`, 20 to 29 in `two`."""

    main: apsw.Connection
    one: RangeKeyspace
    two: RangeKeyspace
    keyspace: Routed

    def kept(self, table: str = "latest") -> list[list[int]]:
        """The numbers of the keys that each of them has."""
        sql = f"SELECT key FROM {table} ORDER BY key"
        return [numbers(row[0] for row in each.execute(sql).fetchall())  # type: ignore[misc]
                for each in (self.main, self.one.connection, self.two.connection)]  # fmt: skip

    def move_to(self, version: int) -> None:
        for each in (self.main, self.one.connection, self.two.connection):
            each.execute("UPDATE state SET version = ?", (version,))
        for keyspace in (self.keyspace, self.one, self.two):
            keyspace.close_nodes()


@pytest.fixture
def places() -> Iterator[Places]:
    main, one, two = connection(), RangeKeyspace(connection()), RangeKeyspace(connection())
    keyspace = Routed(main)
    table = [RoutedRange(b"", key(10), ""), RoutedRange(key(10), key(20), "1"), RoutedRange(key(20), key(30), "2"),
             RoutedRange(key(30), key(40), "1"), RoutedRange(key(40), b"", "")]  # fmt: skip
    keyspace.route(table, {"1": one, "2": two})
    yield Places(main, one, two, keyspace)
    for each in (main, one.connection, two.connection):
        each.close()


SOME = [0, 9, 10, 19, 20, 29, 30, 39, 40, 255]
"""The first and last keys of every range."""
KEPT = [[0, 9, 40, 255], [10, 19, 30, 39], [20, 29]]


@pytest.fixture
def filled(places: Places) -> Places:
    """All of `SOME` at version 1; at version 2 those of each range that end in 9 are new, and those in 0 deleted."""
    places.keyspace.insert(1, entries(SOME))
    places.move_to(1)
    places.keyspace.put(2, entries([9, 19, 29, 39], "w"))
    places.keyspace.delete(2, [key(n) for n in (0, 10, 20, 30, 40)])
    places.move_to(2)
    return places


NOW = {9: "w9", 19: "w19", 29: "w29", 39: "w39", 255: "v255"}
THEN = {n: f"v{n}" for n in SOME}


def as_text(found: dict[bytes, bytes]) -> dict[int, str]:
    return {at[-1]: value.decode() for at, value in found.items()}


def scanned(keyspace: Keyspace, span: KeySpan = ALL, at: int | None = None, **options: Any) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for batch in keyspace.scan(span, at, keys=True, **options):
        assert batch.keys is not None
        found += zip(numbers(batch.keys.to_list()), map(bytes.decode, batch.values.to_list()), strict=True)
    return found


def test_a_range_begins_at_its_start_and_ends_before_the_next(places: Places) -> None:
    places.keyspace.insert(1, entries(SOME))
    assert places.kept() == KEPT
    assert [n for n in SOME if places.keyspace.is_elsewhere(key(n))] == [10, 19, 20, 29, 30, 39]
    assert not places.keyspace.is_elsewhere(b"")
    assert not places.keyspace.is_elsewhere(b"\xff" * 20)


def test_all_ways_of_writing_go_to_the_database_of_the_range(places: Places) -> None:
    places.keyspace.insert_strings(1, Strings.of([key(n) for n in SOME]), None)
    assert places.kept() == KEPT
    assert as_text(places.keyspace.get_many([key(n) for n in SOME])) == dict.fromkeys(SOME, "\x01\x00")
    places.keyspace.delete(2, [key(n) for n in SOME])
    assert places.kept() == [[], [], []]
    assert places.kept("gone") == KEPT
    assert places.kept("past") == KEPT
    places.keyspace.revive(3, [key(n) for n in SOME])
    assert places.kept("gone") == [[], [], []]
    assert [sorted(each) for each in places.kept("past")] == [sorted(each * 2) for each in KEPT]
    places.keyspace.insert(3, iter(entries(SOME)))
    places.keyspace.put(4, entries(SOME, "w"))
    assert places.kept() == KEPT
    assert as_text(places.keyspace.get_many([key(n) for n in SOME])) == {n: f"w{n}" for n in SOME}


def test_single_and_many_keys_are_read_where_they_are(filled: Places) -> None:
    wanted = [key(n) for n in SOME]
    assert {n: found.decode() for n in SOME if (found := filled.keyspace.get(key(n))) is not None} == NOW
    assert as_text(filled.keyspace.get_many(wanted)) == NOW
    assert as_text(filled.keyspace.get_many(wanted, 1)) == THEN
    assert as_text(filled.keyspace.get_many(wanted, 2)) == NOW
    for at, expected in ((None, NOW), (1, THEN), (2, NOW)):
        values = filled.keyspace.values_of(wanted, at).to_list()
        assert sorted(map(bytes.decode, values)) == sorted(expected.values())


def test_a_scan_goes_through_the_ranges_in_their_order(filled: Places) -> None:
    keyspace = filled.keyspace
    assert scanned(keyspace) == list(NOW.items())
    assert sorted(scanned(keyspace, at=1)) == sorted(THEN.items())
    assert scanned(keyspace, at=2) == list(NOW.items())
    assert scanned(keyspace, KeySpan(key(19), key(39))) == [(19, "w19"), (29, "w29")]
    assert scanned(keyspace, KeySpan(key(20), key(30))) == [(29, "w29")]
    assert scanned(keyspace, KeySpan(key(10), key(10))) == []
    assert scanned(keyspace, ahead=True) == list(NOW.items())
    values = [value for batch in keyspace.scan(ALL) for value in batch.values.to_list()]
    assert values == [text.encode() for text in NOW.values()]
    assert all(batch.keys is None for batch in keyspace.scan(ALL))


@pytest.mark.parametrize("limit", range(1, 7))
def test_a_scan_with_a_limit_ends_in_any_range(filled: Places, limit: int) -> None:
    assert scanned(filled.keyspace, limit=limit) == list(NOW.items())[:limit]
    assert filled.keyspace.count(ALL, limit) == min(limit, 5)
    assert len(scanned(filled.keyspace, at=1, limit=limit)) == limit


def test_nothing_is_read_beyond_a_limit(filled: Places) -> None:
    filled.two.connection.close()
    assert sorted(scanned(filled.keyspace, at=1, limit=4)) == [(n, f"v{n}") for n in (0, 9, 10, 19)]
    assert scanned(filled.keyspace, limit=2) == [(9, "w9"), (19, "w19")]
    assert filled.keyspace.count(ALL, 2) == 2
    with pytest.raises(apsw.ConnectionClosedError):
        scanned(filled.keyspace, limit=3)
    with pytest.raises(apsw.ConnectionClosedError):
        filled.keyspace.count(ALL, 3)


def test_keys_are_counted_in_the_ranges_of_a_span(filled: Places) -> None:
    assert filled.keyspace.count(ALL, 100) == 5
    assert filled.keyspace.count(KeySpan(key(19), key(39)), 100) == 2
    assert filled.keyspace.count(KeySpan(key(19), key(40)), 100) == 3


def test_steps_come_range_by_range_from_either_end(filled: Places) -> None:
    filled.keyspace.insert(3, entries([11, 12, 13]))
    filled.move_to(3)
    edges = [(span.start, span.end) for span in filled.keyspace.steps(ALL, None, 2)]
    assert edges == [(ALL.start, key(10)), (key(10), key(13)), (key(13), key(20)), (key(20), key(30)),
                     (key(30), key(40)), (key(40), ALL.end)]  # fmt: skip
    back = [(span.start, span.end) for span in filled.keyspace.steps(ALL, None, 2, descending=True)]
    assert back == [(key(40), ALL.end), (key(30), key(40)), (key(20), key(30)), (key(13), key(20)),
                    (key(10), key(13)), (ALL.start, key(10))]  # fmt: skip
    past = [(span.start, span.end) for span in filled.keyspace.steps(KeySpan(key(10), key(30)), 1, 1)]
    assert past == [(key(10), key(19)), (key(19), key(20)), (key(20), key(29)), (key(29), key(30))]


def test_what_a_range_has_beyond_its_limit_is_not_read(filled: Places) -> None:
    keyspace, wanted = filled.keyspace, [key(n) for n in SOME]
    assert keyspace.is_ordered()
    filled.two.limit = 1
    assert not keyspace.is_ordered()
    expected = {9: "w9", 19: "w19", 20: "v20", 29: "v29", 39: "w39", 255: "v255"}
    assert {n: found.decode() for n in SOME if (found := keyspace.get(key(n))) is not None} == expected
    assert as_text(keyspace.get_many(wanted)) == expected
    assert sorted(map(bytes.decode, keyspace.values_of(wanted).to_list())) == sorted(expected.values())
    assert sorted(scanned(keyspace)) == sorted(expected.items())
    steps = list(keyspace.steps(KeySpan(key(20), key(30)), None, 1))
    assert steps == [KeySpan(key(20), key(29)), KeySpan(key(29), key(30))]
    filled.two.limit = 2
    assert as_text(keyspace.get_many(wanted, 1)) == THEN, "a moment that is asked for goes before the limit"


def test_a_range_is_never_settled_since_its_newest_version_may_be_undone(filled: Places) -> None:
    filled.keyspace.put(3, entries([29], "x"))
    filled.move_to(3)
    filled.two.connection.execute("BEGIN")
    for _ in range(2):
        assert sorted(scanned(filled.two, at=1)) == [(20, "v20"), (29, "v29")]
    assert filled.two.all_newer == {}


def test_routes_that_change_forget_since_when_all_rows_are_newer(places: Places) -> None:
    places.keyspace.all_newer[TABLE] = 7
    places.keyspace.route([RoutedRange(b"", b"", "")], {})
    assert places.keyspace.all_newer == {}
    assert places.keyspace.parts == []
    assert not places.keyspace.is_elsewhere(key(10))


def test_without_moved_ranges_all_is_in_the_main_database() -> None:
    main = connection()
    keyspace = Routed(main)
    assert not keyspace.is_elsewhere(key(10))
    assert keyspace.is_ordered()
    keyspace.insert(1, entries([1, 2, 3]))
    keyspace.insert_strings(1, Strings.of([key(4)]), None)
    main.execute("UPDATE state SET version = 1")
    keyspace.put(2, entries([1], "w"))
    keyspace.delete(2, [key(2)])
    keyspace.close_nodes()
    main.execute("UPDATE state SET version = 2")
    now = {1: "w1", 3: "v3", 4: "\x01\x00"}
    then = {1: "v1", 2: "v2", 3: "v3", 4: "\x01\x00"}
    wanted = [key(n) for n in range(6)]
    assert keyspace.get(key(1)) == b"w1"
    assert keyspace.get(key(2)) is None
    assert as_text(keyspace.get_many(wanted)) == now
    assert as_text(keyspace.get_many(wanted, 1)) == then
    assert scanned(keyspace) == list(now.items())
    assert sorted(scanned(keyspace, at=1)) == sorted(then.items())
    assert scanned(keyspace, limit=1) == [(1, "w1")]
    assert sorted(keyspace.values_of(wanted, 1).to_list()) == sorted(value.encode() for value in then.values())
    assert keyspace.count(ALL, 2) == 2
    assert [span.end for span in keyspace.steps(ALL, None, 1)] == [key(3), ALL.end]
    assert [span.end for span in keyspace.steps(ALL, 1, 1, descending=True)] == [ALL.end, key(4)]
    keyspace.revive(3, [key(2)])
    assert main.execute("SELECT count(*) FROM gone").get == 0


@pytest.mark.slow
def test_a_plain_scan_can_fetch_ahead() -> None:
    keyspace = Routed(connection())
    keyspace.insert(1, ((TABLE + n.to_bytes(4, "big"), b"v") for n in range(BATCH + 1)))
    assert [len(batch.values) for batch in keyspace.scan(ALL, ahead=True)] == [BATCH, 1]


def test_the_routing_table_is_read_by_key() -> None:
    main = connection()
    assert ranges.read(main) == [(b"", b"", "")]
    main.execute("INSERT INTO range VALUES (x'30', 'two.db'), (x'2001', 'one.db')")
    assert ranges.read(main) == [(b"", b"\x20\x01", ""), (b"\x20\x01", b"\x30", "one.db"), (b"\x30", b"", "two.db")]


def test_a_home_of_ranges_is_known_by_its_mark() -> None:
    home = connection()
    assert not ranges.is_home(home)
    home.execute("INSERT INTO counter VALUES ('range', 1)")
    assert ranges.is_home(home)


def test_undoing_leaves_what_was_published() -> None:
    home = connection()
    keyspace = RangeKeyspace(home)
    keyspace.insert(1, entries([1, 2, 3, 4]))
    keyspace.put(2, entries([1], "w"))
    keyspace.delete(2, [key(4)])
    keyspace.close_nodes()
    home.execute("UPDATE state SET version = 2")
    tables = {name: home.execute(f"SELECT * FROM {name}").fetchall() for name in ("latest", "past", "gone", "state")}
    keyspace.put(3, entries([1, 2], "x"))
    keyspace.delete(3, [key(3)])
    keyspace.revive(3, [key(4)])
    keyspace.insert(3, entries([4, 5], "x"))
    keyspace.close_nodes()
    home.execute("UPDATE state SET version = 3")
    published = {name: home.execute(f"SELECT * FROM {name}").fetchall() for name in tables}
    changes = home.total_changes()
    ranges.undo(home, 3)
    assert home.total_changes() == changes
    assert {name: home.execute(f"SELECT * FROM {name}").fetchall() for name in tables} == published != tables
    ranges.undo(home, 2)
    assert {name: home.execute(f"SELECT * FROM {name}").fetchall() for name in tables} == tables


def test_keys_are_described_for_people(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    catalog = db.catalog()
    for at, expected in (
        (b"", "catalog"), (b"\x01", "catalog"), (b"\x1f", "catalog"), (TABLE, "rows of main.public.t"),
        (key(5), "rows of main.public.t"), (b"\x30" + TABLE[1:], "indexes of main.public.t"),
        (b"\x30" + TABLE[1:] + bytes(8), "indexes of main.public.t"), (b"\x20", "rows of a table that is not there"),
        (b"\x20" + bytes(7) + b"\x65", "rows of a table that is not there"),
        (b"\x20" + bytes(6) + b"\x64", "rows of a table that is not there"),
    ):  # fmt: skip
        assert ranges.described(at, catalog) == expected
