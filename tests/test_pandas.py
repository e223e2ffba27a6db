"""Work on stores does not import pandas, and pyarrow works with pandas as ever once somebody does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

_TYPED = """
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
import pyarrow as pa
from ontolake.model import Entity, Field, Relation
from ontolake.ontology import Session

def types(more):
    class Thing(Entity):
        id: Field[str] = Field(primary_key=True)
        count: Field[int] = Field(default=0)
        ratio: Field[float] = Field(default=0.5)
        at: Field[datetime | None] = Field(default=None)
        day: Field[date | None] = Field(default=None)
        data: Field[bytes] = Field(default=b"")
        flag: Field[bool] = Field(default=True)
        price: Field[Decimal | None] = Field(default=None)
        tags: Field[list[int]] = Field(default_factory=list)
        if more:
            note: Field[str] = Field(default="x")
    class Near(Relation[Thing, Thing]):
        far: Field[int] = Field(default=1)
    return Thing, Near

url, engine = sys.argv[1:]
Thing, Near = types(False)
with Session(url, entity_types=[Thing], relation_types=[Near], engine_version=engine) as session:
    session.ensure(Thing(id=f"{n:05}", at=datetime(2024, 1, 1, tzinfo=UTC), day=date(2024, 1, 1), price=Decimal("1.5"))
                   for n in range(2500))
    session.ensure(Near(left_key="00001", right_key="00002"))
    assert session.commit() == 1
    session.ensure(Thing(id=f"{n:05}", at=datetime(2024, 1, 1)) for n in range(20))
    session.commit()
    session.ensure_arrow(Thing, pa.table({"id": pa.array(["q"], pa.string()), "count": pa.array([5], pa.int32())}))
    session.commit()
    things = session.query().entities(Thing)
    assert len(things.where(Thing.count >= 0).order_by(Thing.ratio).collect()) == 2501
    assert things.where(Thing.id.in_(["q"])).first().count == 5
    assert things.where(Thing.id.startswith("0000")).count() == 10
    assert things.where(Thing.count == 5).sum(Thing.count) == 5
    assert len(things.group_by(Thing.day).agg()) == 2
    assert len(things.as_of(1).collect()) == 2500
    assert len(things.via(Near).collect()) == 1
    assert things.to_arrow().num_rows == 2501
    assert len([*session.changes(1)]) == 21
    assert sum(batch.num_rows for batch in session.changes(1).to_batches()) == 21
Thing, Near = types(True)
with Session(url, entity_types=[Thing], relation_types=[Near]) as session:
    session.migrate(dry_run=False, token=session.migrate().token)
    assert session.query().entities(Thing).where(Thing.note == "x").count() == 2501
"""

_OTHERS = """
import sys
from ontolake.documents import Set, open_space
from ontolake.sql import open_database

place = sys.argv[1]
space = open_space(place + "/", "space")
space.transact("s", 1, [Set("x", {"a": 1})])
assert space.read("x").document == {"a": 1}
database = open_database(place + "/tables.db")
database.execute("create table t (id int primary key, a text)")
database.execute("insert into t values (1, 'a'), (2, 'b')")
assert database.query("select a from t where id = 1").to_pylist() == [{"a": "a"}]
assert database.query("select count(*) as n from t group by a").to_pylist() == [{"n": 1}, {"n": 1}]
database.branches.create("try")
with open_database(place + "/tables.db", branch="try") as work:
    work.execute("update t set a = 'c' where id = 1; insert into t values (3, 'd')")
database.execute("update t set a = 'e' where id = 2")
assert len(list(database.diff("main", "try"))) == 3
assert database.merge("try").status == "merged"
assert database.query("select a from t order by id").to_pylist() == [{"a": "c"}, {"a": "e"}, {"a": "d"}]
"""

_GRAPH = """
import sys
from ontolake import lazy_pandas
lazy_pandas.forgo()
from ontolake.graph import Graph
from ontolake.model import Entity, Field

class Thing(Entity):
    id: Field[int] = Field(primary_key=True)
    name: Field[str]

with Graph.init(sys.argv[1] + "/graph/", types=[Thing]) as graph:
    with graph.transaction(actor="ada") as transaction:
        transaction.load(Thing, [{"id": 1, "name": "a"}])
    assert graph.snapshot().get(Thing, 1)["name"] == "a"
    assert len(list(graph.commits())) == 2
"""

_NOT_IMPORTED = "\nassert 'pandas' not in sys.modules\n"

_PANDAS = """
import sys
{before}
import pandas as pd
import pyarrow as pa
for values in (pd.Series([1.0, float("nan")]), pd.Series(["a", "b", "a"], dtype="category"),
               pd.Series(pd.date_range("2024", periods=2, tz="UTC")), pd.period_range("2024", periods=2, freq="D"),
               [1, pd.NA], [pd.NaT, pd.Timestamp("2024-01-01")]):
    try:
        found = pa.array(values, from_pandas=True)
        print(found.type, found.to_pylist())
    except Exception as error:
        print(error)
print(pa.Table.from_pandas(pd.DataFrame({{"a": [1, None]}})).to_pydict())
print(pa.table({{"a": [1, None]}}).to_pandas().a.tolist())
"""


def _run(script: str, *given: str) -> str:
    done = subprocess.run([sys.executable, "-c", script, *given], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("engine", ["v2", "v1"])
@pytest.mark.parametrize("place", ["typed.db", "objects/"])
def test_typed_stores_do_not_import_pandas(tmp_path: Path, place: str, engine: str) -> None:
    _run(_TYPED + _NOT_IMPORTED, f"{tmp_path}/{place}", engine)


def test_documents_and_tables_do_not_import_pandas(tmp_path: Path) -> None:
    _run(_OTHERS + _NOT_IMPORTED, str(tmp_path))


def test_graphs_of_a_server_do_not_import_pandas(tmp_path: Path) -> None:
    _run(_GRAPH + _NOT_IMPORTED, str(tmp_path))


@pytest.fixture(scope="module")
def usual() -> str:
    """What pyarrow makes of pandas objects where ontolake is not imported."""
    return _run(_PANDAS.format(before=""))


@pytest.mark.parametrize(
    "before", ["import ontolake", "import pyarrow\nimport ontolake.ontology.repository.objects.base"])
def test_pyarrow_knows_pandas_once_it_is_imported(before: str, usual: str) -> None:
    assert _run(_PANDAS.format(before=before)) == usual
