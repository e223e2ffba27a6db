"""One transaction is one commit under the next seq, or nothing at all; repeated, it is the same commit."""

from __future__ import annotations

import math
import pickle
from typing import Any

import apsw
import pytest
from documents_support import OpenSpace, add, everything, increment, rows, write

from ontolake.documents import (
    Absent,
    BranchError,
    ConflictError,
    Delete,
    Exists,
    HeadIs,
    InvalidOperationError,
    Patch,
    PatchError,
    PreconditionFailedError,
    ProtocolError,
    Read,
    Reads,
    Set,
    Space,
    UnknownBranchError,
    ValueIs,
)
from ontolake.documents.values import codec
from ontolake.errors import Invalid


def test_a_transaction_appends_one_commit_its_revisions_and_heads(space: Space) -> None:
    document = {"value": {"count": 1}}
    patch = [{"op": "add", "path": "/value/name", "value": "x"}]
    commit = space.transact("s", 5, [Set("a", document), Patch("b", patch), Delete("a")])
    assert (commit.seq, commit.id, commit.session_id, commit.local_seq, commit.branch) == (1, 1, "s", 5, "")
    assert rows(space, "revision") == [
        ("", "a", 1, 0, "set", '{"value":{"count":1}}', 1),
        ("", "a", 1, 2, "delete", None, 1),
        ("", "b", 1, 1, "patch", '[{"op":"add","path":"/value/name","value":"x"}]', 1),
    ]
    assert rows(space, "head") == [("", "a", 1, 2), ("", "b", 1, 1)]
    [(seq, branch, session, local_seq, invocation, authorization, original, resolution, _)] = rows(space, "commit")
    assert (seq, branch, session, local_seq, invocation, authorization) == (1, "", "s", 5, None, None)
    assert codec.decode(original) == {
        "localSeq": 5,
        "reads": {"confirmed": [], "pending": []},
        "operations": [
            {"op": "set", "id": "a", "value": document},
            {"op": "patch", "id": "b", "patches": patch},
            {"op": "delete", "id": "a"},
        ],
    }
    assert codec.decode(resolution) == {"seq": 1, "resolvedPendingReads": []}


def test_the_original_keeps_reads_branch_and_preconditions(space: Space) -> None:
    write(space, Set("a", {}))
    space.branches.create("side")
    write(space, Set("b", {}), branch="side", reads=Reads([Read("a", "/x", 1, "", True)]), preconditions=[Exists("a")])
    original = codec.decode(rows(space, "commit")[-1][6])
    assert original["branch"] == "side"
    assert original["reads"]["confirmed"] == [{"id": "a", "path": "/x", "seq": 1, "branch": "", "shallow": True}]
    assert original["preconditions"] == [{"kind": "exists", "id": "a"}]


def test_seqs_have_no_gaps_over_all_branches(space: Space) -> None:
    seqs = [write(space, Set("a", {})).seq]
    space.branches.create("side")
    seqs += [write(space, Set("a", {}), branch="side").seq, write(space, Set("a", {})).seq]
    space.branches.delete("side")
    seqs += [write(space, Set("a", {})).seq]
    assert seqs == [1, 3, 4, 6]
    assert [row[0] for row in rows(space, "commit")] == [1, 2, 3, 4, 5, 6]


def test_operations_on_one_entity_build_on_each_other(space: Space) -> None:
    write(space, Set("a", {"n": 0}), Patch("a", [increment()]), Delete("a"), Patch("a", [add("/n", 5)]))
    write(space, Patch("a", [increment()]), Patch("a", [increment(), increment()]))
    assert space.read("a").document == {"n": 8}
    assert space.read("a", seq=1).document == {"n": 5}


def test_an_empty_document_is_alive(space: Space) -> None:
    write(space, Set("a", {}))
    assert space.read("a").document == {}
    assert space.read("a").exists


def test_deleting_what_is_not_there_is_recorded(space: Space) -> None:
    assert write(space, Delete("a")).seq == 1
    entity = space.read("a")
    assert (entity.exists, entity.deleted, entity.changed) == (False, True, 1)


def test_a_patch_over_a_tombstone_starts_from_nothing(space: Space) -> None:
    write(space, Set("a", {"old": 1}))
    write(space, Delete("a"))
    write(space, Patch("a", [{"op": "add", "path": "/new", "value": 1}]))
    assert space.read("a").document == {"new": 1}


def test_later_changes_of_what_was_given_do_not_reach_the_space(space: Space) -> None:
    document: dict[str, Any] = {"list": [1]}
    write(space, Set("a", document))
    document["list"].append(2)
    write(space, Patch("a", [{"op": "append", "path": "/list", "value": 3}]))
    got = space.read("a").document
    assert got == {"list": [1, 3]}
    got["list"].clear()
    assert space.read("a").document == {"list": [1, 3]}
    write(space, Patch("a", [{"op": "append", "path": "/list", "value": 4}]))
    assert space.read("a").document == {"list": [1, 3, 4]}


# repeating


def test_a_repeated_request_gets_its_first_answer(space: Space, open_here: OpenSpace) -> None:
    first = space.transact("s", 1, [Patch("a", [add("/n", 1)])])
    space.transact("s", 2, [Patch("a", [increment()])])
    again = space.transact("s", 1, [Patch("a", [add("/n", 1)])])
    assert again == first
    assert space.read("a").document == {"n": 2}
    assert space.last_seq() == 2


def test_a_repeated_request_is_known_after_a_reopen(place: str, open_here: OpenSpace) -> None:
    space = open_here(place)
    first = space.transact("s", 1, [Set("a", {})], reads=Reads([Read("a", "", 0)]))
    if not place.startswith("memory:"):
        space.close()
    assert open_here(place).transact("s", 1, [Set("a", {})], reads=Reads([Read("a", "", 0)])) == first


def test_the_order_of_keys_does_not_make_it_another_request(space: Space) -> None:
    first = space.transact("s", 1, [Set("a", {"x": 1, "y": 2})])
    assert space.transact("s", 1, [Set("a", {"y": 2, "x": 1})]) == first


@pytest.mark.parametrize(
    ("operations", "options"),
    [
        ([Set("a", {"n": 2})], {}),
        ([Set("a", {"n": True})], {}),
        ([Set("b", {"n": 1})], {}),
        ([Set("a", {"n": 1}), Delete("b")], {}),
        ([], {}),
        ([Set("a", {"n": 1})], {"branch": "side"}),
        ([Set("a", {"n": 1})], {"reads": Reads([Read("z", "", 0)])}),
        ([Set("a", {"n": 1})], {"preconditions": [Absent("z")]}),
    ],
)
def test_another_request_under_the_same_local_seq_breaks_the_protocol(
    space: Space, operations: Any, options: Any
) -> None:
    space.transact("s", 1, [Set("a", {"n": 1})])
    space.branches.create("side")
    with pytest.raises(ProtocolError, match="used by this session for another request, which is commit 1"):
        space.transact("s", 1, operations, **options)
    assert space.last_seq() == 2


def test_a_repeat_is_answered_before_anything_else_is_checked(space: Space) -> None:
    """What has changed since must not turn an accepted request into a refused one."""
    space.branches.create("side")
    reads, conditions = Reads([Read("a", "", 1)]), [Absent("a")]
    first = space.transact("s", 1, [Set("a", {})], branch="side", reads=reads, preconditions=conditions)
    write(space, Set("a", {"changed": True}), branch="side")
    space.branches.delete("side")
    assert space.transact("s", 1, [Set("a", {})], branch="side", reads=reads, preconditions=conditions) == first


def test_sessions_number_their_requests_apart(space: Space) -> None:
    assert space.transact("one", 1, [Set("a", {})]).seq == 1
    assert space.transact("two", 1, [Set("a", {})]).seq == 2


def test_a_refused_request_may_be_made_again_under_the_same_local_seq(space: Space) -> None:
    with pytest.raises(PatchError):
        space.transact("s", 1, [Patch("a", [increment()])])
    assert space.transact("s", 1, [Set("a", {"n": 0})]).seq == 1


# preconditions


@pytest.mark.parametrize(
    "condition",
    [Exists("a"), Absent("b"), Absent("gone"), ValueIs("a", "/n", 1.0), ValueIs("a", "", {"n": 1, "l": [{"k": None}]}),
     ValueIs("a", "/l/0/k", None), HeadIs(2)],
)  # fmt: skip
def test_preconditions_that_hold_let_the_transaction_through(space: Space, condition: Any) -> None:
    write(space, Set("a", {"n": 1, "l": [{"k": None}]}), Set("gone", {}))
    write(space, Delete("gone"))
    assert write(space, Set("x", {}), preconditions=[condition]).seq == 3


@pytest.mark.parametrize(
    "condition",
    [Exists("b"), Exists("gone"), Absent("a"), ValueIs("a", "/n", True), ValueIs("a", "/x", None), ValueIs("b", "", {}),
     HeadIs(1), HeadIs(3)],
)  # fmt: skip
def test_preconditions_that_do_not_hold_refuse_it(space: Space, condition: Any) -> None:
    write(space, Set("a", {"n": 1}), Set("gone", {}))
    write(space, Delete("gone"))
    before = everything(space)
    with pytest.raises(PreconditionFailedError) as refused:
        write(space, Set("x", {}), preconditions=[Exists("a"), condition])
    assert (refused.value.index, refused.value.precondition) == (1, condition)
    assert everything(space) == before


def test_preconditions_look_at_the_branch_that_is_written_to(space: Space) -> None:
    write(space, Set("a", {}))
    space.branches.create("side")
    write(space, Delete("a"), branch="side")
    write(space, Set("b", {}), branch="side", preconditions=[Absent("a")])
    write(space, Set("b", {}), preconditions=[Exists("a")])
    with pytest.raises(PreconditionFailedError, match="the branch is at seq 4"):
        write(space, Set("b", {}), branch="side", preconditions=[HeadIs(2)])


def test_malformed_preconditions_are_refused(native: Space) -> None:
    for condition in (Exists(""), ValueIs("a", "x", 1), ValueIs("a", "", math.nan), HeadIs(-1), "exists", None):
        with pytest.raises(ProtocolError):
            write(native, Set("a", {}), preconditions=[condition])
    with pytest.raises(ProtocolError, match="preconditions come in a list"):
        write(native, Set("a", {}), preconditions=Exists("a"))
    assert native.last_seq() == 0


def test_preconditions_come_before_reads(space: Space) -> None:
    write(space, Set("a", {}))
    stale = Reads([Read("a", "", 0)])
    with pytest.raises(PreconditionFailedError):
        write(space, Set("b", {}), reads=stale, preconditions=[Absent("a")])
    with pytest.raises(ConflictError):
        write(space, Set("b", {}), reads=stale, preconditions=[Exists("a")])


# what is wrong leaves no trace


@pytest.mark.parametrize(
    ("bad", "path"),
    [
        (Set("b", None), ""),  # type: ignore[arg-type]
        (Set("b", [1]), ""),  # type: ignore[arg-type]
        (Set("b", "text"), ""),  # type: ignore[arg-type]
        (Set("b", {"a": {"b": math.nan}}), "/a/b"),
        (Set("b", {"a": 2**64}), "/a"),
        (Set("b", {"a": [b"bytes"]}), "/a/0"),
        (Set("", {}), ""),
        (Set("x" * 5000, {}), ""),
        (Set("nul\0", {}), ""),
        (Set("half \ud800", {}), ""),
        (Set(5, {}), ""),  # type: ignore[arg-type]
        (Delete(""), ""),
        (Patch("b", []), ""),
        (Patch("b", [{"op": "add", "path": "no-slash", "value": 1}]), "/0"),
        (Patch("b", [{"op": "test", "path": "/a", "value": 1}, {"op": "frob", "path": "/a"}]), "/1/op"),
        (Patch("b", [{"op": "add", "path": "/a", "value": {"c": math.inf}}]), "/0/value/c"),
        ({"op": "set", "id": "b", "value": {}}, ""),
        (None, ""),
    ],
)
def test_a_malformed_operation_is_refused_by_index_and_path(native: Space, bad: Any, path: str) -> None:
    write(native, Set("a", {}))
    before = everything(native)
    with pytest.raises(InvalidOperationError) as refused:
        write(native, Set("a", {"changed": 1}), bad)
    assert (refused.value.operation, refused.value.path) == (1, path)
    assert "operation 1" in str(refused.value)
    assert isinstance(refused.value, ValueError)
    assert refused.value.exit_code == 2
    assert everything(native) == before
    assert write(native, Set("a", {})).seq == 2, "no seq was used"


def test_a_patch_that_does_not_fit_rejects_the_whole_commit(space: Space) -> None:
    write(space, Set("a", {"n": 1}))
    before = everything(space)
    with pytest.raises(PatchError) as refused:
        write(space, Set("b", {}), Patch("a", [increment("/n"), {"op": "test", "path": "/n", "value": 1}]))
    assert (refused.value.operation, refused.value.patch, refused.value.path) == (1, 1, "/n")
    assert everything(space) == before
    assert write(space, Patch("a", [increment()])).seq == 2
    assert space.read("a").document == {"n": 2}


def test_a_transaction_needs_an_operation(space: Space) -> None:
    with pytest.raises(InvalidOperationError, match="at least one operation"):
        space.transact("s", 1, [])
    for operations in (Set("a", {}), None, 5):
        with pytest.raises(InvalidOperationError, match="operations come in a list"):
            space.transact("s", 1, operations)  # type: ignore[arg-type]
    assert space.last_seq() == 0


@pytest.mark.parametrize(
    ("session_id", "local_seq"),
    [("", 1), (None, 1), (5, 1), ("a\0b", 1), ("\ud800", 1), ("s", -1), ("s", 1.0), ("s", True), ("s", 2**63)],
)
def test_a_session_that_cannot_be_is_refused(native: Space, session_id: Any, local_seq: Any) -> None:
    with pytest.raises(ProtocolError):
        native.transact(session_id, local_seq, [Set("a", {})])
    assert native.last_seq() == 0


def test_writing_needs_a_branch_that_lives(space: Space) -> None:
    with pytest.raises(UnknownBranchError):
        write(space, Set("a", {}), branch="nowhere")
    for name in (None, 5, "nul\0"):
        with pytest.raises(ProtocolError):
            write(space, Set("a", {}), branch=name)
    space.branches.create("side")
    space.branches.delete("side")
    with pytest.raises(BranchError, match="was deleted"):
        write(space, Set("a", {}), branch="side")
    assert space.last_seq() == 2


def test_a_document_that_patches_make_too_big_is_refused(native: Space, monkeypatch: Any) -> None:
    native.snapshots.policy = type(native.snapshots.policy)(every=1)
    write(native, Set("a", {}))
    monkeypatch.setattr(codec, "MAX_BYTES", 1000)
    write(native, Patch("a", [{"op": "add", "path": "/x", "value": "x" * 600}]))
    with pytest.raises(InvalidOperationError, match="1,000 are the limit") as refused:
        write(native, Set("b", {}), Patch("a", [{"op": "add", "path": "/y", "value": "y" * 600}]))
    assert refused.value.operation == 1
    assert native.last_seq() == 2


def test_a_transaction_that_no_row_can_hold_is_refused(space: Space) -> None:
    write(space, Set("a", {}))
    before = everything(space)
    space._database.connection.limit(apsw.SQLITE_LIMIT_LENGTH, 100_000)
    with pytest.raises(Invalid, match="more than one commit can hold") as refused:
        write(space, *(Set(f"part-{number}", {"text": "x" * 30_000}) for number in range(4)))
    assert refused.value.hint == "make several transactions of it"
    assert everything(space) == before
    assert write(space, Set("a", {})).seq == 2


def test_big_integers_come_back_exact(space: Space) -> None:
    write(space, Set("a", {"n": 2**64 - 1, "m": -(2**63)}))
    write(space, Patch("a", [{"op": "increment", "path": "/m", "by": 1}]))
    assert space.read("a").document == {"n": 2**64 - 1, "m": -(2**63) + 1}


def test_errors_survive_the_way_between_processes() -> None:
    error = ConflictError("a", 1, 2)
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), back.of, back.seq, back.conflict_seq) == (ConflictError, str(error), "a", 1, 2)
    unknown = pickle.loads(pickle.dumps(UnknownBranchError("x")))
    assert unknown.branch == "x"
    assert str(unknown) == str(UnknownBranchError("x"))


def test_a_commit_is_written_with_few_statements(native: Space) -> None:
    """One begin, one look, four writes, one commit: what a transaction costs does not creep up unnoticed."""
    write(native, Set("a", {"n": 0}))
    seen: list[str] = []
    native._database.connection.trace_v2(1, lambda event: seen.append(event["sql"]))  # SQLITE_TRACE_STMT
    write(native, Patch("a", [increment()]))
    native._database.connection.trace_v2(0, None)
    assert [sql.split()[0] for sql in seen] == ["BEGIN", "SELECT", "INSERT", "INSERT", "INSERT", "UPDATE", "COMMIT"]
