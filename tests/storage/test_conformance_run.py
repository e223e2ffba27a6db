"""Running the suite from a program: results as they come, and nothing left behind."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

from ontolake.errors import Invalid
from ontolake.objects import open_store
from ontolake.storage.conformance.run import run
from ontolake.suites import CaseResult

QUICK = "test_an_empty_store_stands or test_two_processes_take or test_a_mistake or test_killed_at_any"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x.db", "dir", "new/dir"])
def test_a_local_place_is_left_as_it_was(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.db").write_bytes(b"somebody's own")
    results = run(f"file://{tmp_path}/{name}", knobs={"cache_bytes": 0}, only=QUICK)
    assert {result.outcome for result in results} == {"passed"}
    assert {result.topic for result in results} == {"C1, C5 durability", "C2 order", "C4 takeover", "Bad input"}
    assert os.listdir(tmp_path) == ["x.db"]
    assert (tmp_path / "x.db").read_bytes() == b"somebody's own"


@pytest.mark.slow
def test_results_come_one_by_one_and_say_why() -> None:
    seen: list[CaseResult] = []
    results = run("memory://run/prefix", only=QUICK, on_result=seen.append)
    assert seen == results
    skipped = [result for result in results if result.outcome == "skipped"]
    assert [(result.test, result.message) for result in skipped] == [
        ("test_killed_at_any_moment", "the store ends with its process")
    ]
    assert all(result.seconds >= 0 and result.topic for result in results)
    assert list(open_store("memory://run/prefix").list()) == []


@pytest.mark.slow
def test_a_bucket_is_left_as_it_was(ministack_url: str) -> None:
    store = open_store(ministack_url)
    store.put("mine", b"untouched")
    results = run(ministack_url, only=QUICK)
    assert {result.outcome for result in results} == {"passed"}
    assert [info.key for info in store.list()] == ["mine"]


@pytest.mark.parametrize("url", ["gopher://x/y", "x.db", "sqlite:///x.db", ""])
def test_a_place_without_pages_is_refused(url: str) -> None:
    with pytest.raises(Invalid):
        run(url)


def test_a_wrong_knob_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="nonsense"):
        run(f"file://{tmp_path}/x", knobs={"nonsense": 1})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_expression_that_selects_nothing_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="no test"):
        run(f"file://{tmp_path}/x", only="nothing_of_that_name")


@pytest.mark.parametrize("missing", ["pytest", "hypothesis"])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    find = importlib.util.find_spec

    def without(name: str, *arguments: Any) -> Any:
        return None if name == missing else find(name, *arguments)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(Invalid, match=missing):
        run("memory://x")
