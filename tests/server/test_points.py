"""Rows by key, which the event loop reads itself: they are the rows that pages have, at the newest commit."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from serving import Served, serving

from ontolake import Entity, Field, Session
from ontolake.history.names import MAIN
from ontolake.server.rights import Principal, TokenScope
from ontolake.server.routes import ROUTES, Route
from ontolake.server.routing import RouteTree
from ontolake.server.tables.points import PointRows, read_point


class Thing(Entity):
    id: Field[int] = Field(primary_key=True)
    text: Field[str | None]
    size: Field[float | None]
    truth: Field[bool | None]
    raw: Field[bytes | None]
    exact: Field[Decimal | None]
    fixed: Field[Decimal | None] = Field(max_digits=10, decimal_places=2)
    moment: Field[datetime | None]
    day: Field[date | None]
    hour: Field[time | None]
    span: Field[timedelta | None]
    name: Field[uuid.UUID | None]
    parts: Field[list[int] | None]


class Named(Entity):
    name: Field[str] = Field(primary_key=True)
    number: Field[int]


FULL = Thing(id=1, text="ä\n\"", size=0.1, truth=True, raw=b"\0\xff", exact=Decimal("1.10"), fixed=Decimal("2.50"),
             moment=datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC), day=date(2026, 1, 2), hour=time(3, 4, 5),
             span=timedelta(days=1, microseconds=2), name=uuid.UUID(int=7), parts=[1, 2])  # fmt: skip
EMPTY = Thing(id=2, text=None, size=None, truth=None, raw=None, exact=None, fixed=None, moment=None, day=None,
              hour=None, span=None, name=None, parts=None)  # fmt: skip
NAN = EMPTY.model_copy(update={"id": 3, "size": float("nan")})
INFINITE = EMPTY.model_copy(update={"id": -(2**63), "size": float("-inf"), "truth": False})


def stored(folder: Path) -> str:
    found = str(folder / "things.db")
    with Session(found, entity_types=[Thing, Named]) as session:
        session.ensure([FULL, EMPTY, NAN, INFINITE])
        session.ensure([Named(name="a b", number=1), Named(name="ü", number=2)])
    return found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = stored(tmp_path_factory.mktemp("points"))
    with serving({"things": path}, (Principal("some", TokenScope.READ, branches=("try-*",)),)) as found:
        yield found


@pytest.fixture
def path(tmp_path: Path) -> str:
    return stored(tmp_path)


@pytest.fixture
def changing(path: str) -> Iterator[Served]:
    """A server of a store of the test's own."""
    with serving({"things": path}) as found:
        yield found


def rows(served: Served, table: str, key: str, value: Any, **rest: Any) -> Any:
    return served.call("GET", "/stores/things/rows", table=table, filter=json.dumps([[key, "==", value]]), **rest)


def at_once(served: Served, table: str, text: str, columns: str | None = None) -> PointRows | None:
    """What the event loop reads; None if it leaves that to a thread."""
    store = served.server.stores.get("things")
    store.open_inline()
    return store.read_inline(partial(read_point, table=table, columns=columns, text=text))


@pytest.mark.parametrize("key", [1, 2, 3, -(2**63), 77])
@pytest.mark.parametrize("columns", [None, "text,commit_id", "id"])
def test_a_row_is_the_same_as_on_a_page(served: Served, key: int, columns: str | None) -> None:
    page = served.call("GET", "/stores/things/rows", table="entity/Thing", columns=columns,
                       filter=json.dumps([["id", ">=", key], ["id", "<=", key]])).json
    found = at_once(served, "entity/Thing", json.dumps(["id", "==", key]), columns)
    assert found == (page["commit"], page["rows"])
    answer = rows(served, "entity/Thing", "id", key, columns=columns)
    assert answer.json == page
    assert answer.headers["etag"] == f'"{page["commit"]}"'


def test_text_can_be_the_key(served: Served) -> None:
    for name in ("a b", "ü"):
        found = at_once(served, "entity/Named", json.dumps([["name", "==", name]]))
        assert found is not None
        assert [row["name"] for row in found.rows] == [name]


@pytest.mark.parametrize(("table", "text"), [
    ("entity/Thing", '[["id", ">", 1]]'), ("entity/Thing", '[["text", "==", "x"]]'), ("entity/Thing", "[["),
    ("entity/Thing", '[["id", "==", "1"]]'), ("entity/Thing", '[["id", "==", true]]'), ("entity/Thing", "[]"),
    ("entity/Thing", f'[["id", "==", {2**63}]]'), ("entity/Thing", '[["id", "==", 1], ["id", "==", 2]]'),
    ("Thing", '[["id", "==", 1]]'), ("relation/Thing", '[["id", "==", 1]]'), ("entity/No", '[["id", "==", 1]]'),
    ("entity/Named", '[["name", "==", "\\u0000"]]'), ("entity/Named", '[["name", "==", "\\ud800"]]')])  # fmt: skip
def test_everything_else_is_left_to_pages(served: Served, table: str, text: str) -> None:
    assert at_once(served, table, text) is None
    answer = served.call("GET", "/stores/things/rows", table=table, filter=text)
    assert answer.status < 500


def test_an_unknown_column_is_refused_as_on_a_page(served: Served) -> None:
    assert at_once(served, "entity/Thing", '["id", "==", 1]', "id,none") is None
    assert rows(served, "entity/Thing", "id", 1, columns="id,none").status == 422


def test_rows_are_those_of_the_newest_commit(changing: Served, path: str) -> None:
    before = rows(changing, "entity/Named", "name", "a b").json
    with Session(path, entity_types=[Thing, Named]) as session:  # another process could do so
        session.ensure(Named(name="a b", number=10))
    after = rows(changing, "entity/Named", "name", "a b").json
    assert (before["rows"][0]["number"], after["rows"][0]["number"]) == (1, 10)
    assert after["commit"] > before["commit"]


def test_a_changed_type_is_read_as_it_is_now(changing: Served, path: str) -> None:
    assert at_once(changing, "entity/Named", '["name", "==", "a b"]')
    new = wider_type()
    with Session(path, entity_types=[Thing, new]) as session:
        session.migrate(dry_run=False, force=True, upgraders={("Named", 1): lambda fields: {**fields, "more": "old"}})
        session.ensure(new(name="a b", number=1, more="x"))
    assert rows(changing, "entity/Named", "name", "a b").json["rows"][0]["more"] == "x"
    found = at_once(changing, "entity/Named", '["name", "==", "a b"]')
    assert found is not None
    assert found.rows[0]["more"] == "x"


def wider_type() -> Any:
    class Named(Entity):
        name: Field[str] = Field(primary_key=True)
        number: Field[int]
        more: Field[str]

    return Named


def test_rights_to_a_branch_are_checked_first(served: Served) -> None:
    rows(served, "entity/Named", "name", "ü")  # opens what the event loop reads with
    for ref in (None, MAIN):
        assert rows(served, "entity/Named", "name", "ü", token="some", ref=ref).status == 403


@pytest.mark.slow
def test_a_slow_read_sends_the_next_ones_to_threads(changing: Served) -> None:
    store = changing.server.stores.get("things")
    store.open_inline()

    def slow(opened: Any) -> Any:  # many steps of SQLite
        return opened.repository.db.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
                                            "WHERE i < 3000000) SELECT max(i) FROM n").get  # fmt: skip

    assert store.read_inline(slow) == 3_000_000
    assert store.read_inline(lambda opened: 2) is None


# paths


def declared(method: Any, path: str) -> Route:
    return Route(method, path, lambda call: None, lambda call: (), root=True)


def test_paths_lead_to_their_routes() -> None:
    tree = RouteTree([declared("GET", "/a"), declared("POST", "/a"), declared("GET", "/a/{x}"),
                      declared("GET", "/a/b"), declared("GET", "/a/{y}/c"), declared("DELETE", "/a/{x}/r/{rest:path}")])

    def found(path: str, method: str = "GET") -> Any:
        match = tree.find(path, method)
        return match and (match.route and match.route.path, dict(match.path), sorted(match.methods))

    assert found("/a") == ("/a", {}, [])
    assert found("/a", "HEAD") == ("/a", {}, [])
    assert found("/a", "PATCH") == (None, {}, ["GET", "HEAD", "POST"])
    assert found("/a/b") == ("/a/b", {}, [])
    assert found("/a/z") == ("/a/{x}", {"x": "z"}, [])
    assert found("/a/b/c") == ("/a/{y}/c", {"y": "b"}, [])
    assert found("/a/b/r/s/t", "DELETE") == ("/a/{x}/r/{rest:path}", {"x": "b", "rest": "s/t"}, [])
    for path in ("/", "", "/a/", "/b", "/a//c", "/a/b/c/d", "/a/b/r/", "a"):
        assert found(path) is None


def test_every_declared_route_is_found_by_its_own_address() -> None:
    tree = RouteTree(ROUTES)
    for one in ROUTES:
        match = tree.find(one.address.replace("{", "").replace(":path", "").replace("}", ""), one.method)
        assert match is not None
        assert match.route is one
