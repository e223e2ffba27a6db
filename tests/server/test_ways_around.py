"""Ways around the branches of a token: cursors that a client writes itself, expressions that change their value between
the check and the run, tags on branches of others; and values that are nested without end."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from serving import Served, serving

from ontolake import sql
from ontolake.history import wire
from ontolake.server import cursors
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
    body = f'{{"id": 5, "name": {deep}}}'.encode()
    answer = served.call("POST", "/stores/shop/rows", table="main.public.item", body=body, mode="insert",
                         headers={"content-type": "application/json"})  # fmt: skip
    assert answer.status in (200, 400, 422), answer.body
