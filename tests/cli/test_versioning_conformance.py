"""`onto versioning conformance` runs the published suite of history on a place of the user's own."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from ontolake.errors import Invalid
from ontolake.history.conformance.run import adapter_named, run

JOINED = [model for model, package in (("documents", "documents"), ("graph", "graph"), ("sql", "sql"),
                                       ("typed", "ontology")) if find_spec(f"ontolake.{package}.conformance")]


@pytest.mark.slow
def test_the_smallest_model_passes_in_memory() -> None:
    chosen = "merge and not random and not processes"
    results = run("reference_store:ReferenceAdapter", "memory://versioning", only=chosen)
    assert {one.outcome for one in results} == {"passed"}
    assert len(results) > 5


def test_an_adapter_is_named_by_its_module() -> None:
    assert adapter_named("reference_store").__name__ == "ReferenceAdapter"
    for wrong in ("reference_store:Nothing", "no.such.module", "json"):
        with pytest.raises(Invalid, match="adapter"):
            adapter_named(wrong)


def test_wrong_arguments(onto, tmp_path: Path) -> None:
    assert onto("versioning", "conformance", f"{tmp_path}/").code == 2
    assert onto("versioning", "conformance", f"{tmp_path}/", "--model", "spreadsheet").code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("model", JOINED)
def test_a_model_that_keeps_its_promises(program, tmp_path: Path, model: str) -> None:
    done = program("versioning", "conformance", f"{tmp_path}/", "--model", model, "--quick", "--only", "tag", "--json")
    assert (done.code, done.err) == (0, "")
    assert (done.document["ok"], done.document["model"]) == (True, model)
    assert list(tmp_path.iterdir()) == []
