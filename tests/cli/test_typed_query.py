"""`onto query`: what can be asked of a typed store from a shell, and in which forms the answer comes."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest


def keys(done) -> list:
    assert done.code == 0, done.err
    return [row["key"] for row in done.document["rows"]]


def test_entities_come_as_plain_lines_with_their_fields_and_commit(onto, shop) -> None:
    done = onto("query", "entities", "Customer", *shop.at, "--order-by", "id")
    assert done.code == 0, done.err
    title, first, second = (line.split("\t") for line in done.out.splitlines())
    assert set(title) == {"id", "name", "tier", "score", "active", "born", "tags", "extra", "commit"}
    row = dict(zip(title, first, strict=True))
    assert (row["id"], row["name"], row["tier"], row["active"], row["born"]) == ("c1", "Ada", "gold", "true", "-")
    assert json.loads(row["tags"]) == ["vip", "new"]
    assert json.loads(row["extra"]) == {"city": "Rome", "n": [1, 2]}
    assert dict(zip(title, second, strict=True))["commit"] == "2"


def test_json_has_key_fields_and_commit(onto, shop) -> None:
    done = onto("query", "relations", "Rated", *shop.at, "--json")
    assert done.document == {
        "type": "Rated", "kind": "relation",
        "rows": [{"key": ["c2", 1, "2024"], "commit_id": 2,
                  "fields": {"left_key": "c2", "right_key": 1, "year": "2024", "stars": 5}}],
    }  # fmt: skip
    order = onto("query", "entities", "Order", *shop.at, "--format", "json").document["rows"][0]["fields"]
    assert order == {"id": 1, "total": "10.50", "at": "2024-01-01T12:00:00.000000", "key": "AP8=", "the note": "first"}


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["tier=gold"], ["c1", "c2"]), (["tier != gold"], []), (["name=Ada"], ["c1"]), (['name="Ada"'], ["c1"]),
        (["score>=2.5"], ["c2"]), (["score<2.5"], ["c1"]), (["name~o"], ["c2"]), (["name !~ o"], ["c1"]),
        (["name startswith A"], ["c1"]), (["name endswith b"], ["c2"]), (["name contains d"], ["c1"]),
        (["id in c1,c3"], ["c1"]), (["id not in c1,c3"], ["c2"]), (["born is null"], ["c1"]),
        (["born is not null"], ["c2"]), (["active is true"], ["c1"]), (["active=false"], ["c2"]),
        (["born>1999-12-31"], ["c2"]), (["tags[]=vip"], ["c1"]), (["extra.city=Rome"], ["c1"]),
        (["extra.n[1]=2"], ["c1"]), (["extra.n[]>1"], ["c1"]), (["tier=gold", "score>1"], ["c2"]),
        (["tier in gold,silver", "id<=c1"], ["c1"]),
    ],
)  # fmt: skip
def test_filters(onto, native, filters: list[str], expected: list[str]) -> None:
    wheres = [part for one in filters for part in ("--where", one)]
    assert keys(onto("query", "entities", "Customer", *native.at, *wheres, "--order-by", "id", "--json")) == expected


def test_filters_mean_the_same_everywhere(onto, shop) -> None:
    for where, expected in [("tier=gold", 2), ("extra.city=Rome", 1), ("born is null", 1), ("name~o", 1)]:
        done = onto("query", "entities", "Customer", *shop.at, "-w", where, "--count")
        assert (done.code, done.out) == (0, f"{expected}\n"), where
    assert onto("query", "relations", "Placed", *shop.at, "-w", "left.tier=gold", "--count").out == "1\n"
    assert onto("query", "relations", "Placed", *shop.at, "-w", "right.total>11", "--count", "--json").document == {
        "type": "Placed", "count": 0}  # fmt: skip
    assert onto("query", "entities", "Order", *shop.at, "-w", '"the note"=first', "--count").out == "1\n"


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("nme=x", "did you mean name?"), ("", "does not begin with a field"), ("name", "is not a filter"),
        ("score=much", "score is a float"), ("born=soon", "born is a date"), ("active=maybe", "true or false"),
        ("active<true", "no order"), ("extra.city=null", "is null"), ("name is odd", "null, not null"),
        ("score~2", "not text"), ("name.x=1", "no path into it"), ("tier=iron", "iron"),
    ],
)  # fmt: skip
def test_a_filter_that_means_nothing_is_a_usage_error(onto, native, where: str, words: str) -> None:
    done = onto("query", "entities", "Customer", *native.at, "--where", where)
    assert (done.code, done.out) == (2, "")
    assert words in done.err


def test_order_limit_and_offset(onto, shop) -> None:
    ask = ("query", "entities", "Customer", *shop.at, "--json")
    assert keys(onto(*ask, "--order-by", "score:desc")) == ["c2", "c1"]
    assert keys(onto(*ask, "--order-by", "tier", "--order-by", "id:desc", "--limit", "1")) == ["c2"]
    assert keys(onto(*ask, "--order-by", "id", "--offset", "1")) == ["c2"]
    assert onto(*ask, "--order-by", "id:up").code == 2
    assert onto(*ask, "--limit", "-1").code == 2


def test_any_moment(onto, shop) -> None:
    ask = ("query", "entities", "Customer", *shop.at, "-w", "id=c2", "--json")
    assert onto(*ask, "--as-of", "1").document["rows"][0]["fields"]["name"] == "Bob\tthe second"
    assert keys(onto(*ask, "--as-of", "0")) == []
    states = onto(*ask, "--history").document["rows"]
    assert [(state["commit_id"], state["fields"]["tier"]) for state in states] == [(1, None), (2, "gold")]
    done = onto(*ask, "--as-of", "9")
    assert (done.code, done.out) == (5, "")
    assert done.error["type"] == "UnknownCommitError"


def test_a_tab_in_text_does_not_break_a_line(onto, native) -> None:
    done = onto("query", "entities", "Customer", *native.at, "--as-of", "1", "-w", "id=c2")
    assert "Bob\\tthe second" in done.out
    assert len({line.count("\t") for line in done.out.splitlines()}) == 1


def test_csv(onto, shop) -> None:
    done = onto("query", "entities", "Customer", *shop.at, "--format", "csv", "--as-of", "1", "--order-by", "id")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert [row["name"] for row in rows] == ["Ada", "Bob\tthe second"]
    assert [row["tier"] for row in rows] == ["gold", ""]
    assert json.loads(rows[0]["extra"]) == {"city": "Rome", "n": [1, 2]}


def test_arrow_and_output_to_a_file(onto, shop, tmp_path: Path) -> None:
    target = tmp_path / "orders.arrow"
    done = onto("query", "entities", "Order", *shop.at, "--format", "arrow", "--output", str(target))
    assert (done.code, done.out) == (0, "")
    table = pa.ipc.open_stream(target).read_all()
    assert table.column("id").to_pylist() == [1]
    assert table.column("at").type == pa.timestamp("us", tz="UTC")
    assert onto("query", "entities", "Order", *shop.at, "--json", "--format", "csv").code == 2
    text = tmp_path / "orders.csv"
    assert onto("query", "entities", "Order", *shop.at, "--format", "csv", "-o", str(text)).out == ""
    assert text.read_text().count("\n") == 2


def test_a_file_appears_only_when_it_is_complete(onto, native, tmp_path: Path) -> None:
    target = tmp_path / "rows.csv"
    target.write_text("before")
    assert onto("query", "entities", "Nothing", *native.at, "--format", "csv", "-o", str(target)).code == 2
    assert target.read_text() == "before"
    assert sys.stdout.writable()


def test_traversals(onto, shop) -> None:
    done = onto("query", "traverse", "Customer", "c1", *shop.at, "--via", "Placed", "--json")
    (path,) = done.document["paths"]
    assert [(one["type"], one["key"]) for one in path["entities"]] == [("Customer", "c1"), ("Order", 1)]
    assert [(one["type"], one["fields"]["count"]) for one in path["relations"]] == [("Placed", 3)]
    back = onto("query", "traverse", "Order", "1", *shop.at, "--via", "Placed", "--via", "Rated", "--json")
    assert back.document["paths"] == []
    there = onto("query", "traverse", "Customer", "c1", *shop.at, "--via", "Placed", "--via", "Rated:reverse")
    assert there.out.splitlines()[1].split("\t")[:5] == ["c1", "c1 1", "1", "c2 1 2024", "c2"]
    assert onto("query", "traverse", "Customer", "c1", *shop.at, "--via", "Placed", "-w", "total>99", "--count").out \
        == "0\n"  # fmt: skip
    assert onto("query", "traverse", "Customer", "c2", *shop.at, "--via", "Rated", "--as-of", "1", "--json"
                ).document["paths"] == []  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("Customer", "c9", "--via", "Placed"), 5, "there is no Customer 'c9'"),
        (("Order", "one", "--via", "Placed"), 2, "'one' cannot be one"),
        (("Customer", "c1", "--via", "Place"), 2, "did you mean Placed?"),
        (("Customer", "c1", "--via", "Customer"), 2, "a type of entities"),
        (("Customer", "c1", "--via", "Placed:up"), 2, "forward or in reverse"),
        (("Customer", "c1", "--via", "Placed:reverse"), 2, "cannot be taken reverse"),
        (("Customer", "c1"), 2, "--via"),
    ],
)
def test_a_traversal_that_leads_nowhere(onto, native, arguments: tuple[str, ...], code: int, words: str) -> None:
    done = onto("query", "traverse", *arguments, *native.at)
    assert (done.code, done.out) == (code, "")
    assert words in done.err


@pytest.mark.parametrize(
    ("command", "name", "words"),
    [("entities", "Custmer", "did you mean Customer?"), ("entities", "customer", "did you mean Customer?"),
     ("entities", "Placed", "a type of relations"), ("relations", "Customer", "a type of entities"),
     ("entities", "Xyzzy", "there are Customer, Order")],
)  # fmt: skip
def test_an_unknown_type_gets_the_nearest_name(onto, native, command: str, name: str, words: str) -> None:
    done = onto("query", command, name, *native.at)
    assert (done.code, done.out) == (2, "")
    assert words in done.err


def test_models_are_checked_against_the_store(onto, native, tmp_path: Path) -> None:
    assert onto("query", "entities", "Customer", *native.at, "--models", native.models, "--count").out == "2\n"
    other = tmp_path / "other_types.py"
    other.write_text(Path(native.models).read_text().replace("    name: Field[str]\n", "    nick: Field[str]\n"))
    done = onto("query", "entities", "Customer", *native.at, "--models", str(other), "--json")
    assert (done.code, done.error["type"]) == (3, "SchemaOutdatedError")
    assert "name removed; nick added" in done.error["message"]
