"""`onto docs`: what can be done to documents from a shell, and how it ends when it cannot."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from documents_support import start_child

from ontolake.cli import main


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Docs = Callable[..., Done]


@pytest.fixture
def docs(capfd: pytest.CaptureFixture[str], native_place: str, monkeypatch: pytest.MonkeyPatch) -> Docs:
    """Runs `onto docs COMMAND URL SPACE …` in this process."""

    def run(command: str, *arguments: str, stdin: str = "") -> Done:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        capfd.readouterr()
        code = main(["docs", *command.split(), native_place, "shop", *arguments])
        return Done(code, *capfd.readouterr())

    return run


def test_put_and_get(docs: Docs) -> None:
    assert docs("put", "a", '{"value": {"n": 1}}').out == "committed as seq 1\n"
    assert docs("get", "a").document == {"value": {"n": 1}}
    assert docs("put", "a", "-", stdin='{"n": 18446744073709551615}').code == 0
    assert docs("get", "a", "--json").document == {"id": "a", "branch": "", "seq": 2, "changed": 2,
                                                   "document": {"n": 2**64 - 1}}  # fmt: skip
    assert docs("get", "a", "--seq", "1").document == {"value": {"n": 1}}


def test_list(docs: Docs) -> None:
    for id, document in (("b", '{"n": 1}'), ("a", '{"n": 2}'), ("b", '{"n": 3}')):
        docs("put", id, document)
    assert docs("list").out == 'id\tdocument\na\t{"n":2}\nb\t{"n":3}\n'
    assert docs("list", "--seq", "1", "--json").document == {
        "branch": "", "seq": 1, "documents": [{"id": "b", "document": {"n": 1}}]}
    assert docs("list", "--limit", "1").out.count("\n") == 2
    assert "see onto docs list" in docs("get", "c").err


def test_patch_and_delete(docs: Docs) -> None:
    docs("put", "a", '{"n": 1}')
    done = docs("patch", "a", '[{"op": "increment", "path": "/n", "by": 2}]', "--json")
    assert {key: done.document[key] for key in ("seq", "branch", "parents")} == {"seq": 2, "branch": "", "parents": [1]}
    assert docs("get", "a").document == {"n": 3}
    assert docs("delete", "a").code == 0
    gone = docs("get", "a")
    assert (gone.code, gone.out) == (5, "")
    assert "'a' was deleted at seq 3" in gone.err
    assert "is not there" in docs("get", "b").err


@pytest.mark.parametrize(
    ("command", "arguments", "code", "words"),
    [
        ("put", ("a", "{nonsense"), 2, "not JSON"),
        ("put", ("a", "[1]"), 2, "operation 0: a document is a JSON object"),
        ("put", ("a", '{"n": 18446744073709551616}'), 2, "operation 0 at '/n': an integer beyond 64 bits"),
        ("put", ("", "{}"), 2, "an id has 1 to"),
        ("put", ("a", "{}", "--branch", "no"), 2, "there is no branch 'no'"),
        ("patch", ("a", '[{"op": "explode", "path": "/x"}]'), 2, "operation 0 at '/0/op'"),
        ("patch", ("a", '[{"op": "remove", "path": "/x"}]'), 4, "operation 0 at '/x': patch 0 does not fit"),
        ("put", ("a", "{}", "--unless-changed-since", "1"), 6, "it was read at seq 1 and changed at seq 2"),
        ("delete", ("a", "--unless-changed-since", "9"), 2, "names seq 9, but the last commit is 2"),
        ("get", ("a", "--seq", "9"), 2, "names seq 9"),
        ("branch create", ("bad\nname",), 2, "cannot be"),
        ("branch delete", ("",), 2, "is the first one"),
        ("merge", ("",), 2, "into itself"),
        ("merge", ("no",), 2, "there is no branch"),
        ("blob get", ("0" * 64,), 5, "there is no blob"),
        ("blob get", ("xyz",), 2, "not the hash of a blob"),
        ("diff", ("@x",), 2, "is not a seq"),
        ("watch", ("a", "--prefix", "b"), 2, "not both"),
    ],
)
def test_what_is_wrong_ends_with_its_own_code(docs: Docs, command: str, arguments: Any, code: int, words: str) -> None:
    docs("put", "a", "{}")
    docs("put", "a", "{}")
    done = docs(command, *arguments)
    assert (done.code, done.out) == (code, "")
    assert words in done.err
    assert docs("log", "--json").document["commits"][0]["seq"] == 2, "no seq was used"


def test_reading_makes_no_space(docs: Docs, native_place: str) -> None:
    for command in ("get", "history"):
        assert docs(command, "a").code == 5
    assert docs("log").code == 5
    assert list(Path(native_place).iterdir()) == []


def test_history_and_log(docs: Docs) -> None:
    docs("put", "a", '{"n": 1}')
    docs("put", "b", "{}")
    docs("delete", "a")
    revisions = docs("history", "a", "--json").document["revisions"]
    told = [(each["seq"], each["op"], each["document"]) for each in revisions]
    assert told == [(1, "set", {"n": 1}), (3, "delete", None)]
    assert docs("history", "a").out.splitlines() == ["seq\top\tbranch\tdocument", '1\tset\t(first)\t{"n":1}',
                                                     "3\tdelete\t(first)\t-"]  # fmt: skip
    assert [each["seq"] for each in docs("log", "--json").document["commits"]] == [3, 2, 1]
    assert [each["seq"] for each in docs("log", "--json", "--since", "1", "--limit", "1").document["commits"]] == [3]
    assert len(docs("log").out.splitlines()) == 4


def test_branch_diff_and_merge(docs: Docs) -> None:
    docs("put", "a", '{"n": 1}')
    assert docs("branch create", "side").out == "created branch side at seq 1\n"
    docs("put", "a", '{"n": 2}', "--branch", "side")
    docs("put", "b", "{}", "--branch", "side")
    changes = docs("diff", "side", "--json").document["changes"]
    assert [(each["id"], each["kind"]) for each in changes] == [("a", "update"), ("b", "insert")]
    assert docs("diff", "side@3", "@0").out.splitlines()[1:] == ['insert\ta\t{"n":2}']
    plan = docs("merge", "side", "--dry-run")
    assert plan.out == "1 inserted, 1 updated, 0 deleted\nnothing was committed\n"
    assert docs("merge", "side").out == "1 inserted, 1 updated, 0 deleted\nmerged as seq 5\n"
    assert docs("merge", "side").out == "nothing was committed\n"
    assert docs("get", "a").document == {"n": 2}


def test_conflicts_are_shown_and_decided(docs: Docs) -> None:
    docs("put", "a", '{"n": 1}')
    docs("branch create", "side", "--from", "", "--at", "1")
    docs("put", "a", '{"n": 2}', "--branch", "side")
    docs("put", "a", '{"n": 3}')
    refused = docs("merge", "side")
    assert (refused.code, refused.out) == (6, "conflict: a at /n\n")
    assert "'side' cannot be merged into 'main'" in refused.err
    assert "--prefer source" in refused.err
    assert "--prefer source" in json.loads(docs("merge", "side", "--json").err)["error"]["hint"]
    assert docs("merge", "side", "--prefer", "nobody").code == 2
    assert [each["field"] for each in docs("merge", "side", "--dry-run", "--json").document["conflicts"]] == ["/n"]
    assert docs("merge", "side", "--prefer", "source", "--json").document["tables"]["documents"]["updated"] == 1
    assert docs("get", "a").document == {"n": 2}


def test_deleting_a_branch_needs_the_token_of_its_preview(docs: Docs) -> None:
    docs("put", "a", "{}")
    docs("branch create", "side")
    preview = docs("branch delete", "side")
    assert "would end branch side" in preview.out
    token = preview.out.split()[-1]
    assert docs("branch delete", "side", "--token", "wrong").code == 7
    docs("put", "a", "{}", "--branch", "side")
    assert docs("branch delete", "side", "--token", token).code == 7, "it has moved since"
    token = docs("branch delete", "side", "--json").document["token"]
    assert docs("branch delete", "side", "--token", token).out == "deleted branch side\n"
    names = [each["name"] for each in docs("branch list", "--json").document["branches"]]
    assert names == [""]
    listed = docs("branch list", "--deleted").out.splitlines()
    assert listed[1:] == ["(first)\t-\t-\t1\tactive", "side\t(first)\t1\t3\tdeleted"]


def test_blobs(docs: Docs, tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(b"plain bytes")
    hash = docs("blob put", str(tmp_path / "picture"), "--type", "image/png", "--metadata", '{"name": "x"}').out.strip()
    assert docs("blob get", hash).out == "plain bytes"
    assert docs("blob get", hash, "--json").document == {"hash": hash, "content_type": "image/png", "size": 11}
    assert docs("get", f"urn:blob-meta:{hash}").document == {"name": "x"}
    assert docs("blob put", str(tmp_path / "missing")).code == 2


def test_watch(docs: Docs, native_place: str) -> None:
    docs("put", "user/1", '{"n": 1}')
    docs("put", "order/1", "{}")
    told = [json.loads(line) for line in docs("watch", "--since", "0", "--idle", "0", "--json").out.splitlines()]
    assert [(each["seq"], each["id"], each["kind"], each["after"]) for each in told] == [
        (1, "user/1", "insert", {"n": 1}), (2, "order/1", "insert", {})]  # fmt: skip
    assert docs("watch", "--since", "0", "--prefix", "user/", "--limit", "1").out.splitlines()[1:] == [
        '1\tinsert\tuser/1\t{"n":1}']  # fmt: skip
    assert docs("watch", "order/1", "--since", "0", "--idle", "0").out.count("order/1") == 1


@pytest.mark.slow
def test_watching_another_process(capfd: pytest.CaptureFixture[str], native_place: str) -> None:
    assert main(["docs", "put", native_place, "test", "first", "{}"]) == 0
    child = start_child("write_many", native_place, "child", 10)
    capfd.readouterr()
    watch = ["docs", "watch", native_place, "test", "--since", "1", "--prefix", "odd/", "--limit", "5", "--json"]
    assert main(watch) == 0
    told = [json.loads(line)["after"]["n"] for line in capfd.readouterr().out.splitlines()]
    assert told == [1, 3, 5, 7, 9]
    child.join(60)


def test_blame_shows_the_values_that_a_merge_has_kept(
    docs: Docs, native_place: str, capfd: pytest.CaptureFixture[str]
) -> None:
    docs("put", "a", '{"n": 1}')
    docs("branch create", "side")
    docs("put", "a", '{"n": 2}', "--branch", "side")
    docs("put", "a", '{"n": 3}')
    docs("merge", "side", "--prefer", "source")
    capfd.readouterr()
    assert main(["blame", f"{native_place}shop.sqlite", "documents", "a"]) == 0
    assert capfd.readouterr().out.splitlines()[1].split("\t")[:3] == ["/n", "2", "3"]
