"""Errors become problem documents with a status that says what the caller should do, and never a traceback."""

import pytest

from ontolake import errors
from ontolake.history.errors import ProtectedBranchError, UnknownBranchError
from ontolake.server.problems import RefusedError, problem_of, status_of


@pytest.mark.parametrize(("error", "status"), [
    (UnknownBranchError("try"), 404),
    (ProtectedBranchError("main"), 403),
    (errors.Invalid("no"), 400),
    (errors.Contended("busy"), 409),
    (errors.Transient("later"), 503),
    (RefusedError(412, "the head has moved"), 412),
    (ZeroDivisionError("secret"), 500),
])  # fmt: skip
def test_an_error_has_the_status_of_its_group(error: Exception, status: int) -> None:
    assert status_of(error) == status


def test_an_error_of_ours_is_shown_with_its_class_its_fields_and_its_hint() -> None:
    problem = problem_of(UnknownBranchError("try"), "r1")
    assert (problem.type, problem.fields, problem.request_id) == ("UnknownBranchError", {"branch": "try"}, "r1")
    assert problem.hint


def test_an_error_of_somebody_else_shows_nothing_of_itself() -> None:
    problem = problem_of(ZeroDivisionError("secret"))
    assert "secret" not in repr(problem)
