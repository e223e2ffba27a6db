"""A filter that an engine does not handle fails type checking: nodes and operators are added, and mypy names places."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from type_cache import known_types

SOURCE = Path(__file__).parents[2] / "src"
TYPED = "ontology/query/text.py"
ENGINES = {"ontology/query/compiler/conditions.py", "ontology/repository/objects/read/datafusion.py",
           "graph/tables/filters.py"}
ADDED = [  # module, what is there, what is added to it, the type it adds, who has to handle it
    ("model/filters.py", "Leaf = Compare |",
     "class MadeUpFilter(NamedTuple):\n    ref: ValueRef\n\n\nLeaf = MadeUpFilter | Compare |", "MadeUpFilter",
     ENGINES | {"model/filters.py", "ontology/query/needs.py", "ontology/repository/objects/read/row_groups.py"}),
    ("model/filters.py", 'CompareOp = Literal["=="', 'CompareOp = Literal["~=", "=="', "~=",
     ENGINES | {TYPED, "ontology/repository/objects/read/row_groups.py"}),
    ("model/filters.py", 'MatchOp = Literal["', 'MatchOp = Literal["like", "', "like", ENGINES | {TYPED}),
    ("model/filters.py", 'TestOp = Literal["', 'TestOp = Literal["is_nan", "', "is_nan", ENGINES | {TYPED}),
    ("model/filters.py", 'JunctionOp = Literal["', 'JunctionOp = Literal["xor", "', "xor", ENGINES),
    ("model/filters.py", 'MeasureOp = Literal["', 'MeasureOp = Literal["median", "', "median",
     {"ontology/query/compiler/statements.py", "ontology/repository/objects/read/datafusion.py"}),
    ("parallel.py", 'FilterOp = Literal["=="', 'FilterOp = Literal["<>", "=="', "<>",
     {"parallel.py", "ontology/parallel/filters.py", "ontology/repository/objects/read/splits.py", "graph/splits.py",
      "sql/splits.py", "spark/filters.py", "server/tables/filters.py"}),
]  # fmt: skip


@pytest.fixture(scope="module")
def unhandled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """By what was added: the modules in which mypy finds it unhandled."""
    place = tmp_path_factory.mktemp("exhaustive")
    copy = place / "src"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for module, before, after, _, _ in ADDED:
        file = copy / "ontolake" / module
        text = file.read_text()
        assert text.count(before) == 1, (module, before)
        file.write_text(text.replace(before, after))
    shutil.copy(SOURCE.parent / "pyproject.toml", place)
    done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", str(known_types(place))], cwd=place,
                          capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"})
    found: dict[str, set[str]] = {}
    for module, line in re.findall(r'^src/ontolake/(\S+?):\d+: error: (.*assert_never.*)$', done.stdout, re.MULTILINE):
        for name in re.findall(r'\'([^\']+)\'|type "(\w+)"', line):
            found.setdefault("".join(name), set()).add(module)
    return found


@pytest.mark.slow
@pytest.mark.xdist_group("mypy")  # one process checks the copy for all
@pytest.mark.parametrize(("name", "modules"), [(name, modules) for *_, name, modules in ADDED])
def test_mypy_names_who_does_not_handle_a_new_filter(
    unhandled: dict[str, set[str]], name: str, modules: set[str]
) -> None:  # fmt: skip
    assert unhandled.get(name, set()) == modules
