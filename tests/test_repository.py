"""Promises about the repository itself: what a clone gets, and what keeps it in shape."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import lowered
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ontolake.history import metadata

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONSTRAINTS = (ROOT / "constraints.txt").read_text()
MODULES = sorted((ROOT / "src" / "ontolake").rglob("*.py"))

NAMED_TUPLE = frozenset({"_asdict", "_fields", "_make", "_replace"})
FOREIGN = frozenset({"_annotate_binary", "_exit", "_getframe", "_pandas_api", "_set_type", "_take_rows"})
"""Attributes of Python and other libraries that have no public counterpart."""
MANY_PARAMETERS = frozenset({"spark/frames.py: table"})
"""Published functions whose parameters stay."""

PEP_249 = frozenset({"DataError"})
"""Names that the database API prescribes for `sql/dbapi.py`, and that the errors of SQL tables have too."""
HISTORY = frozenset({
    "BranchError", "BranchExistsError", "Commit", "MergeConflictError", "Snapshot", "UnknownBranchError",
    "UnknownCommitError", "UnknownTableError"})  # fmt: skip
"""Words of history of which a model publishes its own: what a caller knows of the one in `history/` holds of them."""
MODELS = ("history/", "ontology/", "documents/", "graph/", "sql/")
PARTICIPLES = frozenset({"told", "made", "given", "found", "asked"})


def declared() -> list[Requirement]:
    extras = PROJECT["project"]["optional-dependencies"].values()
    groups = PROJECT["dependency-groups"].values()
    return [Requirement(text) for texts in [PROJECT["project"]["dependencies"], *extras, *groups] for text in texts]


def pins() -> dict[str, list[str]]:
    """Package → pinned versions; more than one where they depend on the Python version."""
    found: dict[str, list[str]] = {}
    for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", CONSTRAINTS, re.MULTILINE):
        found.setdefault(canonicalize_name(name), []).append(version)
    return found


def test_there_is_one_extra_per_capability() -> None:
    assert set(PROJECT["project"]["optional-dependencies"]) == {
        "s3", "graph", "sql", "sqlalchemy", "spark", "server", "client", "dev", "bench", "mutants", "tools"}


def test_only_scalars_know_the_names_of_scalars() -> None:
    """A new scalar is one object: no other module compares names of scalars, or has a table by them."""
    named = re.compile(r"""\bscalar (?:==|!=|in|not in) [("']|["'](?:UUID|Decimal|datetime|timedelta)["']:""")
    found = [f"{path.relative_to(ROOT)}: {line.strip()}" for path in MODULES
             if not {"scalars", "sql"} & {*path.parts} and path.name != "source.py"
             for line in path.read_text().splitlines() if named.search(line)]  # fmt: skip
    assert found == []


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def defined(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Names of what classes of a module have: methods, fields, and attributes that methods set."""
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    yield member.name
                targets = member.targets if isinstance(member, ast.Assign) else [getattr(member, "target", None)]
                yield from (target.id for target in targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node):
            yield node.attr


def is_own(node: ast.Attribute) -> bool:
    """Whether it is an attribute of `self`, `cls` or `super()`."""
    owner = node.value.func if isinstance(node.value, ast.Call) else node.value
    return isinstance(owner, ast.Name) and owner.id in {"self", "cls", "super"}


def reaches(tree: ast.AST) -> list[str]:
    """Private attributes and names that a module uses although another one defines them, with their lines."""
    nodes = list(ast.walk(tree))
    allowed = {*defined(nodes), *NAMED_TUPLE, *FOREIGN}
    used = [node for node in nodes if isinstance(node, ast.Attribute) and private(node.attr)]
    imported = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return [*(f"{node.lineno}: {ast.unparse(node)}" for node in used if node.attr not in allowed and not is_own(node)),
            *(f"{node.lineno}: {name.name}" for node in imported for name in node.names if private(name.name))]


@cache
def trees() -> list[tuple[str, ast.AST]]:
    """All modules, parsed, by path in the package."""
    return [(path.relative_to(ROOT / "src" / "ontolake").as_posix(), ast.parse(path.read_text())) for path in MODULES]


@pytest.mark.slow
def test_modules_use_only_what_others_publish() -> None:
    """`x._y` belongs to the module that defines `_y`: what others need has a public name."""
    source = "from a import _b\nclass C:\n    _d = 1\nc._d\nc._e\nx.y._f()._replace()"
    assert reaches(ast.parse(source)) == ["5: c._e", "6: x.y._f", "1: _b"]
    assert [(name, reach) for name, tree in trees() for reach in reaches(tree)] == []


@pytest.mark.slow
def test_functions_take_few_parameters() -> None:
    """Ten or more are an object. Commands are left out: a parameter of theirs is an option."""
    functions = [(name, node) for name, tree in trees() if not name.startswith("cli/") for node in ast.walk(tree)
                 if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    taken = [(f"{name}: {node.name}", {one.arg for one in (*node.args.posonlyargs, *node.args.args,
                                                           *node.args.kwonlyargs)}) for name, node in functions]
    assert {function for function, names in taken if len(names - {"self", "cls"}) >= 10} == MANY_PARAMETERS


def sources() -> list[tuple[str, str]]:
    """The text of each module, by path in the package."""
    return [(path.relative_to(ROOT / "src" / "ontolake").as_posix(), path.read_text()) for path in MODULES]


def twice(modules: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Public classes that have their name in common with another one, and where they are."""
    places: dict[str, list[str]] = {}
    for path, text in modules:
        for name in re.findall(r"^class ([A-Za-z]\w*)", text, re.MULTILINE):
            places.setdefault(name, []).append(path)
    return {name: paths for name, paths in places.items() if len(paths) > 1 and not (
        (name in HISTORY and all(path.startswith(MODELS) for path in paths))
        or (name == "Conflict" and {*paths} == {"errors.py", "history/conflicts.py"})  # a group of errors, and data
        or (name in PEP_249 and {*paths} == {"sql/dbapi.py", "sql/errors.py"}))}


def test_no_two_public_classes_have_one_name() -> None:
    """One name is one thing: a reader who sees it need not ask of which package."""
    shown = [("a.py", "class A:\nclass _B:"), ("b.py", "class _B:\nclass C:\nclass A(C):\n    class C:")]
    assert twice(shown) == {"A": ["a.py", "b.py"]}
    assert twice([("graph/a.py", "class Commit:"), ("history/b.py", "class Commit:")]) == {}
    assert twice([("storage/a.py", "class Commit:"), ("history/b.py", "class Commit:")]) != {}
    assert twice(sources()) == {}


def test_words_of_history_that_models_publish_are_those_of_history() -> None:
    """But for typed stores, which have a history of their own."""
    from ontolake import documents, graph, history

    own = [(name, getattr(model, name)) for name in HISTORY for model in (documents, graph) if hasattr(model, name)]
    assert {name for name, _ in own} == HISTORY - {"Snapshot"}
    assert [name for name, found in own if not issubclass(found, getattr(history, name))] == []


def participles(path: str, text: str) -> Iterator[str]:
    """What a module calls by a participle: itself, its package, its classes and aliases of types."""
    yield from (part for part in re.split(r"[/.]", path) if part.strip("_") in PARTICIPLES)
    for name in re.findall(r"^(?:(?:class|type) +(\w+)|([A-Z]\w*|_[A-Z]\w*) *[=:])", text, re.MULTILINE):
        yield from (one for one in name if one.strip("_").lower() in PARTICIPLES)


def test_types_and_modules_have_names_that_say_what_they_are() -> None:
    text = "class Told:\nclass _Found(A):\nGiven = A | B\ntype Made = A\nclass NotFound:\nfound = 1"
    assert [*participles("a/asked.py", text)] == ["asked", "Told", "_Found", "Given", "Made"]
    assert [*participles("told/a.py", "")] == ["told"]
    called = [(path, name) for path, text in sources() for name in participles(path, text)]
    assert called == []


def imports(package: str) -> dict[str, set[str]]:
    """What each module of a package imports of it, for types alone and inside functions too."""
    modules = {"ontolake." + name.removesuffix(".py").replace("/", ".").removesuffix(".__init__"): tree
               for name, tree in trees() if name.startswith(f"{package}/")}
    found: dict[str, set[str]] = {}
    for module, tree in modules.items():
        nodes = list(ast.walk(tree))
        assert not any(isinstance(node, ast.ImportFrom) and node.level for node in nodes), f"{module}: write it out"
        named = {one.name for node in nodes if isinstance(node, ast.Import) for one in node.names}
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                inside = {f"{node.module}.{one.name}" for one in node.names}
                named |= inside & modules.keys() if inside <= modules.keys() else {*inside, node.module}
        found[module] = named & modules.keys()
    return found


def cycles(imported: dict[str, set[str]]) -> list[list[str]]:
    """Modules that import each other by some way round: the strongly connected components of more than one."""
    reached: dict[str, set[str]] = {}
    for module in imported:
        waiting, seen = [module], set[str]()
        while waiting:
            new = imported[waiting.pop()] - seen
            seen |= new
            waiting += new
        reached[module] = seen
    components = {frozenset(other for other in seen if module in reached[other]) for module, seen in reached.items()}
    return sorted(sorted(component) for component in components if component)


@pytest.mark.slow
@pytest.mark.parametrize("package", ["documents", "engine", "graph", "history", "objects", "storage"])
def test_no_two_modules_import_each_other(package: str) -> None:
    """Types count as well: what two modules need of each other is in one below both."""
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a"}}) == [["b", "c"]]
    assert len(imports(package)) > 10
    assert cycles(imports(package)) == []


def test_every_dependency_has_a_lower_and_an_upper_bound() -> None:
    unbounded = [str(r) for r in declared() if not {">=", "<"} <= {s.operator for s in r.specifier}]
    assert unbounded == []


def test_constraints_pin_what_the_project_declares() -> None:
    """Fails when pyproject.toml was changed without `make constraints`."""
    pinned = pins()
    assert [str(r) for r in declared() if canonicalize_name(r.name) not in pinned] == []
    wrong = [(str(r), v) for r in declared() for v in pinned[canonicalize_name(r.name)] if v not in r.specifier]
    assert wrong == []


def test_constraints_have_hashes_and_name_no_registry() -> None:
    entries = re.split(r"^(?=[A-Za-z0-9])", CONSTRAINTS, flags=re.MULTILINE)[1:]
    assert len(entries) > 50
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
    assert not re.search(r"https?:|file:|--index|--extra-index|--find-links|@ ", CONSTRAINTS)
    assert not (ROOT / "uv.lock").exists()


def test_the_package_is_typed() -> None:
    assert (ROOT / "src/ontolake/py.typed").exists()


def test_the_readme_and_the_ci_name_the_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme
    assert readme.index("make demo") < 1000, "the commands come first"
    ci = (ROOT / ".ci/run").read_text().splitlines()
    assert "set -euo pipefail" in ci
    assert "make lint" in ci
    assert "make test" in ci


@pytest.mark.parametrize("script", sorted([*(ROOT / "tools").iterdir(), ROOT / ".ci/run"]), ids=lambda path: path.name)
def test_scripts_can_be_run_and_stop_at_the_first_error(script: Path) -> None:
    assert os.access(script, os.X_OK)
    text = script.read_text()
    assert text.startswith("#!/usr/bin/env bash\n#"), "a script opens with what it is for"
    assert re.search(r"^set -e", text, re.MULTILINE)
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0


def test_modules_say_what_they_are_for_and_stay_small() -> None:
    assert len(MODULES) > 100
    silent = [str(module) for module in MODULES if (text := module.read_text()) and not text.startswith('"""')]
    assert silent == [], "a module opens with one or two sentences: what it is for"
    assert [str(module) for module in MODULES if module.read_text().count("\n") > 600] == [], "split it along a seam"


@pytest.mark.parametrize("package", [path.parent for path in MODULES if path.name == "__init__.py"],
                         ids=lambda path: path.relative_to(ROOT / "src").as_posix())
def test_packages_name_the_modules_that_are_there_and_no_others(package: Path) -> None:
    """Every module stands in backquotes in the first lines of its package, and every single word there is a module."""
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    inside = {path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    inside -= {"__init__", "__main__"}
    assert inside - set(re.findall(r"`(?:[a-z.]+\.)?([a-z0-9_]+)/?`", text)) == set()
    assert set(re.findall(r"`([a-z0-9_]+)/?`", text)) - inside == set()


@pytest.mark.parametrize("package", lowered.PACKAGES)
def test_thresholds_that_tests_lower_are_there(package: str) -> None:
    """Text names them, which no type checker follows: only slow tests would notice that a module has moved."""
    for name in lowered.PACKAGES[package]:
        module, _, constant = name.rpartition(".")
        text = (ROOT / "src" / "ontolake" / package / f"{module.replace('.', '/')}.py").read_text()
        assert re.search(rf"\b{constant}\b", text), f"{package}.{name}"


def test_library_code_does_not_print() -> None:
    library = [module for module in MODULES if "cli" not in module.relative_to(ROOT / "src" / "ontolake").parts]
    suspected = [module for module in library if "print" in module.read_text()]
    calls = [(str(one), call) for one in suspected for call in ast.walk(ast.parse(one.read_text()))
             if isinstance(call, ast.Call)]
    assert [(name, call.lineno) for name, call in calls
            if isinstance(call.func, ast.Name) and call.func.id == "print"] == []


def test_the_core_needs_no_extra() -> None:
    """Importing the seam must not pull in an optional package; a capability asks for its extra when it is used."""
    program = (
        "import sys, ontolake.storage, ontolake.objects\n"
        "optional = {'obstore', 'pyarrow', 'lance', 'datafusion', 'sqlglot', 'pyspark', 'starlette', 'pytest'}\n"
        "sys.exit(' '.join(optional & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"imported: {done.stderr}"


@pytest.mark.slow
def test_imports_point_one_way() -> None:
    """The contracts of pyproject.toml, which `make lint` checks too."""
    assert "lint-imports" in (ROOT / "Makefile").read_text()
    program = Path(sys.executable).with_name("lint-imports")
    source = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([program, "--no-logo", "--no-cache"], cwd=ROOT, env=source, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_keys_of_commit_metadata_are_named_in_one_place() -> None:
    keys = {value for name, value in vars(metadata).items() if name.isupper() and isinstance(value, str)}
    literal = re.compile(r"metadata(?:\.get\(|\[|=\{)[\"'](\w+)[\"']")
    assert literal.findall("metadata['run'], one.metadata[\"kind\"], metadata={'batch': 1}") == ["run", "kind", "batch"]
    assert [(path, key) for path, text in sources() for key in literal.findall(text) if key in keys] == []


def test_modules_that_are_mutated_are_there() -> None:
    modules = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text())["module"]
    named = [ROOT / "src" / module["path"] for module in modules]
    named += [ROOT / test for module in modules for test in module["tests"]]
    assert [str(path) for path in named if not path.is_file()] == []
