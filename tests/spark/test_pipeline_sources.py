"""Sources of pipelines: several files, rows far down, columns that change their type, files that are no files."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ontolake.model import Entity, Field
from ontolake.ontology import Session
from ontolake.spark import ExpectationError, Pipeline, PipelineError, SourceError
from ontolake.spark.pipeline import stage
from ontolake.spark.pipeline.sources import Source

from .deliveries import Bought, Goods, Person, people, shop, write

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.slow]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def only_people(folder: Path) -> Pipeline:
    made = Pipeline("people", types=[Person], folder=folder, max_rejected=0.9)
    made.load(Person, made.csv("people", "people"), columns={"name": "trim(called)"})
    return made


@pytest.mark.parametrize("small", [stage.SMALL, -1])
def test_lines_are_right_in_several_files_and_far_down_and_the_last_row_of_a_key_counts(
    spark: SparkSession, tmp_path: Path, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in files that are read in many pieces, with blank lines, and repeats that are in different files."""
    monkeypatch.setattr(stage, "SMALL", small)
    folder = tmp_path / "people"
    folder.mkdir()
    for name, first in (("a", 0), ("b", 150)):
        lines = ["id,called,visits,shoe", ""]
        for number in range(first, first + 200):
            wrong = "x" if number in (3, 140, 170, 340) else str(number)
            lines.append(f"p{number},Name of {name},{wrong},42")
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "700")
    try:
        report = only_people(folder.parent).run(f"{tmp_path}/shop.db", spark=spark)
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", str(before))
    rows = pq.read_table(str(report.quarantine)).to_pylist()
    told = {(Path(row["file"]).name, row["line"]): row for row in rows}
    wrong = {place for place, row in told.items() if "visits: 'x'" in row["reason"]}
    assert wrong == {("a.csv", 6), ("a.csv", 143), ("a.csv", 173), ("b.csv", 23), ("b.csv", 193)}
    repeated = {place for place, row in told.items() if "more than once" in row["reason"]}
    assert repeated == {("a.csv", line) for line in range(153, 203) if line != 173}
    assert told["a.csv", 160]["raw"] == "p157,Name of a,157,42"
    assert len(rows) == len(told) == 54
    assert report.sources["people"]["unused"] == ["shoe"]
    found = people(f"{tmp_path}/shop.db")
    assert len(found) == 346
    assert found["p160"].name == "Name of b"


def test_a_column_that_changes_its_type_half_way_is_told_with_its_file(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "goods"
    folder.mkdir()
    pq.write_table(pa.table({"sku": ["s1"], "price": [1.5]}), folder / "a.parquet")
    pq.write_table(pa.table({"sku": ["s2"], "price": ["2.5"]}), folder / "b.parquet")
    made = Pipeline("goods", types=[Goods], folder=tmp_path)
    made.load(Goods, made.parquet("goods", "goods"))
    with pytest.raises(SourceError, match=r"source goods: cannot be read to its end: .*goods/[ab]\.parquet"):
        made.run(f"{tmp_path}/shop.db", spark=spark)
    (folder / "b.parquet").write_bytes(b"this is not Parquet, though its name says so")
    with pytest.raises(SourceError, match=r"goods/b\.parquet"):
        made.run(f"{tmp_path}/shop.db", spark=spark)
    (folder / "b.parquet").unlink()
    strict = Pipeline("strict", types=[Goods], folder=tmp_path)
    strict.load(Goods, strict.parquet("goods", "goods"), columns={"price": "cast(sku AS double)"})
    with pytest.raises(SourceError, match="what is loaded as Goods cannot be worked out") as caught:
        strict.run(f"{tmp_path}/shop.db", spark=spark)
    assert "try_cast" in str(caught.value.hint)
    assert made.run(f"{tmp_path}/shop.db", spark=spark).commit == 1


class Book(Entity):
    isbn: Field[str] = Field(primary_key=True)
    title: Field[str | None] = Field(default=None, name="t")
    pages: Field[int | None] = Field(default=None, name="p`n")


@pytest.mark.parametrize("early", ["title", "t", "isbn"])
def test_json_may_call_a_field_by_its_own_name_or_its_stored_one(
    spark: SparkSession, tmp_path: Path, early: str
) -> None:
    """In the first lines, and where it comes first far behind them."""
    lines = [{"isbn": "first", early: "first"}, *[{"isbn": f"b{n}"} for n in range(1000)],
             {"isbn": "last", "t" if early == "t" else "title": "a title", "p`n": 7}]  # fmt: skip
    (tmp_path / "books.jsonl").write_text("\n".join(map(json.dumps, lines)))
    made = Pipeline("books", types=[Book], folder=tmp_path)
    made.load(Book, made.json("books", "books.jsonl"), where="isbn IN ('first', 'last')")
    made.run(f"{tmp_path}/shop.db", spark=spark)
    with Session(f"{tmp_path}/shop.db", entity_types=[Book]) as session:
        found = {one.isbn: (one.title, one.pages) for one in session.query().entities(Book).collect()}
    assert found == {"first": (None if early == "isbn" else "first", None), "last": ("a title", 7)}


def rows_of(source: Source, spark: SparkSession, folder: Path, *columns: str) -> list[tuple[str | None, ...]]:
    found = source.read(spark, folder, {}).select(*columns)
    return sorted((tuple(row) for row in found.collect()), key=str)


def test_the_files_of_a_source_have_one_header(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("sku,price,price,\ns1,1,2,x\n")
    (tmp_path / "b.csv").write_text('# new\n\n"sku","price",price,\ns2,3,4,y\n# end\n')
    made = Pipeline("goods", types=[Goods], folder=tmp_path)
    wanted = [("s1", "1", "2", "x"), ("s2", "3", "4", "y")]
    alike = made.csv("alike", "[ab].csv", comment="#")
    assert rows_of(alike, spark, tmp_path, "sku", "price1", "price2", "_c3") == wanted
    named = made.csv("named", "[ab].csv", comment="#", columns=["a", "b", "c", "d"])
    assert rows_of(named, spark, tmp_path, "a", "b", "c", "d") == wanted
    (tmp_path / "c.csv").write_text("price,sku,price,\n5,s3,6,z\n")
    with pytest.raises(SourceError, match=r"the header of file:.*c\.csv is 'price,sku,price,', and that of .*a\.csv"):
        made.csv("other", "[ac].csv").read(spark, tmp_path, {})
    (tmp_path / "empty.csv").write_text("\n")
    with pytest.raises(SourceError, match="not even a header"):
        made.csv("empty", "empty.csv").read(spark, tmp_path, {})


def test_text_is_read_in_its_encoding_and_never_guessed(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "goods.csv").write_bytes("sku,price\nCafé 5 €,1\nplain,2\n".encode("windows-1252"))
    made = Pipeline("goods", types=[Goods], folder=tmp_path)
    known = made.csv("known", "goods.csv", encoding="windows-1252")
    assert rows_of(known, spark, tmp_path, "sku", "_malformed") == [("Café 5 €", None), ("plain", None)]
    unknown = rows_of(made.csv("unknown", "goods.csv"), spark, tmp_path, "_raw", "_malformed")
    assert unknown[1] == ("plain,2", None)
    assert "the line is not UTF-8" in str(unknown[0][1])
    for encoding, said in (("UTF-16", "lines cannot be told apart"), ("klingon", "there is no encoding 'klingon'")):
        with pytest.raises(SourceError, match=said):
            made.csv(encoding, "goods.csv", encoding=encoding).read(spark, tmp_path, {})
    (tmp_path / "wide.csv").write_bytes('sku,price\n"two\nlines and ""€""",1\nshort\n'.encode("utf-16"))
    whole = made.csv("whole", "wide.csv", encoding="UTF-16", multiLine=True)
    assert rows_of(whole, spark, tmp_path, "sku", "price", "_malformed") == [
        ("short", None, "the row does not have the 2 columns"), ('two\nlines and "€"', "1", None)]


def test_what_only_some_rows_or_files_have_is_not_lost(spark: SparkSession, tmp_path: Path) -> None:
    lines = [f'{{"id": "p{number}", "name": "Ada"}}' for number in range(1100)]
    lines[1050] = '{"id": "p1050", "name": "Ada", "visits": 7}'
    (tmp_path / "people.jsonl").write_text("\n".join(lines))
    made = Pipeline("people", types=[Person], folder=tmp_path)
    made.load(Person, made.json("people", "people.jsonl"), where="id IN ('p1', 'p1050')")
    made.run(f"{tmp_path}/shop.db", spark=spark)
    assert {key: one.visits for key, one in people(f"{tmp_path}/shop.db").items()} == {"p1": 0, "p1050": 7}

    (tmp_path / "list.json").write_text('[{"sku":\n"s1", "price": 1.10}, {"sku": "s2"}]')
    with pytest.raises(SourceError, match=r"none of the first lines .* is a JSON object") as caught:
        made.json("lines", "list.json").read(spark, tmp_path, {})
    assert "multiLine" in str(caught.value.hint)
    assert rows_of(made.json("list", "list.json", multiline=True), spark, tmp_path, "sku", "price") == [
        ("s1", "1.10"), ("s2", None)]
    pq.write_table(pa.table({"sku": ["s1"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"sku": ["s2"], "price": [2.5]}), tmp_path / "b.parquet")
    assert rows_of(made.parquet("both", "*.parquet"), spark, tmp_path, "sku", "price") == [("s1", None), ("s2", 2.5)]
    (tmp_path / "years" / "year=2024").mkdir(parents=True)
    (tmp_path / "years" / "year=2024" / "goods.csv").write_text("sku,price\ns1,1\n")
    (tmp_path / "years" / "year=2024" / "notes.csv").write_text("nothing of that\n")
    years = made.csv("years", "years", pathGlobFilter="goods.csv")
    assert rows_of(years, spark, tmp_path, "sku", "price", "year") == [("s1", "1", "2024")]


def test_another_store_is_a_source_and_what_it_no_longer_has_is_told(spark: SparkSession, tmp_path: Path) -> None:
    old, new = f"{tmp_path}/old.db", f"file://{tmp_path}/new"
    with Session(old, entity_types=[Goods]) as session:
        session.ensure([Goods(sku=f"s{number}", price=float(number)) for number in range(5)])
    with Session(new, entity_types=[Goods]) as session:
        session.ensure([Goods(sku="s1", price=1.0), Goods(sku="s2", price=9.0), Goods(sku="gone", price=1.0)])
    made = Pipeline("move", types=[Goods], folder=tmp_path)
    made.load(Goods, made.format("old", "ontolake", url=old, table="entity/Goods"), vanished=True)
    report = made.run(new, spark=spark)
    assert report.tables[0].counts == {"rows": 5, "rejected": 0, "inserts": 3, "updates": 1, "unchanged": 1,
                                       "vanished": 1}
    with Session(new, entity_types=[Goods]) as session:
        assert session.get_commit(2).metadata["counts"] == {"entity/Goods": report.tables[0].counts}
        assert session.query().entities(Goods).count() == 6
    assert "<td class='n'>1</td>" in Path(str(report.report)).read_text()


def test_a_delivery_without_rows_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/lake"
    made = Pipeline("goods", types=[Goods], folder=tmp_path)
    made.load(Goods, made.csv("goods", "goods.csv"), vanished=True)
    (tmp_path / "goods.csv").write_text("sku,price\n")
    nothing = {"rows": 0, "rejected": 0, "inserts": 0, "updates": 0, "unchanged": 0, "vanished": 0}
    first = made.run(url, spark=spark)
    assert (first.state, first.tables[0].counts) == ("unchanged", nothing)
    with Session(url, entity_types=[Goods]) as session:
        session.ensure([Goods(sku="s1", price=1.0), Goods(sku="s2", price=9.0)])
    second = made.run(url, spark=spark)
    assert (second.state, second.tables[0].counts) == ("unchanged", nothing | {"vanished": 2})


def test_numbers_of_other_types_are_taken_if_nothing_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    given = [Decimal(text) for text in ("1.500", "1.239", "9999.990", "10000.000", "-0.010")]
    pq.write_table(pa.table({
        "id": ["a", "b", "c", "d", "e"], "name": ["Ada"] * 5, "credit": pa.array(given, pa.decimal128(12, 3)),
        "visits": pa.array([1.0, 2.0, 2.5, 4.0, 5.0])}), tmp_path / "people.parquet")
    made = Pipeline("people", types=[Person], folder=tmp_path, max_rejected=0.9)
    made.load(Person, made.parquet("people", "people.parquet"))
    report = made.run(f"{tmp_path}/shop.db", spark=spark)
    assert {one["line"]: one["reason"].partition(" is not")[0] for one in report.samples} == {
        2: "credit: '1.239'", 3: "visits: '2.5'", 4: "credit: '10000.000'"}
    found = people(f"{tmp_path}/shop.db")
    assert {key: (str(one.credit), one.visits) for key, one in found.items()} == {"a": ("1.50", 1), "e": ("-0.01", 5)}
    whole = Pipeline("whole", types=[Person], folder=tmp_path, max_rejected=0.9)
    whole.load(Person, whole.parquet("people", "people.parquet"), columns={
        "credit": "CAST(if(id = 'b', 10000, 7) AS int)", "visits": "1"})
    assert [one["reason"] for one in whole.run(f"{tmp_path}/shop.db", spark=spark).samples] == [
        "credit: '10000' is not a number with up to 6 digits, 2 of them behind the point"]
    assert str(people(f"{tmp_path}/shop.db")["a"].credit) == "7.00"


def test_values_that_must_be_unique_are_told(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "one", ["p1,Ada,,,3,,,,,", "p2,Ada,,,3,,,,,", "p3,Ada,,,4,,,,,"])
    made = shop(tmp_path)
    made.expect_unique(Person, "name", "visits")
    made.expect_unique(Person, "token")
    with pytest.raises(ExpectationError, match=r"name and visits of Person are unique: name Ada, visits 3, times 2"):
        made.run(f"{tmp_path}/shop.db", spark=spark)
    with pytest.raises(PipelineError, match="Bought has no field 'colour'"):
        made.expect_unique(Bought, "colour")
