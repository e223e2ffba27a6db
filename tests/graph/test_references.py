"""Branches of a dataset by their files: the same as Lance says, at a cost that does not grow with their number."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ontolake.graph import references
from ontolake.graph.references import BranchReferences

lance = pytest.importorskip("lance")


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(references, "_SETTLED", -10**9)  # files are trusted at once
    return lance.write_dataset(pa.table({"a": [1]}), str(tmp_path / "d"))


def branch(dataset: Any, *names: str, parent: str | None = None) -> None:
    for name in names:
        dataset.create_branch(name, (parent, None))


def read_bytes() -> int:
    """The bytes that this process has read, ever."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def agree(kept: BranchReferences, dataset: Any) -> dict[str, Any]:
    """What is kept is what Lance lists."""
    found = kept.list(dataset)
    assert found == dict(sorted(dataset.branches.list().items()))
    return found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the bytes that a process reads are counted by Linux")
def test_lists_and_deletions_read_no_other_branch(dataset: Any) -> None:
    costs = []
    kept = BranchReferences(dataset.uri)
    for count in (5, 40):
        branch(dataset, *(f"b{count}-{number}" for number in range(count)))
        kept.list(dataset)
        before = read_bytes()
        for number in range(4):
            kept.list(dataset)
            kept.delete(dataset, f"b{count}-{number}")
        costs.append(read_bytes() - before)
        agree(kept, dataset)
    few, many = costs
    assert many < few + 4096


def test_what_others_make_and_delete_is_seen(dataset: Any) -> None:
    kept, other = BranchReferences(dataset.uri), lance.dataset(dataset.uri)
    assert agree(kept, dataset) == {}
    branch(other, "a", "b")
    first = agree(kept, dataset)["a"]
    other.branches.delete("a")
    assert list(agree(kept, dataset)) == ["b"]
    branch(other, "a")
    assert agree(kept, dataset)["a"]["branch_identifier"] != first["branch_identifier"]


def test_young_files_are_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A branch that takes the place of another within the resolution of the clock may have the same file."""
    dataset = lance.write_dataset(pa.table({"a": [1]}), str(tmp_path / "d"))
    kept = BranchReferences(dataset.uri)
    monkeypatch.setattr(kept, "_files", lambda: {"a": (2**62, 2**62, 1, 1)})
    for _ in range(3):
        branch(dataset, "a")
        agree(kept, dataset)
        dataset.branches.delete("a")


def test_a_branch_that_others_were_made_from_is_left_to_lance(dataset: Any) -> None:
    kept = BranchReferences(dataset.uri)
    branch(dataset, "a")
    branch(dataset, "b", parent="a")
    with pytest.raises((ValueError, OSError)):
        kept.delete(dataset, "a")
    assert list(agree(kept, dataset)) == ["a", "b"]
    assert lance.dataset(dataset.uri).checkout_version(("b", None)).to_table().num_rows == 1
    kept.delete(dataset, "b")
    kept.delete(dataset, "a")
    assert agree(kept, dataset) == {}
    assert not (Path(dataset.uri) / "tree" / "a").exists()


def test_folders_within_those_of_a_deleted_branch_stay(dataset: Any) -> None:
    kept = BranchReferences(dataset.uri)
    branch(dataset, "a", "a/b")
    kept.delete(dataset, "a")
    assert list(agree(kept, dataset)) == ["a/b"]
    assert lance.dataset(dataset.uri).checkout_version(("a/b", None)).to_table().num_rows == 1


def test_a_missing_branch_is_told_as_lance_tells_it(dataset: Any) -> None:
    with pytest.raises((ValueError, OSError), match="nope"):
        BranchReferences(dataset.uri).delete(dataset, "nope")
