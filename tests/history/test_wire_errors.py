"""An error that went from a server to a client is the error that it was."""

from __future__ import annotations

import importlib
import pkgutil
from datetime import date
from typing import Any

import msgspec
import pytest

import ontolake
from ontolake.documents import errors as documents
from ontolake.errors import Invalid, OntolakeError
from ontolake.history import Conflict, ConflictKind, MergeConflictError, UnknownBranchError
from ontolake.history.wire_errors import classes_of, fields_of, rebuild


def every_class() -> list[type[OntolakeError]]:
    def below(cls: type[OntolakeError]) -> set[type[OntolakeError]]:
        return {cls}.union(*(below(each) for each in cls.__subclasses__()))

    for module in pkgutil.walk_packages(ontolake.__path__, "ontolake."):
        if module.name.endswith("errors"):
            importlib.import_module(module.name)
    return sorted((cls for cls in below(OntolakeError) if cls.__module__.startswith("ontolake.")
                   and cls.__module__.endswith("errors")), key=lambda cls: f"{cls.__module__}.{cls.__name__}")


def sent(error: OntolakeError) -> Any:
    """What arrives of an error."""
    classes, fields = msgspec.json.decode(msgspec.json.encode([classes_of(error), fields_of(error)]))
    return rebuild(classes, error.message, fields)


@pytest.mark.parametrize("cls", [cls for cls in every_class() if cls is not OntolakeError],
                         ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_every_class_of_errors_arrives_as_itself(cls: type[OntolakeError]) -> None:
    error = cls.__new__(cls, "said so")
    OntolakeError.__init__(error, "said so", hint="do this")
    error.__dict__["more"] = {"key": (1, b"x", date(2026, 1, 1))}
    back = sent(error)
    assert type(back) is cls
    assert (str(back), back.hint, back.__dict__) == (str(error), "do this", error.__dict__)


def test_errors_of_one_name_in_two_models_are_not_confused() -> None:
    assert type(sent(UnknownBranchError("try"))) is UnknownBranchError
    back = sent(documents.UnknownBranchError("try"))
    assert type(back) is documents.UnknownBranchError
    assert back.branch == "try"


def test_conflicts_arrive_with_their_keys_and_values() -> None:
    conflict = Conflict("t", ("a", 1), ConflictKind.DIVERGENT_UPDATE, "f", b"1", None, date(2026, 1, 1))
    assert sent(MergeConflictError("try", "main", [conflict])).conflicts == (conflict,)


def test_a_class_that_is_not_known_becomes_the_nearest_group_that_is() -> None:
    names = ["ontolake.later.errors.NewError", "ontolake.errors.Nothing", "ontolake.errors.Invalid"]
    assert type(rebuild(names, "no", {})) is Invalid


@pytest.mark.parametrize("name", ["builtins.SystemExit", "os.errors.X", "ontolake.errors.Any", "ontolake.cli.sql", "",
                                  "ontolake.errors.OntolakeError"])  # fmt: skip
def test_nothing_but_errors_of_ours_is_built(name: str) -> None:
    assert rebuild([name], "no", {}) is None


def test_what_has_no_form_is_left_out() -> None:
    error = Invalid("no")
    error.__dict__["thing"] = object()
    assert fields_of(error) == {"message": "no", "hint": None}
