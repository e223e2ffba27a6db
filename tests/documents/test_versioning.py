"""What the one history of all models means for documents in particular; the rest is in the conformance suite."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from documents_support import OpenSpace, add, everything, increment, rows, write

from ontolake.documents import (
    BranchExistsError,
    Delete,
    MergeConflictError,
    Patch,
    Read,
    Reads,
    Set,
    Space,
    UnknownBranchError,
    UnknownCommitError,
    meta_id,
)
from ontolake.documents.values import codec
from ontolake.errors import Invalid, NotFound
from ontolake.history import Ref, Resolution, Value, VersionControlled
from ontolake.history.errors import ProtectedBranchError, TagExistsError


def test_a_space_is_version_controlled(space: Space) -> None:
    assert isinstance(space, VersionControlled)


# names and references


def test_main_is_the_first_branch_everywhere(space: Space) -> None:
    write(space, Set("a", {"n": 1}), branch="main")
    space.branches.create("side", parent="main")
    write(space, Set("a", {"n": 2}), branch="side")
    assert space.merge("side", "main").into == "main"
    assert space.read("a", branch="main").document == space.read("a").document == {"n": 2}
    assert [branch.name for branch in space.branches.list()] == ["", "side"]
    assert dict(space.at("main").rows()) == {"a": {"n": 2}}
    with pytest.raises(BranchExistsError, match="is there already"):
        space.branches.create("main")
    with pytest.raises(TagExistsError):
        space.tags.create("main")
    with pytest.raises(Invalid, match="into itself"):
        space.merge("main", "")


def test_a_branch_called_main_of_an_old_space_keeps_its_name(native: Space) -> None:
    write(native, Set("a", {"n": 1}))
    native.branches.create("other")
    with native._database.write as connection:
        connection.execute("PRAGMA defer_foreign_keys = ON")
        connection.execute("UPDATE branch SET name = 'main' WHERE name = 'other'")
        connection.execute("""UPDATE "commit" SET branch = 'main' WHERE branch = 'other'""")
    write(native, Set("a", {"n": 2}), branch="main")
    assert (native.read("a").document, native.read("a", branch="main").document) == ({"n": 1}, {"n": 2})
    assert native.merge("main", "").commit is not None
    assert native.read("a").document == {"n": 2}


def test_a_commit_is_found_on_whichever_branch_it_is(space: Space) -> None:
    write(space, Set("a", {"n": 1}))
    space.branches.create("side")
    there = write(space, Set("a", {"n": 2}), branch="side").seq
    write(space, Set("a", {"n": 3}))
    assert dict(space.snapshot(there).rows()) == {"a": {"n": 2}}
    assert space.snapshot(there).branch == "side"
    assert dict(space.snapshot(there, branch="").rows()) == {"a": {"n": 1}}, "the first branch at that moment"
    assert dict(space.at(Ref.parse(f"@{there}")).rows()) == {"a": {"n": 2}}
    with pytest.raises(UnknownCommitError):
        space.at(f"main@{there}")


def test_a_renamed_branch_is_called_so_everywhere(native_place: str, open_here: OpenSpace) -> None:
    space, other = open_here(native_place), open_here(native_place)
    write(space, Set("a", {}))
    space.branches.create("side")
    made = write(space, Set("b", {}), branch="side")
    assert space._database.connection.pragma("user_version") == 1
    space.branches.rename("side", "better")
    assert space._database.connection.pragma("user_version") == 2, "older versions do not know the new name"
    assert other.branches.get("better").head == made.seq
    with pytest.raises(UnknownBranchError):
        other.read("b", branch="side")
    assert write(other, Set("c", {}), branch="better").branch == "better"
    assert {commit.branch for commit in space.commits(branch="better")} == {"", "better"}
    space.branches.create("side")
    assert not space.read("b", branch="side").exists
    space.branches.rename("side", "third")
    space.branches.rename("better", "side")
    assert space.read("b", branch="side").exists
    assert [branch.name for branch in space.branches.list()] == ["", "side", "third"]
    assert list(space.verify()) == []
    assert open_here(native_place, readonly=True).read("b", branch="side").exists


def test_verify_finds_tags_of_nothing_and_names_of_several(native: Space) -> None:
    write(native, Set("a", {}))
    native.tags.create("v1")
    for name in ("one", "two"):
        native.branches.create(name)
        native.branches.rename(name, f"{name}-new")
    native._database.connection.pragma("foreign_keys", False)
    with native._database.write as connection:
        connection.execute("UPDATE tag SET seq = 99")
        connection.execute("UPDATE branch_name SET name = 'same'")
    found = {damage.where for damage in native.verify()}
    assert {"tag 'v1'", "branch 'same'"} <= found


def test_branches_and_tags_copy_nothing(native: Space) -> None:
    write(native, *(Set(f"e{number}", {}) for number in range(100)))
    before = everything(native)
    native.tags.create("v1")
    native.branches.create("side")
    native.branches.protect("side")
    after = everything(native)
    assert {table for table in before if after[table] != before[table]} == {"commit", "branch"}


def test_a_hundred_branches_are_deleted_in_seconds(native: Space) -> None:
    write(native, *(Set(f"e{number}", {}) for number in range(1000)))
    for number in range(100):
        native.branches.create(f"b{number}")
    begun = time.monotonic()
    for number in range(100):
        native.branches.delete(f"b{number}")
    assert time.monotonic() - begun < 5
    assert len(native.branches.list()) == 1


def test_a_protected_branch_takes_no_transaction_of_any_kind(native: Space) -> None:
    write(native, Set("a", {}))
    native.branches.protect("main")
    before = everything(native)
    with pytest.raises(ProtectedBranchError):
        write(native, Set("a", {"n": 1}))
    with pytest.raises(ProtectedBranchError):
        native.put_blob(b"x", metadata={})
    assert everything(native) == before


def test_a_reader_changes_nothing(native_place: str, open_here: OpenSpace) -> None:
    space = open_here(native_place)
    write(space, Set("a", {"n": 1}))
    space.branches.create("side")
    made = write(space, Set("a", {"n": 2}), branch="side")
    reader = open_here(native_place, readonly=True)
    before = everything(space)
    for change in (
        lambda: reader.merge("side"), lambda: reader.cherry_pick(made.seq), lambda: reader.tags.create("v1"),
        lambda: reader.branches.rename("side", "b"), lambda: reader.branches.protect("side"),
        lambda: reader.revert(made.seq, branch="side"), lambda: reader.restore(made.seq),
        lambda: reader.erase("documents", "a", reason="none", dry_run=False),
    ):  # fmt: skip
        with pytest.raises(Invalid):
            change()
    assert everything(space) == before
    assert reader.merge("side", dry_run=True).status == "fast_forward"
    reader.close()
    for use in (
        lambda: reader.merge("side"), lambda: reader.revert(made.seq, branch="side"), lambda: reader.tags.list(),
        lambda: reader.at("side"), lambda: reader.blame("documents", "a"), lambda: reader.branches.protect("side"),
        lambda: reader.erase("documents", "a", reason="none", dry_run=False),
    ):  # fmt: skip
        with pytest.raises(Invalid, match="is closed"):
            use()


# merges by path


def test_resolutions_by_path_and_by_document(space: Space) -> None:
    write(space, Set("a", {"x": {"n": 1}, "y": 1}), Set("b", {"n": 1}))
    space.branches.create("side")
    write(space, Patch("a", [add("/x/n", 2), add("/y", 2)]), Delete("b"), branch="side")
    write(space, Patch("a", [add("/x/n", 3), add("/y", 3)]), Set("b", {"n": 2}))
    with pytest.raises(MergeConflictError) as refused:
        space.merge("side")
    assert [(one.key, one.field) for one in refused.value.conflicts] == [("a", "/x/n"), ("a", "/y"), ("b", None)]
    space.merge("side", resolutions=[
        Resolution("documents", "a", "/x/n", Value([1, 2])), Resolution("documents", "a", "/y", "theirs"),
        Resolution("documents", "b", None, Value({"new": True}))])  # fmt: skip
    assert dict(space.snapshot().rows()) == {"a": {"x": {"n": [1, 2]}, "y": 2}, "b": {"new": True}}


def test_elements_of_arrays_merge_by_identity(space: Space) -> None:
    write(space, Set("a", {"lines": [{"id": 1, "n": 1}, {"id": 2, "n": 1}]}))
    space.branches.create("side")
    write(space, Set("a", {"lines": [{"id": 1, "n": 5}, {"id": 2, "n": 1}, {"id": 3}]}), branch="side")
    write(space, Set("a", {"lines": [{"id": 1, "n": 1}, {"id": 2, "n": 7}]}))
    space.merge("side")
    assert space.read("a").document == {"lines": [{"id": 1, "n": 5}, {"id": 2, "n": 7}, {"id": 3}]}


# blame


def test_blame_and_history_of_nested_fields(space: Space) -> None:
    first = write(space, Set("a", {"x": {"y": 1, "z": {}}, "list": [1]})).seq
    space.branches.create("side")
    second = write(space, Patch("a", [add("/x/y", 2)]), branch="side").seq
    third = write(space, Patch("a", [{"op": "append", "path": "/list", "value": 2}])).seq
    space.merge("side")
    assert {field: commit.id for field, commit in space.blame("documents", "a").items()} == {
        "/x/y": second, "/x/z": first, "/list": third}
    assert {commit.id for commit in space.blame("documents", "a", ref=f"@{first}").values()} == {first}
    versions = list(space.history("documents", "a"))
    assert [version.commit.id for version in versions][1:] == [third, second, first]
    assert versions[0].row == {"x": {"y": 2, "z": {}}, "list": [1, 2]}, "the merge made a state of its own"
    for call in (lambda: space.blame("other", "a"), lambda: space.history("other", "a")):
        with pytest.raises(NotFound):
            call()


@pytest.mark.slow
def test_blame_of_a_thousand_versions_is_quick(native: Space) -> None:
    write(native, Set("a", {"n": 0, "m": {"k": 1}}))
    for _ in range(1000):
        write(native, Patch("a", [increment()]))
    begun = time.perf_counter()
    blamed = native.blame("documents", "a")
    assert time.perf_counter() - begun < 0.5
    assert {field: commit.id for field, commit in blamed.items()} == {"/n": 1001, "/m/k": 1}


# erasure


def test_an_erasure_takes_out_payloads_reads_and_own_blobs(native_place: str, open_here: OpenSpace) -> None:
    space, other = open_here(native_place), open_here(native_place)
    own, common = space.put_blob(b"own" * 50), space.put_blob(b"common" * 50, metadata={"name": "both"})
    write(space, Set("secret-id", {"own": own, "common": common, "name": "Eve"}), Set("b", {"n": 1}))
    write(other, Patch("secret-id", [add("/name", "Adam")]))
    write(space, Set("c", {}), reads=Reads([Read("secret-id", "", space.last_seq())]))
    last = space.last_seq()
    assert space.erase("documents", "secret-id", reason="by law", author="ada").items == 3
    assert space.last_seq() == last, "a dry run"
    space.erase("documents", "secret-id", reason="by law", author="ada", dry_run=False)
    assert not space.read("secret-id", seq=last).exists
    with pytest.raises(NotFound):
        space.get_blob(own)
    assert space.get_blob(common).size == 300
    assert space.read(meta_id(common)).exists
    audit = next(space.commits())
    assert (audit.message, audit.author) == ("by law", "ada")
    payload: Any = codec.decode(rows(space, "commit")[last - 1][6])
    assert (payload["operations"][0]["id"], payload["reads"]["confirmed"], payload["erased"]) == ("c", [], 1)
    write(other, Patch("secret-id", [add("/fresh", 1)]))
    assert other.read("secret-id").document == {"fresh": 1}, "nothing that another process remembers comes back"
    assert list(space.verify()) == []
    folder = Path(native_place)
    stored = b"".join(path.read_bytes() for path in folder.iterdir())
    assert b"Eve" not in stored
    assert b"Adam" not in stored
    assert b"ownown" not in stored


@pytest.mark.parametrize("reason", ["", " ", None, 5, "because of secret-id"])
def test_an_erasure_needs_a_reason_that_does_not_name_the_document(native: Space, reason: Any) -> None:
    write(native, Set("secret-id", {}))
    with pytest.raises(Invalid):
        native.erase("documents", "secret-id", reason=reason, dry_run=False)
    assert native.read("secret-id").exists
