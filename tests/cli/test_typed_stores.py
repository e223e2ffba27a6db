"""Where commands find typed stores, how stores are started, and how it ends where none is."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from ontolake.ontology import open_repository

ASKING = [
    ("query", "entities", "Customer"), ("query", "relations", "Placed"), ("query", "traverse", "A", "b", "--via", "C"),
    ("commits",), ("commits", "list"), ("commits", "examine", "1"), ("schema", "export"), ("schema", "history", "A"),
    ("schema", "drop", "A"), ("schema", "drop", "A", "--token", "x"),
]  # fmt: skip
GENERIC = [("info",), ("log",), ("export",), ("verify",), ("gc",)]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONTOLAKE_STORAGE_URI", raising=False)


@pytest.mark.parametrize("engine", ["v1", "v2"])
@pytest.mark.parametrize("place", ["shop.db", "file://{}/pages.db", "sqlite+file://{}/pages", "file://{}/lake"])
def test_init_starts_a_store_once(onto, tmp_path: Path, engine: str, place: str) -> None:
    at = ("--storage-uri", place.format(tmp_path))
    done = onto("init", *at, "--engine-version", engine, "--json")
    assert done.code == 0, done.err
    assert done.document["engine_version"] == engine
    assert (done.document["types"], done.document["commit_id"]) == ([], None)
    again = onto("init", *at, "--json")
    assert (again.code, again.error["type"]) == (6, "AlreadyExists")
    found = onto("info", *at, "--json").document
    assert (found["model"], found["engine_version"], found["head"], found["types"]) == ("typed", engine, 0, [])
    assert onto("info", at[1], "--json").document == found


def test_init_has_the_latest_engine_by_default_and_knows_types_that_are_given(onto, models: Path) -> None:
    done = onto("init", "--models", str(models))
    assert done.code == 0
    assert "sqlite/v3" in done.out
    assert "commit 1 makes its types known: Customer, Order, Placed, Rated" in done.out
    assert onto("query", "entities", "Customer", "--count").out == "0\n"
    assert [one["metadata"] for one in onto("commits", "--json").document["commits"]] == [{"kind": "init"}]
    assert onto("verify").code == 0


def test_an_engine_that_does_not_exist_is_a_usage_error(onto) -> None:
    done = onto("init", "--engine-version", "v9")
    assert (done.code, done.out) == (2, "")
    assert not Path("onto.db").exists()


def test_the_store_is_onto_db_unless_something_is_named(onto, native, tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(native.url, "onto.db")
    count = ("query", "entities", "Customer", "--count")
    assert onto(*count).out == "2\n"
    Path("onto.db").unlink()
    assert onto(*count).code == 5
    monkeypatch.setenv("ONTOLAKE_STORAGE_URI", native.url)
    assert onto(*count).out == "2\n"
    assert onto("info", "--json").document["url"] == native.url
    assert onto(*count, "--db", "elsewhere.db").code == 5, "what is given goes before the environment"
    monkeypatch.delenv("ONTOLAKE_STORAGE_URI")
    assert onto(*count, "--db", native.url).out == "2\n"
    assert onto(*count, "--db", native.url, "--storage-uri", native.url).code == 2
    assert onto("info", native.url, "--db", native.url).code == 2
    shutil.copy(native.url, "a shop")
    assert onto(*count, "--db", "a shop").out == "2\n", "a file may be called anything"
    assert onto(*count, "--db", str(tmp_path / "a shop")).out == "2\n"
    assert onto(*count, "--db", "folder/").code == 2


@pytest.mark.parametrize("place", ["missing.db", "file://{}/missing.db", "file://{}/missing"])
def test_where_nothing_is_commands_say_so_and_make_nothing(onto, tmp_path: Path, place: str) -> None:
    for command in ASKING + GENERIC:
        done = onto(*command, "--storage-uri", place.format(tmp_path), "--json")
        assert (done.code, done.out) == (5, ""), (command, done.err)
        assert done.error["type"] in ("UninitializedStorageError", "NotFound")
        assert list(tmp_path.iterdir()) == [], command


def test_an_empty_file_holds_no_store_and_stays_empty(onto, tmp_path: Path) -> None:
    empty = tmp_path / "empty.db"
    empty.touch()
    assert onto("query", "entities", "A", "--db", str(empty)).code == 5
    assert onto("commits", "--db", str(empty)).code == 5
    assert empty.stat().st_size == 0


def test_what_is_no_typed_store_is_refused_and_left_alone(onto, tmp_path: Path) -> None:
    diary = tmp_path / "diary.db"
    diary.write_text("Dear diary, " * 100)
    for command in ASKING:
        done = onto(*command, "--db", str(diary), "--json")
        assert (done.code, done.out, done.error["type"]) == (5, "", "StorageBackendError")
    assert diary.read_text() == "Dear diary, " * 100
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE recipe (name)")
    done = onto("query", "entities", "A", "--db", str(other))
    assert done.code == 5
    assert "'recipe'" in done.err


def test_a_store_of_a_newer_engine_is_refused(onto, native) -> None:
    with sqlite3.connect(native.url) as db:
        db.execute("UPDATE storage_meta SET value = 'v9' WHERE key = 'engine_version'")
    for command in (*ASKING, ("export",), ("info",), ("verify",)):
        done = onto(*command, *native.at, "--json")
        assert (done.code, done.out, done.error["type"]) == (5, "", "StorageBackendError"), command
        assert "newer version" in done.error["hint"]


def test_a_damaged_file_ends_with_5_and_never_with_a_traceback(onto, native, tmp_path: Path) -> None:
    path = Path(native.url)
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"kind": "commit"}\n')
    whole = path.read_bytes()
    for spoil in (lambda data: data[:4096], lambda data: data[:100] + b"\xff" * (len(data) - 100),
                  lambda data: data[:4096] + b"\x7f" * (len(data) - 4096)):  # fmt: skip
        path.write_bytes(spoil(whole))
        for command in (("query", "entities", "Customer"), ("commits",), ("export",), ("verify",), ("info",),
                        ("migrate", "--models", native.models), ("import", str(lines)), ("init",)):  # fmt: skip
            done = onto(*command, *native.at)
            assert done.code == 5, (command, done)
            assert "this should not have happened" not in done.err


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("nowhere.py", "there is no file"), ("no_such_module_at_all", "cannot import no_such_module_at_all"),
        ("broken.py", "ZeroDivisionError"), ("empty.py", "no entity or relation types"), ("json", "no entity"),
        ("shop_types.py:Custmer", "has no type 'Custmer'"), ("shop_types.py:Tier", "has no type 'Tier'"),
    ],
)
def test_models_that_cannot_be_had_are_a_usage_error(onto, native, tmp_path: Path, given: str, words: str) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "lines.jsonl").write_text('{"kind": "commit"}\n')
    for command in (("migrate",), ("query", "entities", "Customer"), ("import", str(tmp_path / "lines.jsonl"))):
        done = onto(*command, *native.at, "--models", given, "--json")
        assert (done.code, done.out, done.error["type"]) == (2, "", "ModelsError")
        assert words in done.error["message"]


def test_models_may_be_a_module_or_names_of_one(onto, native, tmp_path: Path) -> None:
    count = ("query", "entities", "Customer", *native.at, "--count", "--models")
    assert onto(*count, "shop_types").out == "2\n"
    assert onto(*count, "shop_types.py:Placed").out == "2\n"
    assert onto(*count, f"{native.models}").out == "2\n"
    bad = tmp_path / "keyless.py"
    bad.write_text("from ontolake.model import Entity, Field\nclass Keyless(Entity):\n    a: Field[int]\n")
    done = onto(*count, str(bad), "--json")
    assert (done.code, done.error["type"]) == (3, "SchemaValidationError")


def test_info_tells_types_rows_and_what_was_dropped(onto, shop) -> None:
    facts = onto("info", shop.url, "--json").document
    assert (facts["engine_version"], facts["head"], facts["dropped"]) == (shop.engine, 2, [])
    assert [(one["type_name"], one["type_kind"], one["rows"], one["schema_version_id"]) for one in facts["types"]] == [
        ("Customer", "entity", 2, 1), ("Order", "entity", 1, 1), ("Placed", "relation", 1, 1),
        ("Rated", "relation", 1, 1)]  # fmt: skip
    repository = open_repository(shop.url)
    repository.drop_type("relation", "Rated")
    repository.close()
    plain = onto("info", shop.url)
    assert "Rated" in plain.out.split("type\tkind")[0]
    assert "Customer\tentity\t1\t2" in plain.out
