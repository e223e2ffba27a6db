"""`onto export` and `onto import`: rows go out and come back as they were, all or none."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import pty
import string
import subprocess
import sys
import time
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from marking import examples

from ontolake.cli import main
from ontolake.model import Entity, Field, Relation
from ontolake.ontology import Session, open_repository


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def rows(text: str) -> list[dict[str, Any]]:
    """The rows of an export without their commits, which are the store's own."""
    found = [line for line in lines(text) if line["kind"] != "schema"]
    return [{name: value for name, value in line.items() if name != "commit_id"} for line in found]


def line(kind: str = "entity", type: str = "Customer", **fields: Any) -> str:
    return json.dumps({"kind": kind, "type": type, "fields": fields})


def write(path: Path, *content: str) -> str:
    path.write_text("".join(f"{one}\n" for one in content))
    return str(path)


CUSTOMER = {"name": "Zoe", "tier": None, "score": 1.0, "active": True, "born": None, "tags": [], "extra": None}


# out


def test_an_export_has_schemas_and_then_a_line_for_each_row(onto, shop) -> None:
    done = onto("export", shop.url)
    assert done.code == 0, done.err
    found = lines(done.out)
    assert [one["kind"] for one in found] == ["schema"] * 4 + ["entity"] * 3 + ["relation"] * 2
    assert [one["schema"]["name"] for one in found[:4]] == ["Customer", "Order", "Placed", "Rated"]
    assert [(one["type"], one["key"], one["commit_id"]) for one in found[4:]] == [
        ("Customer", "c1", 1), ("Customer", "c2", 2), ("Order", 1, 1), ("Placed", ["c1", 1], 1),
        ("Rated", ["c2", 1, "2024"], 2)]  # fmt: skip
    assert found[6]["fields"] == {"id": 1, "total": "10.50", "at": "2024-01-01T12:00:00.000000", "key": "AP8=",
                                  "the note": "first"}  # fmt: skip
    assert onto("export", *shop.at).out == done.out


def test_an_export_of_the_past_and_of_some_types(onto, shop) -> None:
    past = rows(onto("export", shop.url, "--as-of", "1", "--type", "Customer").out)
    assert [row["fields"]["name"] for row in past] == ["Ada", "Bob\tthe second"]
    assert rows(onto("export", shop.url, "--as-of", "1", "--type", "Rated").out) == []
    assert onto("export", shop.url, "--as-of", "3").code == 5
    assert onto("export", shop.url, "--type", "Custmer").code == 2


def test_an_export_to_a_file(onto, shop, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    done = onto("export", shop.url, "-o", str(target), "--json")
    assert done.document == {"url": shop.url, "output": str(target), "types": ["Customer", "Order", "Placed", "Rated"],
                             "rows": 5, "events": 0}  # fmt: skip
    assert target.read_text() == onto("export", shop.url).out


def test_a_file_that_cannot_be_written_is_told_by_its_name(onto, native, tmp_path: Path) -> None:
    target = str(tmp_path / "no" / "such" / "folder.jsonl")
    done = onto("export", native.url, "-o", target)
    assert (done.code, done.out, len(done.err.splitlines())) == (5, "", 2)
    assert f"error: {target!r} cannot be written: No such file or directory\n" in done.err


def test_an_export_as_parquet(onto, shop, tmp_path: Path) -> None:
    target = tmp_path / "parquet"
    assert onto("export", shop.url, "--format", "parquet").code == 2
    done = onto("export", shop.url, "--format", "parquet", "-o", str(target))
    assert done.code == 0, done.err
    customers = pq.read_table(target / "entity" / "Customer.parquet")
    assert customers.column("id").to_pylist() == ["c1", "c2"]
    assert customers.column("tier").to_pylist() == ["gold", "gold"]
    assert pq.read_table(target / "relation" / "Rated.parquet").num_rows == 1
    assert json.loads((target / "schemas.json").read_text())["commit_id"] == 2
    assert onto("export", shop.url, "--format", "parquet", "-o", str(target)).code == 6


# in


@pytest.mark.parametrize("place", ["native v1", "native v2", "page file v2", "directory v2"])
def test_an_export_can_be_imported_where_its_types_are_not_known(onto, native, tmp_path: Path, place: str) -> None:
    where, engine = place.rsplit(" ", 1)
    url = {"native": f"{tmp_path}/new.db", "page file": f"file://{tmp_path}/new.db", "directory": f"file://{tmp_path}/new"}
    at = ("--storage-uri", url[where])
    dump = tmp_path / "dump.jsonl"
    assert onto("export", native.url, "-o", str(dump)).code == 0
    assert onto("import", str(dump), *at).code == 5, "no store is made by an import"
    assert onto("init", *at, "--engine-version", engine).code == 0
    tried = onto("import", str(dump), *at, "--dry-run", "--json").document
    assert (tried["would_import"]["inserted"], tried["token"]) == (5, None)
    assert onto("commits", *at, "--json").document["commits"] == []
    done = onto("import", str(dump), *at, "--json").document
    assert (done["commit_id"], done["inserted"], done["replaced"], done["unchanged"]) == (1, 5, 0, 0)
    assert rows(onto("export", *at).out) == rows(dump.read_text())
    again = onto("import", str(dump), *at, "--json").document
    assert (again["commit_id"], again["inserted"], again["unchanged"]) == (None, 0, 5)
    assert onto("commits", *at, "--json").document["commits"][0]["metadata"] == {
        "kind": "import", "source": ["dump.jsonl"]}  # fmt: skip
    assert onto("verify", *at).code == 0


def test_every_bad_line_is_reported_and_nothing_is_imported(onto, shop, tmp_path: Path) -> None:
    good = line(id="c9", **CUSTOMER)
    bad = [
        ("nonsense", "not JSON"),
        ("[1]", "object"),
        ('{"kind": "entity", "type": "Customer", "feld": {}}', "feld"),
        ('{"kind": "thing", "type": "Customer", "fields": {}}', "'thing'"),
        ('{"kind": "entity", "fields": {}}', "names no type"),
        (line(type="Custmer"), "did you mean Customer?"),
        (line(type="Placed", left_key="c1", right_key=1, count=1), "a type of relations"),
        (line(id="c8", name="Zoe"), "score: Field required"),
        (line(id="c8", **{**CUSTOMER, "score": "much"}), "Customer.score"),
        (line(id="c8", **{**CUSTOMER, "name": 7}), "Customer.name"),
        (line(id="c8", **{**CUSTOMER, "tier": "iron"}), "tier"),
        (line(id="c8", **{**CUSTOMER, "born": "soon"}), "born"),
        (line(id="c8", **CUSTOMER, more=1), "more"),
        (line(id="", **CUSTOMER), "must not be empty"),
        (line(id="c9", **CUSTOMER), "line 1"),
        (json.dumps({"kind": "entity", "type": "Customer", "key": "c7", "fields": {"id": "c8", **CUSTOMER}}), "'c7'"),
        (line(type="Order", id=2**63, total="1", at="2024-01-01T00:00:00", key="", **{"the note": ""}), "64 bits"),
        (line(type="Order", id=5, total="NaN", at="2024-01-01T00:00:00", key="", **{"the note": ""}), "total"),
        (line(type="Order", id=5, total="1", at="2024-01-01T00:00:00", key="?", **{"the note": ""}), "base64"),
        ('{"kind": "entity", "type": "Order", "fields": 3}', "Order"),
        ('{"kind": "schema", "schema": 3}', "not a schema"),
        ('{"kind": "schema", "schema": {"kind": "entity", "name": "Customer", "keys": ["id"], "fields": '
         '{"id": {"kind": "primitive", "name": "str"}}}}', "another schema"),
        ('{"kind": "schema", "schema": {"kind": "entity", "name": "New", "keys": ["id"], "fields": '
         '{"id": {"kind": "primitive", "name": "quark"}}}}', "New"),
    ]  # fmt: skip
    file = write(tmp_path / "bad.jsonl", good, "", *(text for text, _ in bad))
    done = onto("import", file, *shop.at, "--json")
    assert done.code == 3
    told = done.document["bad_lines"]
    assert [one["line"] for one in told] == list(range(3, 3 + len(bad)))
    for one, (text, words) in zip(told, bad, strict=True):
        assert words in one["reason"], (text, one["reason"])
        assert one["file"] == file
    plain = onto("import", file, *shop.at)
    assert (plain.code, plain.out) == (3, "")
    assert plain.err.splitlines()[0].startswith(f"{file}:3: this is not JSON")
    assert plain.err.splitlines()[-1] == f"error: {len(bad)} of {len(bad) + 1} lines are bad; nothing was imported"
    assert onto("commits", *shop.at, "--json", "--limit", "1").document["commits"][0]["id"] == 2


def test_what_differs_is_a_conflict_unless_one_side_is_chosen(onto, shop, tmp_path: Path) -> None:
    changed = {**rows(onto("export", shop.url, "--type", "Customer").out)[0]["fields"], "name": "Eva"}
    file = write(tmp_path / "in.jsonl", line(**changed), line(id="c9", **CUSTOMER))

    def names() -> dict[str, str]:
        return {row["key"]: row["fields"]["name"] for row in rows(onto("export", shop.url, "--type", "Customer").out)}

    for options in ((), ("--dry-run",), ("--on-conflict", "fail")):
        done = onto("import", file, *shop.at, *options, "--json")
        assert (done.code, done.out, done.error["type"]) == (6, "", "ImportConflictError")
        assert "Customer 'c1'" in done.error["message"]
    assert names() == {"c1": "Ada", "c2": "Bob"}
    skipped = onto("import", file, *shop.at, "--on-conflict", "skip", "--json").document
    assert (skipped["inserted"], skipped["skipped"], skipped["commit_id"]) == (1, 1, 3)
    assert names() == {"c1": "Ada", "c2": "Bob", "c9": "Zoe"}
    replace = ("import", file, *shop.at, "--on-conflict", "replace")
    preview = onto(*replace, "--json").document
    assert (preview["would_import"]["replaced"], preview["would_import"]["unchanged"]) == (1, 1)
    assert names()["c1"] == "Ada", "a preview changes nothing"
    assert f"--token {preview['token']}" in onto(*replace).out
    assert onto(*replace, "--token", "wrong").code == 7
    write(tmp_path / "in.jsonl", line(**{**changed, "name": "Eve"}), line(id="c9", **CUSTOMER))
    assert onto(*replace, "--token", preview["token"]).code == 7, "the file has changed since"
    write(tmp_path / "in.jsonl", line(**changed), line(id="c9", **CUSTOMER))
    done = onto(*replace, "--token", preview["token"], "--json").document
    assert (done["replaced"], done["commit_id"]) == (1, 4)
    assert names()["c1"] == "Eva"
    assert onto(*replace, "--token", preview["token"]).code == 7, "the store has changed since"


def test_of_lines_with_one_key_the_policy_chooses(onto, native, tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", line(id="c9", **CUSTOMER), line(id="c9", **{**CUSTOMER, "name": "Zac"}))
    assert onto("import", file, *native.at).code == 3
    assert onto("import", file, *native.at, "--on-conflict", "skip").code == 0
    show = ("query", "entities", "Customer", *native.at, "-w", "id=c9", "--json")
    assert onto(*show).document["rows"][0]["fields"]["name"] == "Zoe"
    replace = ("import", file, *native.at, "--on-conflict", "replace")
    assert onto(*replace, "--token", onto(*replace, "--json").document["token"]).code == 0
    assert onto(*show).document["rows"][0]["fields"]["name"] == "Zac"


def test_models_give_defaults_validators_and_types_that_the_store_does_not_have(onto, native, tmp_path: Path) -> None:
    types = tmp_path / "visit_types.py"
    types.write_text(
        "from shop_types import Customer\n"
        "from ontolake.model import Entity, Field\n"
        "class Visit(Entity):\n"
        "    id: Field[int] = Field(primary_key=True, ge=1)\n"
        "    pages: Field[int] = Field(default=1)\n")  # fmt: skip
    file = write(tmp_path / "in.jsonl", line(type="Visit", id=1), line(id="c9", name="Zoe"))
    assert onto("import", file, *native.at).code == 3
    done = onto("import", file, *native.at, "--models", str(types), "--json")
    assert done.code == 0, done.err + done.out
    assert done.document["inserted"] == 2
    (visit,) = onto("query", "entities", "Visit", *native.at, "--json").document["rows"]
    assert visit["fields"] == {"id": 1, "pages": 1}
    bad = write(tmp_path / "bad.jsonl", line(type="Visit", id=0))
    assert "greater than or equal to 1" in onto("import", bad, *native.at, "--models", str(types)).err


def test_endpoints_are_checked_when_asked(onto, shop, tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", line("relation", "Placed", left_key="c1", right_key=77, count=1))
    done = onto("import", file, *shop.at, "--check-endpoints", "--json")
    assert (done.code, done.error["type"]) == (3, "DanglingRelationError")
    assert "no Order 77" in done.error["message"]
    assert onto("import", file, *shop.at).code == 0


def test_standard_input_and_files_that_are_not_there(onto, native, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
                                                     ) -> None:
    text = line(id="c9", **CUSTOMER).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert onto("import", "-", *native.at).code == 0
    for file in (str(tmp_path / "missing.jsonl"), str(tmp_path)):
        done = onto("import", file, *native.at)
        assert (done.code, done.out) == (2, "")
    assert onto("import", *native.at).code == 2


@pytest.mark.slow
def test_an_import_is_one_commit_or_none_when_another_writer_holds_the_lock(onto, native, tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", line(id="c9", **CUSTOMER))
    repository = open_repository(native.url)
    repository.acquire_lease("somebody else")
    try:
        done = onto("import", file, *native.at, "--json")
        assert (done.code, done.error["type"]) == (6, "LockContentionError")
    finally:
        repository.release_lease("somebody else")
        repository.close()
    assert onto("query", "entities", "Customer", *native.at, "--count").out == "2\n"


# everything comes back as it was

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
KEYS = st.text(string.ascii_letters + "äß漢🎈/ \"'", min_size=1, max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=5)  # fmt: skip
MOMENTS = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=st.sampled_from(
    [None, UTC, timezone(timedelta(hours=5, minutes=30))]))  # fmt: skip


class Everything(Entity):
    id: Field[str] = Field(primary_key=True)
    text: Field[str | None]
    number: Field[int]
    real: Field[float]
    truth: Field[bool | None]
    moment: Field[datetime]
    day: Field[date | None]
    data: Field[bytes]
    money: Field[Decimal]
    uuid: Field[UUID]
    anything: Field[Any] = Field(name="some json")
    reals: Field[list[float]]
    moments: Field[dict[str, datetime]]


class Linked(Relation[Everything, Everything]):
    instance: Field[str] = Field(instance_key=True)
    weight: Field[float]


OBJECTS = st.builds(
    Everything, id=KEYS, text=st.none() | TEXT, number=st.integers(-(2**63), 2**63 - 1), real=st.floats(),
    truth=st.none() | st.booleans(), moment=MOMENTS, day=st.none() | st.dates(), data=st.binary(max_size=8),
    money=st.decimals(allow_nan=False, allow_infinity=False), uuid=st.uuids(), anything=JSON,
    reals=st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=3),
    moments=st.dictionaries(TEXT, st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29)), max_size=2),
)  # fmt: skip
LINKS = st.builds(Linked, left_key=KEYS, right_key=KEYS, instance=KEYS, weight=st.floats())


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["v2", "v1"])
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(objects=st.lists(OBJECTS, max_size=4), links=st.lists(LINKS, max_size=3))
def test_whatever_is_stored_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, capfd: pytest.CaptureFixture[str], engine: str, objects: list[Any],
    links: list[Any],
) -> None:
    folder = tmp_path_factory.mktemp("round")
    first, second, dump = f"{folder}/first.db", f"{folder}/second.db", f"{folder}/dump.jsonl"
    types: Any = {"entity_types": [Everything], "relation_types": [Linked]}
    with Session(first, **types, engine_version="v2") as session:
        session.ensure([*objects, *links])
    if not objects and not links:
        return
    assert main(["export", first, "-o", dump]) == 0
    assert main(["init", "--db", second, "--engine-version", engine]) == 0
    assert main(["import", dump, "--db", second]) == 0, capfd.readouterr()
    with Session(first, **types) as one, Session(second, **types) as two:
        for cls in (Everything, Linked):
            was, now = ([row.model_dump() for row in session.query()._start(cls, cls.__ontolake_kind__).collect()]
                        for session in (one, two))  # fmt: skip
            assert sorted(map(shown, was)) == sorted(map(shown, now))
    assert main(["import", dump, "--db", first]) == 0, capfd.readouterr()
    with Session(first, **types) as session:
        assert len(session.list_commits()) == 1, "what is there already is no change"
    assert main(["verify", second]) == 0, capfd.readouterr()


def shown(row: dict[str, Any]) -> str:
    """A row as text that tells everything apart, and takes one NaN for another."""
    return repr({name: "NaN" if isinstance(value, float) and math.isnan(value) else value
                 for name, value in sorted(row.items())})


def test_nan_and_infinities_are_written_as_python_writes_them(onto, native, tmp_path: Path) -> None:
    with native.session() as session:
        for number in ("nan", "inf", "-inf"):
            session.ensure(native.types.Customer(id=number, name="x", score=float(number)))
    text = onto("export", native.url, "--type", "Customer").out
    assert '"score":NaN' in text
    assert '"score":Infinity' in text
    assert '"score":-Infinity' in text
    file = write(tmp_path / "in.jsonl", *text.splitlines())
    assert onto("import", file, *native.at, "--json").document["commit_id"] is None


@pytest.mark.slow
def test_a_hundred_thousand_lines_take_seconds(onto, native, tmp_path: Path) -> None:
    with (tmp_path / "many.jsonl").open("w") as file:
        file.writelines(line(id=f"n{n}", **CUSTOMER) + "\n" for n in range(100_000))
    began = time.process_time()
    done = onto("import", str(tmp_path / "many.jsonl"), *native.at, "--json")
    assert done.document["inserted"] == 100_000
    assert time.process_time() - began < 20, "about three seconds of a quick machine"


@pytest.mark.slow
def test_an_import_that_is_killed_at_any_step_is_there_as_a_whole_or_not_at_all(onto, native, tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", *(line(id=f"n{n}", **CUSTOMER) for n in range(20)),
                 line("relation", "Placed", left_key="n1", right_key=1, count=1))
    outcomes = []
    for step in range(20):
        before = int(onto("query", "entities", "Customer", *native.at, "--count").out)
        code = ("import sys; from ontolake import faults; from ontolake.cli import main\n"
                f"with faults.arm(faults.At({step}, faults.kill)): sys.exit(main(sys.argv[1:]))")
        done = subprocess.run([sys.executable, "-c", code, "import", file, *native.at, "--json"], capture_output=True,
                              text=True, check=False)  # fmt: skip
        after = int(onto("query", "entities", "Customer", *native.at, "--count").out)
        assert after - before in (0, 20)
        assert onto("verify", native.url).code == 0
        outcomes.append((done.returncode, after - before))
        if after == 22:
            break
    assert outcomes[0] == (-9, 0), "there is a step before anything is durable"
    assert outcomes[-1] == (-9, 20), "there is a step between what is durable and what is acknowledged"


@pytest.mark.slow
def test_a_terminal_sees_how_far_an_import_is(native, tmp_path: Path) -> None:
    file = write(tmp_path / "many.jsonl", *(line(id=f"n{n}", **CUSTOMER) for n in range(12_000)))
    leader, follower = pty.openpty()
    with subprocess.Popen([Path(sys.executable).parent / "onto", "import", file, *native.at], stdin=follower,
                          stdout=follower, stderr=follower, env={**os.environ, "TERM": "xterm", "COLUMNS": "100"}):
        os.close(follower)
        seen = b""
        with contextlib.suppress(OSError):  # the other side has gone
            while piece := os.read(leader, 65536):
                seen += piece
    os.close(leader)
    assert "━" in seen.decode()
    assert b"imported as commit 3" in seen
