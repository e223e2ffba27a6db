"""A missing package: every way in names the extra that brings it, and nothing is called damaged for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ontolake.extras import EXTRAS

MODELS = """
from ontolake.model import Entity, Field

class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
"""
PIPELINE = """
from ontolake.spark import Pipeline
from models import Thing

things = Pipeline("things", types=[Thing])
things.load(Thing, things.csv("things", "things.csv"))
"""
FILL = """
from models import Thing
from ontolake.graph import Graph
from ontolake.ontology import Session
from ontolake.sql import open_database

Graph.init("graph/", [Thing]).close()
with Session("lake/", entity_types=[Thing]) as session:
    session.ensure(Thing(id="a"))
with open_database("tables.db") as database:
    database.execute("CREATE TABLE x (id INT PRIMARY KEY)")
"""
RUN = """
import contextlib, io, json, sys

module, commands, imports = json.loads(sys.argv[1])


class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == module:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Hidden())
from ontolake.cli import main

said = {}
for command in commands:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(command.split())
    said[command] = [code, out.getvalue(), err.getvalue()]
for code in imports:
    try:
        exec(code, {})
        said[code] = [0, "", ""]
    except Exception as error:
        said[code] = [2, type(error).__name__, str(error)]
print(json.dumps(said))
"""
ANY = ("info URL", "log URL", "export URL", "verify URL", "gc URL", "branch list URL", "diff URL 0 0")
BUCKET = "s3://bucket/place"
SERVER = "http://127.0.0.1:9/x"
WAYS = {
    "obstore": ("s3", [
        *(command.replace("URL", BUCKET) for command in ANY), f"init --storage-uri {BUCKET} --models models.py",
        f"import no.jsonl --storage-uri {BUCKET}", f"query entities Thing --storage-uri {BUCKET}",
        f"commits list --storage-uri {BUCKET}", f"schema export --storage-uri {BUCKET}", f"compact {BUCKET}",
        f"events list --storage-uri {BUCKET}", f"convert lake/ {BUCKET}", f"storage info {BUCKET}",
        f"docs list {BUCKET} space", f"graph init {BUCKET} --models models.py", f"graph log {BUCKET}",
        f"sql {BUCKET} SELECT", f"pipeline status --store {BUCKET}", f"pipeline clean --store {BUCKET}",
    ], [f"from ontolake.graph import Graph; Graph.open({BUCKET!r})",
        f"from ontolake.ontology import Session; Session({BUCKET!r})",
        f"from ontolake.sql import open_database; open_database({BUCKET!r})",
        f"from ontolake.documents import open_space; open_space({BUCKET!r}, 'space')",
        f"from ontolake.storage import open_storage; open_storage({BUCKET!r})",
        f"from ontolake.engine import connect; connect({BUCKET!r})"]),
    "lance": ("graph", [
        *(command.replace("URL", "graph/") for command in ANY), "graph init new/ --models models.py",
        "graph optimize graph/", "graph log graph/", "graph cleanup graph/", "graph sql graph/ SELECT",
        "pipeline clean --store graph/", "graph snapshot graph/", "graph get graph/ Thing a",
    ], ["from ontolake.graph import Graph; Graph.open('graph/')"]),
    "datafusion": ("graph", ["graph sql graph/ SELECT"], [
        "from ontolake.graph import Graph; Graph.open('graph/').snapshot().sql('SELECT 1')"]),
    "sqlglot": ("sql", [*(command.replace("URL", "tables.db") for command in ANY), "sql tables.db SELECT",
                        "sql ranges tables.db"],
                ["from ontolake.sql import open_database", "import ontolake.sql.dbapi", "import ontolake.sql.types"]),
    "duckdb": ("sql", ["sql tables.db SELECT(abs(id))FROM/**/x"],
               ["from ontolake.sql import open_database; open_database('tables.db').query('SELECT abs(id) FROM x')"]),
    "sqlalchemy": ("sqlalchemy", [], ["import ontolake.sql.sqlalchemy"]),
    **{module: ("server", ["serve tables.db --port 0"], [])
       for module in ("starlette", "uvicorn", "prometheus_client", "opentelemetry")},
    "urllib3": ("client", [
        *(command.replace("URL", SERVER) for command in ANY), f"tag list {SERVER}", f"merge {SERVER} try",
        f"erase {SERVER} x y --reason z", f"sql {SERVER} SELECT", f"query entities Thing --storage-uri {SERVER}",
        f"commits list --storage-uri {SERVER}", f"docs list {SERVER} space", f"graph sql {SERVER} SELECT",
    ], [f"import ontolake; ontolake.open({SERVER!r})",
        f"from ontolake.ontology import Session; Session({SERVER!r})"]),
    "pyspark": ("spark", [
        "pipeline run things.py --store things.db", "pipeline plan things.py", "spark verify lake/",
        "spark export lake/ -o out", "spark convert lake/ copy/", "spark reindex lake/",
        "spark migrate lake/ --models models.py",
    ], ["from ontolake.spark import Pipeline", "from ontolake.spark import session; session()",
        "from ontolake.spark import table"]),
    "pandas": ("spark", ["pipeline run things.py --store things.db", "spark verify lake/"],
               ["from ontolake.spark import session; session()"]),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    for name, text in {"models.py": MODELS, "things.py": PIPELINE, "no.jsonl": "", "things.csv": "id\na\n"}.items():
        (folder / name).write_text(text)
    subprocess.run([sys.executable, "-c", FILL], cwd=folder, check=True)
    return folder


def test_every_module_of_an_extra_is_tried() -> None:
    assert {module for modules in EXTRAS.values() for module in modules} - {"py4j"} == WAYS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("module", WAYS)
def test_a_missing_package_is_told_with_the_extra_that_brings_it(module: str, folder: Path) -> None:
    extra, commands, imports = WAYS[module]
    before = sorted(folder.rglob("*"))
    done = subprocess.run([sys.executable, "-c", RUN, json.dumps([module, commands, imports])], cwd=folder, text=True,
                          capture_output=True, check=True)
    for way, (code, out, err) in json.loads(done.stdout).items():
        assert code == 2, f"{way}: {out}{err}"
        assert f"pip install 'ontolake[{extra}]'" in err, f"{way}: {err}"
        assert "amaged" not in out + err, way
    made = [path.name for path in folder.rglob("*") if path not in before and "__pycache__" not in str(path)]
    assert set(made) <= {"tables.db-shm", "tables.db-wal"}  # which readers of SQLite leave


@pytest.mark.slow
def test_sql_tables_without_their_executor_name_the_extra(folder: Path) -> None:
    """Statements that need no executor work; those that do say what to install, and change nothing."""
    need = ["sql tables.db SELECT(abs(id))FROM/**/x", "sql tables.db INSERT/**/INTO/**/x/**/SELECT(abs(1))"]
    code = "from ontolake.sql import open_database; open_database('tables.db').query('SELECT abs(id) FROM x')"
    done = subprocess.run([sys.executable, "-c", RUN, json.dumps(["duckdb", need, [code]])], cwd=folder, text=True,
                          capture_output=True, check=True)
    for way, (code, out, err) in json.loads(done.stdout).items():
        assert code == 2, f"{way}: {out}{err}"
        assert "pip install 'ontolake[sql]'" in err, f"{way}: {err}"
