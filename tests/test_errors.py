"""Errors cross processes whole: Spark's workers and process pools send them by pickle."""

from __future__ import annotations

import importlib
import pickle
import pkgutil

import pytest

import ontolake
from ontolake.errors import Fenced, OntolakeError


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
