"""Errors cross processes whole: Spark's workers and process pools send them by pickle. Groups give them exit codes."""

from __future__ import annotations

import ast
import importlib
import pickle
import pkgutil
import re
from pathlib import Path

import pytest

import ontolake
from ontolake import errors
from ontolake.errors import ExitCode, Fenced, OntolakeError

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "ontolake").rglob("*.py"))
GROUPS = {
    OntolakeError: 1,
    errors.UsageFailure: 2,
    errors.SchemaFailure: 3,
    errors.ExecutionFailure: 4,
    errors.StorageError: 5,
    errors.ConflictFailure: 6,
    errors.SafetyRefusal: 7,
}


def subclasses(cls: type[OntolakeError]) -> set[type[OntolakeError]]:
    return {cls}.union(*(subclasses(each) for each in cls.__subclasses__()))


def error_classes() -> list[type[OntolakeError]]:
    for module in pkgutil.walk_packages(ontolake.__path__, "ontolake."):
        if module.name.endswith("errors"):
            importlib.import_module(module.name)
    return sorted(subclasses(OntolakeError), key=lambda cls: (cls.__module__, cls.__qualname__))


@pytest.mark.parametrize("cls", error_classes(), ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_every_error_survives_pickle(cls: type[OntolakeError]) -> None:
    error = cls.__new__(cls, "said so")  # constructors differ, what is kept does not
    OntolakeError.__init__(error, "said so", hint="do this")
    error.__dict__["more"] = {"row": 3}
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert again.args == error.args
    assert again.__dict__ == error.__dict__
    assert str(again) == str(error)


def test_the_reason_of_a_fence_survives_pickle() -> None:
    error = Fenced(1, 2, reason="the lease ran out")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert "the lease ran out" in str(again)
    assert (again.held, again.current) == (1, 2)


@pytest.mark.parametrize("cls", error_classes(), ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_every_error_has_the_exit_code_of_its_group(cls: type[OntolakeError]) -> None:
    group = next(base for base in cls.__mro__ if base in GROUPS)
    assert ("exit_code" in vars(cls)) == (cls in GROUPS)
    assert cls.exit_code == GROUPS[group]
    assert isinstance(cls.exit_code, ExitCode)


def test_no_class_outside_of_errors_sets_an_exit_code_and_no_exit_is_a_bare_number() -> None:
    """Looks at the text: the modules of commands define errors too, and end with codes of their own."""
    offenders = []
    for file in SOURCES:
        text = file.read_text()
        if file == ROOT / "src" / "ontolake" / "errors.py" or "exit" not in text.lower():
            continue
        for node in ast.walk(ast.parse(text)):
            body = node.body if isinstance(node, ast.ClassDef) else []
            names = [ast.unparse(target) for one in body if isinstance(one, ast.Assign) for target in one.targets]
            bare = isinstance(node, ast.Call) and ast.unparse(node.func) in ("typer.Exit", "sys.exit") and any(
                isinstance(argument, ast.Constant) for argument in node.args)
            if "exit_code" in names or bare:
                offenders.append(f"{file.relative_to(ROOT)}:{node.lineno}")  # type: ignore[attr-defined]
    assert offenders == []


def test_the_command_line_page_has_every_exit_code() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)} == {int(code) for code in ExitCode}
