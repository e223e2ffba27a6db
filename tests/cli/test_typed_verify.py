"""`onto verify` on typed stores: what is whole passes, and each kind of damage is found and named."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest


def spoil(url: str, *statements: str) -> None:
    with sqlite3.connect(url) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        for statement in statements:
            db.execute(statement)
    db.close()


def damage(onto, shop) -> list[str]:
    done = onto("verify", shop.url, "--json")
    assert done.code == 5, done.out + done.err
    assert done.document["ok"] is False
    return [f"{one['where']}: {one['what']}" for one in done.document["damage"]]


def test_a_whole_store_passes(onto, shop) -> None:
    done = onto("verify", shop.url)
    assert (done.code, done.out) == (0, "nothing is damaged\n"), done.err
    assert onto("verify", *shop.at, "--json").document == {
        "url": shop.url, "ok": True, "kind": "typed", "damage": [], "dangling": []}  # fmt: skip


def test_relations_that_lead_nowhere_are_told_but_are_no_damage(onto, shop) -> None:
    with shop.session() as session:
        session.ensure(shop.types.Placed(left_key="nobody", right_key=1))
    done = onto("verify", shop.url, "--json")
    assert (done.code, done.document["ok"]) == (0, True)
    assert done.document["dangling"] == [{"type_name": "Placed", "side": "left", "rows": 1, "example": "nobody"}]
    assert "note: 1 Placed lead to a left end" in onto("verify", shop.url).out


V2 = "entity_Customer_v1"


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (f"UPDATE {V2} SET commit_id = 99 WHERE entity_key = 'c1'", "there is no commit 99"),
        (f"UPDATE {V2} SET schema_version_id = 7 WHERE entity_key = 'c1'", "not of version 1"),
        (f"UPDATE {V2} SET score = 'much' WHERE entity_key = 'c1'", "score: not of the type float: 'much'"),
        (f"UPDATE {V2} SET born = 'soon' WHERE entity_key = 'c1'", "born: it cannot be read"),
        (f"UPDATE {V2} SET tier = 'iron' WHERE entity_key = 'c1'", "tier: it cannot be read"),
        (f"UPDATE {V2} SET active = 7 WHERE entity_key = 'c1'", "active: it cannot be read"),
        (f"UPDATE {V2} SET tags = '[1' WHERE entity_key = 'c1'", "tags: it cannot be read"),
        (f"UPDATE {V2} SET tags = '[1]' WHERE entity_key = 'c1'", "tags: it cannot be read"),
        (f"UPDATE {V2} SET name = x'00' WHERE entity_key = 'c1'", "name: not of the type str"),
        ("UPDATE entity_Order_v1 SET total = 'ten'", "total: it cannot be read"),
        ("UPDATE entity_Order_v1 SET at = 'noon'", "at: it cannot be read"),
        (f"DELETE FROM {V2}_superseded", f"{V2}_superseded says None"),
        (f"UPDATE {V2}_superseded SET superseded_by = 9", f"{V2}_superseded says 9"),
        (f"INSERT INTO {V2}_superseded VALUES (999, 2)", "point to rows that are not there"),
        ("DELETE FROM commits WHERE id = 2", "there is no commit 2"),
        ("UPDATE commits SET metadata_json = '{' WHERE id = 1", "its metadata is not JSON"),
        ("UPDATE commits SET created_at = 'once' WHERE id = 1", "its time cannot be read"),
        ("UPDATE schema_versions SET schema_hash = 'x' WHERE type_name = 'Order'", "its hash is not x"),
        ("UPDATE schema_versions SET schema_json = '{}' WHERE type_name = 'Order'", "is not a schema of this type"),
        ("UPDATE schema_registry SET schema_json = '{}' WHERE type_name = 'Order'", "the registry says something else"),
        ("DELETE FROM schema_versions WHERE type_name = 'Order'", "it is registered, but has no version"),
        ("UPDATE type_layout_catalog SET is_current = 0 WHERE type_name = 'Order'", "but not the current one"),
        ("UPDATE type_layout_catalog SET activation_commit_id = 9 WHERE type_name = 'Order'", "activated by commit 9"),
        ("DELETE FROM type_layout_catalog WHERE type_name = 'Order'", "the table entity_Order_v1 is not in it"),
        ("DELETE FROM schema_registry WHERE type_name = 'Order'", "the type was dropped"),
        ("DROP TABLE entity_Order_v1", "its table entity_Order_v1 is missing"),
        ("ALTER TABLE entity_Order_v1 DROP COLUMN total", "it has no column total"),
    ],
)  # fmt: skip
def test_damage_is_found_and_named(onto, native, statement: str, words: str) -> None:
    spoil(native.url, statement)
    found = damage(onto, native)
    assert any(words in one for one in found), found


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE entity_history SET commit_id = 99 WHERE entity_key = 'c1'", "a commit that is not there"),
        ("UPDATE entity_history SET schema_version_id = 7 WHERE entity_key = 'c1'", "schema version that is not known"),
        ("UPDATE entity_history SET entity_type = 'Ghost' WHERE entity_key = 'c1'", "a type that has no schema"),
        ("UPDATE entity_history SET fields_json = '{' WHERE entity_key = 'c1'", "fields that are not JSON"),
        ("UPDATE entity_history SET fields_json = json_set(fields_json, '$.born', 'soon') WHERE entity_key = 'c1'",
         "born: it cannot be read"),
        ("UPDATE entity_history SET fields_json = json_remove(fields_json, '$.name') WHERE entity_key = 'c1'",
         "name: a value is missing"),
        ("DELETE FROM commits WHERE id = 1", "there is no commit 1"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("shop", ["native v1"], indirect=True)
def test_damage_of_version_1_is_found_and_named(onto, shop, statement: str, words: str) -> None:
    spoil(shop.url, statement)
    found = damage(onto, shop)
    assert any(words in one for one in found), found


def test_of_many_rows_with_the_same_damage_some_are_named_and_all_counted(onto, native) -> None:
    with native.session() as session:
        session.ensure(native.types.Customer(id=f"n{n}", name="x") for n in range(50))
    spoil(native.url, f"UPDATE {V2} SET born = 'soon' WHERE entity_key LIKE 'n%'")
    found = damage(onto, native)
    assert len(found) == 6
    assert "50 rows in all: born: it cannot be read" in found[-1]
    plain = onto("verify", native.url)
    assert plain.code == 5
    assert plain.out.count("DAMAGED ") == 6
    assert plain.out.splitlines()[-1] == "6 found; restore from a copy unless a line says otherwise"


def test_a_damaged_page_of_sqlite_is_found(onto, native) -> None:
    path = Path(native.url)
    data = bytearray(path.read_bytes())
    with sqlite3.connect(native.url) as db:
        (root,) = db.execute(f"SELECT rootpage FROM sqlite_schema WHERE name = '{V2}'").fetchone()
    start = (root - 1) * 4096
    data[start + 8 : start + 16] = b"\xff" * 8
    path.write_bytes(data)
    assert any(one.startswith("database: ") for one in damage(onto, native))


@pytest.mark.parametrize("shop", ["page file v2"], indirect=True)
def test_a_damaged_page_below_a_store_is_found(onto, shop) -> None:
    path = Path(shop.url.removeprefix("file://"))
    data = path.read_bytes()
    place = data.rindex(b"Bob\tthe second")
    path.write_bytes(data[:place] + b"B0B" + data[place + 3 :])
    done = onto("verify", shop.url, "--json")
    assert done.code == 5, done.out
    assert onto("query", "entities", "Customer", *shop.at, "--as-of", "1").code == 5


def test_rows_of_older_schemas_are_looked_at_too(onto, native, tmp_path: Path) -> None:
    types = tmp_path / "newer_types.py"
    types.write_text(Path(native.models).read_text().replace(
        "    count: Field[int]", '    more: Field[str] = Field(default="")\n    count: Field[int]'))  # fmt: skip
    assert onto("migrate", *native.at, "--models", f"{types}:Placed", "--force").code == 0
    assert onto("verify", native.url).code == 0
    spoil(native.url, "UPDATE relation_Placed_v1 SET count = 'three'")
    assert any("relation Placed, version 1: c1, 1 at commit 1: count: not of the type int" in one
               for one in damage(onto, native))  # fmt: skip


@pytest.mark.parametrize("shop", ["directory v2"], indirect=True)
def test_a_lost_or_damaged_object_is_found(onto, shop) -> None:
    folder = Path(shop.url.removeprefix("file://"))
    (file,) = folder.glob("commits/2-*/entities/Customer/*.parquet")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert damage(onto, shop)
    file.unlink()
    assert damage(onto, shop)
    file.write_bytes(whole)
    assert onto("verify", shop.url).code == 0
