"""Sources of pipelines: several files, rows far down, columns that change their type, files that are no files."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ontolake.ontology import Session
from ontolake.spark import ExpectationError, Pipeline, PipelineError, SourceError

from .deliveries import Bought, Goods, Person, people, shop, write

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.slow]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def only_people(folder: Path) -> Pipeline:
    made = Pipeline("people", types=[Person], folder=folder, max_rejected=0.9)
    made.load(Person, made.csv("people", "people"), columns={"name": "trim(called)"})
    return made


def test_lines_are_right_in_several_files_and_far_down_and_the_last_row_of_a_key_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also in files that are read in many pieces, with blank lines, and repeats that are in different files."""
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
