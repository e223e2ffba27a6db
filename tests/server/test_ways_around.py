"""Ways around the branches of a token: cursors that a client writes itself, expressions that change their value between
the check and the run, plans of sessions, tags on branches of others; and what is no way at all: values that are nested
without end, keys of other requests, pages without limit."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from serving import Answer, Served, serving

import ontolake
from ontolake import sql
from ontolake.history import wire
from ontolake.model import Entity, Field
from ontolake.model.types import type_info
from ontolake.ontology import Session
from ontolake.ontology.query import plan_wire
from ontolake.ontology.query.plan import Plan, Values
from ontolake.ontology.remote import schemas_for
from ontolake.server import cursors
from ontolake.server.app import ServerOptions
from ontolake.server.limits import Limits
from ontolake.server.problems import RefusedError
from ontolake.server.rights import Principal, TokenScope

TRIES = Principal("tries", TokenScope.MERGE, ("*",), ("try", "try-*"))
WHOLE_SPAN = "SELECT * FROM onto_diff('try', CASE WHEN random() < 0.5 THEN 'try' ELSE 'main' END, 'item')"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    url = str(tmp_path_factory.mktemp("stores") / "shop.db")
    with sql.open_database(url) as database:
        database.execute("CREATE TABLE item (id INT PRIMARY KEY, name TEXT)")
        database.branches.create("try")
        database.execute("INSERT INTO item VALUES (1, 'hidden')")
    with serving({"shop": url}, (TRIES,)) as found:
        yield found


def _forged(position: Any, *parameters: Any) -> str:
    """A cursor as a client could write it that knows everything but the server's secret."""
    name = hashlib.sha256(msgspec.json.encode(parameters)).hexdigest()[:12]
    data = msgspec.json.encode([name, wire.encode(position)])
    return base64.urlsafe_b64encode(bytes(16) + data).decode().rstrip("=")


@pytest.mark.parametrize(("path", "query", "cursor"), [
    ("rows", {"table": "item", "ref": "try"},
     _forged(("main", None), "rows", "shop", "item", "try", None, None, None)),
    ("diff", {"before": "try", "after": "try"}, _forged(("try", "main", 0), "diff", "shop", "try", "try", None)),
    ("changes", {"branch": "try"}, _forged((0, "main", 0), "changes", "shop", "try", None)),
    ("commits", {"branch": "try"}, _forged(2, "commits", "shop", "try", None, None)),
])  # fmt: skip
def test_a_cursor_that_a_client_wrote_is_refused(
    served: Served, path: str, query: dict[str, str], cursor: str
) -> None:
    answer = served.call("GET", f"/stores/shop/{path}", token="tries", cursor=cursor, **query)
    assert (answer.status, answer.json["type"]) == (400, "RefusedError")
    assert b"hidden" not in answer.body


def test_a_cursor_with_another_position_is_refused() -> None:
    name = cursors.listing("rows", "shop")
    cursor = cursors.write(name, ("main", 12))
    assert tuple(cursors.read(cursor, name)) == ("main", 12)
    data = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    changed = base64.urlsafe_b64encode(data.replace(b"12", b"13")).decode().rstrip("=")
    with pytest.raises(RefusedError, match="damaged"):
        cursors.read(changed, name)


def test_an_expression_in_place_of_a_reference_needs_all_branches(served: Served) -> None:
    for _ in range(8):  # it would be one branch when it is checked and another when it is run
        answer = served.call("POST", "/stores/shop/sql", token="tries", json={"sql": WHOLE_SPAN, "branch": "try"})
        assert (answer.status, answer.json["type"]) == (403, "ForbiddenError")
    assert served.call("POST", "/stores/shop/sql", json={"sql": WHOLE_SPAN, "branch": "try"}).status == 200


def test_sql_tags_only_branches_that_the_token_writes_to(served: Served) -> None:
    def tagged(statement: str) -> int:
        return served.call("POST", "/stores/shop/sql", token="tries", json={"sql": statement, "branch": "try"}).status

    assert tagged("CALL onto_tag('theirs', 'main')") == 403
    assert tagged("CALL onto_tag('ours', 'try')") == 200
    assert [one["name"] for one in served.call("GET", "/stores/shop/tags").json["tags"]] == ["ours"]


@pytest.mark.parametrize("depth", [900, 3000])
def test_values_that_are_nested_too_deeply_are_refused(served: Served, depth: int) -> None:
    deep = "[" * depth + "]" * depth
    for path, query in (("history", {"table": "item", "key": deep}), ("rows", {"table": "item", "filter": deep})):
        answer = served.call("GET", f"/stores/shop/{path}", **query)
        assert answer.status in (400, 422), answer.body
    body = f'{{"id": {depth}, "name": {deep}}}'.encode()
    answer = served.call("POST", "/stores/shop/rows", table="main.public.item", body=body, mode="insert",
                         headers={"content-type": "application/json"})  # fmt: skip
    assert answer.status in (200, 400, 422), answer.body


class Thing(Entity):
    """A thing that is stored."""

    id: Field[str] = Field(primary_key=True)


def test_a_plan_reads_no_commit_of_other_branches(tmp_path: Path) -> None:
    url = str(tmp_path / "typed.db")

    def put(id: str, branch: str) -> Any:
        with Session(url, entity_types=[Thing], branch=branch) as session:
            session.ensure(Thing(id=id))
        with Session(url, branch=branch) as session:
            return next(iter(session.commits())).id

    shared = put("1", "main")
    with Session(url) as session:
        session.branches.create("try")
    hidden, own = put("hidden", "main"), put("3", "try")
    with serving({"typed": url}, (TRIES,)) as served:
        def asked(as_of: Any) -> Answer:
            body = {"types": schemas_for([type_info(Thing)]), "plan": plan_wire.encode(Plan(Thing, as_of=True)),
                    "values": plan_wire.encode(Values(as_of=as_of)), "columns": [["id"]], "branch": "try"}
            return served.call("POST", "/stores/typed/session/run", token="tries", json=wire.encode(body))

        assert [asked(one).status for one in (shared, own)] == [200, 200]
        answer = asked(hidden)
        assert (answer.status, answer.json["type"]) == (403, "ForbiddenError")
        assert asked(str(hidden)).status == 400


def test_a_key_of_another_request_is_refused(served: Served) -> None:
    def inserted(id: int) -> Answer:
        return served.call("POST", "/stores/shop/sql", headers={"idempotency-key": "once"},
                           json={"sql": f"INSERT INTO item VALUES ({id}, 'x')"})  # fmt: skip

    assert [inserted(id).status for id in (21, 21, 22)] == [200, 200, 422]  # 22 is a body of the same length
    assert [one["id"] for one in _rows(served) if one["id"] in (21, 22)] == [21]


def _rows(served: Served) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = served.call("GET", "/stores/shop/rows", table="item").json["rows"]
    return found


def test_rows_are_written_by_the_name_that_they_are_read_by(served: Served) -> None:
    answer = served.call("POST", "/stores/shop/rows", table="item", body=b'{"id": 31, "name": "lamp"}',
                         headers={"content-type": "application/json"})  # fmt: skip
    assert answer.status == 200
    assert {"id": 31, "name": "lamp"} in _rows(served)


def test_a_position_of_any_length_is_one_that_is_not_there(served: Served) -> None:
    for digits in (18, 30, 5000):
        assert served.call("GET", "/stores/shop/changes", since="9" * digits).status in (404, 410)


def test_no_page_has_more_rows_than_the_limit(tmp_path: Path) -> None:
    url = str(tmp_path / "shop.db")
    with sql.open_database(url) as database:
        database.execute("CREATE TABLE item (id INT PRIMARY KEY)")
        database.execute("INSERT INTO item VALUES (1), (2), (3), (4), (5)")
        database.execute("INSERT INTO item VALUES (6)")
    with serving({"shop": url}, options=ServerOptions(Limits(rows=2))) as served:
        for path, items, query in (
            ("rows", "rows", {"table": "item"}), ("rows", "rows", {"table": "item", "order": "-id"}),
            ("commits", "commits", {}), ("diff", "changes", {"before": "main~2", "after": "main"}),
            ("changes", "changes", {"since": "1"}), ("commits/main~1/changes", "changes", {}),
        ):  # fmt: skip
            page = served.call("GET", f"/stores/shop/{path}", limit=1000, **query).json
            assert len(page[items]) == 2, path
            assert page["cursor"], path
        with ontolake.open(f"{served.url}/shop", token=served.tokens["reader"]) as shop:
            snapshot = shop.snapshot()
            assert snapshot.to_arrow("item", limit=5).column("id").to_pylist() == [1, 2, 3, 4, 5]
            assert snapshot.to_arrow("item", limit=50).num_rows == 6
            assert len(list(shop.commits())) == 3


def test_a_span_begins_and_ends_at_nothing_of_other_branches(served: Served) -> None:
    for path in ("commits", "changes", "span"):
        for since in ("main", "main@1", "nothing"):
            answer = served.call("GET", f"/stores/shop/{path}", token="tries", branch="try", since=since)
            assert (answer.status, answer.json["type"]) == (403, "ForbiddenError"), (path, since)
        assert served.call("GET", f"/stores/shop/{path}", token="tries", branch="try", since="try").status == 200
    for query in ({"until": "main"}, {"since": "0", "until": "main"}):
        assert served.call("GET", "/stores/shop/commits", token="tries", branch="try", **query).status == 403
    answer = served.call("GET", "/stores/shop/changes", token="tries", branch="try", headers={"last-event-id": "main"})
    assert answer.status == 403
