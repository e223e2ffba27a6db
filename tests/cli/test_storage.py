"""`onto info` and `onto storage`: what is told of a page store, and what may be changed in one."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ontolake.storage import Lsn, PageId, WalRecord, open_storage

PROGRAM = Path(sys.executable).parent / "onto"
ONE = pytest.mark.parametrize("url", ["file"], indirect=True)

MAIN = {"name": "main", "id": 0, "parent": None, "base_lsn": 0, "head_lsn": 3}
TRY = {"name": "try", "id": 1, "parent": "main", "base_lsn": 1, "head_lsn": 4}


def append(where: str, *payloads: bytes, branch: str = "main") -> None:
    with open_storage(where) as store:
        token = store.acquire_fence("a test")
        store.append_wal(token, [WalRecord(payload) for payload in payloads], branch=branch)
        store.release_fence(token)


def path_of(where: str) -> Path:
    return Path(where.removeprefix("file://"))


# onto info
def test_info_says_what_is_there(onto, url: str) -> None:
    facts = onto("info", url, "--json").document
    assert facts.pop("bytes") > 4 * 4096 - 4096
    engine = "file" if url.endswith(".db") else "objects"
    assert facts == {
        "url": url, "kind": "pages", "engine": engine, "format_version": 1, "page_size": 4096, "durable_lsn": 4,
        "branches": [MAIN, TRY],
    }  # fmt: skip
    plain = onto("info", url)
    assert "branches:       main, try\n" in plain.out
    assert "durable LSN:    4\n" in plain.out


def test_info_knows_a_native_sqlite_file(onto, tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table t (x)")
    connection.close()
    facts = onto("info", str(path), "--json").document
    assert (facts["kind"], facts["engine"]) == ("sqlite", "native")
    done = onto("storage", "info", str(path))
    assert done.code == 2
    assert "a native SQLite database" in done.err


@ONE
def test_a_page_file_is_found_by_its_bare_path_too(onto, url: str) -> None:
    """What is there does not depend on what the URL would have meant."""
    for command in (["info"], ["storage", "info"], ["storage", "wal"], ["storage", "verify"]):
        assert onto(*command, str(path_of(url))).code == 0


# onto storage info
def test_storage_info_tells_everything(onto, url: str) -> None:
    facts = onto("storage", "info", url, "--json").document
    assert list(facts) == [
        "url", "kind", "engine", "format_version", "page_size", "durable_lsn", "commit_lsn", "pitr_floor", "fence",
        "branches", "index_runs", "page_layers", "log_start", "bytes",
    ]  # fmt: skip
    assert (facts["durable_lsn"], facts["commit_lsn"], facts["pitr_floor"]) == (4, 4, 0)
    assert facts["fence"] is None
    assert facts["branches"] == [MAIN, TRY]


def test_storage_info_for_people(onto, url: str) -> None:
    done = onto("storage", "info", url)
    assert done.code == 0
    assert "fence:          free\n" in done.out
    assert done.out.endswith("name\tparent\tbase LSN\thead LSN\nmain\t-\t-\t3\ntry\tmain\t1\t4\n")


def test_storage_info_tells_who_may_write(onto, url: str) -> None:
    with open_storage(url, fence_lease_ms=3_600_000) as store:
        store.acquire_fence("the loader")
        fence = onto("storage", "info", url, "--json").document["fence"]
        assert (fence["owner"], fence["epoch"], fence["expired"]) == ("the loader", 2, False)
        assert "'the loader' with epoch 2, lease until 20" in onto("storage", "info", url).out
        store.append_wal(store.current_fence(), [WalRecord(b"still the writer")])  # type: ignore[arg-type]


@pytest.mark.parametrize("page_size", [512, 65536])
def test_page_sizes_are_found_not_asked_for(onto, tmp_path: Path, page_size: int) -> None:
    where = f"file://{tmp_path}/big.db"
    with open_storage(where, page_size=page_size) as store:
        store.append_wal(store.acquire_fence("me"), [WalRecord(bytes(page_size), PageId(1))])
    assert onto("storage", "info", where, "--json").document["page_size"] == page_size
    assert onto("storage", "verify", where).code == 0


@ONE
def test_a_page_size_that_cannot_be_is_damage(onto, url: str) -> None:
    data = bytearray(path_of(url).read_bytes())
    data[20:24] = (4097).to_bytes(4, "little")
    path_of(url).write_bytes(data)
    done = onto("storage", "info", url)
    assert done.code == 5
    assert "does not match its checksum" in done.err


@ONE
def test_a_newer_format_is_refused(onto, tmp_path: Path, url: str) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    (lake / "root.json").write_text(json.dumps({"kind": "pages", "version": 99, "page_size": 4096}))
    done = onto("storage", "info", f"{lake}/")
    assert done.code == 2
    assert "version 99" in done.err


@pytest.mark.slow
def test_a_store_on_a_real_server(onto, ministack_url: str) -> None:
    assert onto("storage", "info", ministack_url).code == 5
    append(ministack_url, b"one", b"two")
    assert onto("storage", "info", ministack_url, "--json").document["durable_lsn"] == 2
    assert onto("storage", "wal", ministack_url).out.splitlines()[1:] == ["1\t-\t3", "2\t-\t3"]
    assert onto("storage", "verify", ministack_url, "--json").document["ok"] is True


def test_missing_credentials_are_named(onto, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    done = onto("storage", "info", "s3://somewhere/prefix")
    assert (done.code, done.out) == (2, "")
    assert "AWS_ACCESS_KEY_ID" in done.err


# onto storage wal
def test_wal_lists_records(onto, url: str) -> None:
    assert onto("storage", "wal", url).out == "LSN\tpage\tbytes\n1\t1\t4096\n2\t1\t4096\n3\t-\t6\n"


def test_wal_takes_a_start_a_limit_and_a_branch(onto, url: str) -> None:
    def lsns(*options: str) -> list[int]:
        return [record["lsn"] for record in onto("storage", "wal", url, "--json", *options).document["records"]]

    assert lsns() == [1, 2, 3]
    assert lsns("--after", "1") == [2, 3]
    assert lsns("--after", "1", "--limit", "1") == [2]
    assert lsns("--branch", "try") == [1, 4]
    assert lsns("--limit", "0") == lsns("--after", "99") == []


def test_wal_as_json_has_stable_keys(onto, url: str) -> None:
    found = onto("storage", "wal", url, "--after", "2", "--hex", "--json").document
    assert found == {
        "url": url, "branch": "main", "after": 2,
        "records": [{"lsn": 3, "page_id": None, "bytes": 6, "hex": b"a note".hex()}],
    }  # fmt: skip


def test_wal_shows_the_first_bytes(onto, url: str) -> None:
    lines = onto("storage", "wal", url, "--hex").out.splitlines()
    assert lines[1] == f"1\t1\t4096\t{(b'draft ' * 10)[:32].hex()}…"
    assert lines[3] == f"3\t-\t6\t{b'a note'.hex()}"


def test_an_unknown_branch_is_named_with_the_known_ones(onto, url: str) -> None:
    done = onto("storage", "wal", url, "--branch", "nope")
    assert (done.code, done.out) == (5, "")
    assert "'nope'" in done.err
    assert "main, try" in done.err


def test_wal_below_the_floor_says_where_the_floor_is(onto, url: str) -> None:
    with open_storage(url) as store:
        store.set_retention_floor(Lsn(1))
    done = onto("storage", "wal", url, "--after", "0")
    assert done.code == 5
    assert "oldest that can be read is 1" in done.err
    assert onto("storage", "wal", url).out.splitlines()[1].startswith("2\t")


@pytest.mark.slow
@ONE
def test_following_shows_what_others_append(url: str) -> None:
    command = [PROGRAM, "storage", "wal", url, "--after", "3", "--follow", "--json", "--limit", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        append(url, b"five")
        assert json.loads(process.stdout.readline()) == {"lsn": 5, "page_id": None, "bytes": 4}
        append(url, b"unseen", branch="try")
        append(url, b"seven", b"eight")
        assert [json.loads(line)["lsn"] for line in process.stdout] == [7, 8]
    assert process.returncode == 0


# onto storage branch
def test_branches_are_listed(onto, url: str) -> None:
    assert onto("storage", "branch", url).out == "name\tparent\tbase LSN\thead LSN\nmain\t-\t-\t3\ntry\tmain\t1\t4\n"
    listed = {"url": url, "branches": [MAIN, TRY]}
    for arguments in ([url, "--json"], ["--json", url], ["list", url, "--json"], [url, "list", "--json"]):
        assert onto("storage", "branch", *arguments).document == listed


def test_a_branch_is_created_where_it_is_told_to(onto, url: str) -> None:
    created = onto("storage", "branch", "create", url, "deeper", "--from", "try", "--at", "4", "--json").document
    assert created == {
        "url": url, "created": {"name": "deeper", "id": 2, "parent": "try", "base_lsn": 4, "head_lsn": 4},
    }  # fmt: skip
    assert onto("storage", "branch", url, "create", "now").out == "created branch now from main at LSN 4\n"
    with open_storage(url) as store:
        assert [ref.name for ref in store.list_branches()] == ["main", "try", "deeper", "now"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("try",), 6, "exists already"),
        (("x", "--at", "99"), 5, "future"),
        (("x", "--from", "nope"), 5, "'nope'"),
        ((" x",), 2, "not a branch name"),
    ],
)
def test_a_branch_that_cannot_be_is_refused(onto, url: str, arguments: tuple[str, ...], code: int, words: str) -> None:
    done = onto("storage", "branch", "create", url, *arguments)
    assert (done.code, done.out) == (code, "")
    assert words in done.err
    assert len(onto("storage", "branch", url, "--json").document["branches"]) == 2


def test_deleting_shows_first_what_would_go(onto, url: str) -> None:
    preview = onto("storage", "branch", "delete", url, "try")
    assert preview.code == 0
    assert "would delete branch try: from main at LSN 1, head at LSN 4, 1 record of its own" in preview.out
    assert len(onto("storage", "branch", url, "--json").document["branches"]) == 2
    # The last line is the command that does it.
    command = preview.out.splitlines()[-1].split()
    assert command[0] == "onto"
    assert onto(*command[1:]).out == "deleted branch try\n"
    assert onto("storage", "branch", url, "--json").document["branches"] == [MAIN]


def test_a_token_is_void_when_the_branch_has_moved(onto, url: str) -> None:
    preview = onto("storage", "branch", "delete", url, "try", "--json").document
    assert preview.keys() == {"url", "would_delete", "records", "token"}
    assert preview["would_delete"] == TRY
    append(url, b"meanwhile", branch="try")
    done = onto("storage", "branch", "delete", url, "try", "--token", preview["token"], "--json")
    assert (done.code, done.out) == (7, "")
    assert (done.error["type"], done.error["exit_code"]) == ("Refused", 7)
    assert len(onto("storage", "branch", url, "--json").document["branches"]) == 2
    again = onto("storage", "branch", "delete", url, "try", "--json").document
    assert again["records"] == 2
    deleted = onto("storage", "branch", "delete", url, "try", "--token", again["token"], "--json").document
    assert deleted == {"url": url, "deleted": {**TRY, "head_lsn": 5}}


def test_a_token_is_not_good_for_a_branch_of_the_same_name(onto, url: str) -> None:
    token = onto("storage", "branch", "delete", url, "try", "--json").document["token"]
    with open_storage(url) as store:
        store.delete_branch("try")
        store.create_branch("try", Lsn(1))
    assert onto("storage", "branch", "delete", url, "try", "--token", token).code == 7


def test_what_cannot_be_deleted_has_no_preview(onto, url: str) -> None:
    assert onto("storage", "branch", "delete", url, "main").code == 2
    onto("storage", "branch", "create", url, "child", "--from", "try")
    done = onto("storage", "branch", "delete", url, "try")
    assert done.code == 2
    assert "child" in done.err
    assert onto("storage", "branch", "delete", url, "nope").code == 5


# onto storage compact
def test_compacting_keeps_everything_above_the_floor(onto, url: str) -> None:
    done = onto("storage", "compact", url, "--json").document
    assert done.keys() == {"url", "pitr_floor", "freed", "bytes_before", "bytes_after"}
    assert done["pitr_floor"] == 0
    assert len(onto("storage", "wal", url, "--json").document["records"]) == 3
    assert onto("storage", "compact", url).out.startswith("PITR floor: 0\n")


def test_raising_the_floor_needs_the_token_of_its_preview(onto, url: str) -> None:
    with open_storage(url) as store:
        store.delete_branch("try")
    plan = onto("storage", "compact", url, "--floor", "3", "--json").document
    assert plan.pop("token")
    assert plan == {"url": url, "floor": 3, "pitr_floor": 0, "pitr_floor_after": 3, "held_back_by": []}
    preview = onto("storage", "compact", url, "--floor", "3").out
    assert preview.startswith("would raise the floor from LSN 0 to 3: nothing older could be read any more\n")
    assert onto("storage", "info", url, "--json").document["pitr_floor"] == 0
    assert onto("storage", "compact", url, "--floor", "3", "--token", "wrong").code == 7
    assert onto("storage", "info", url, "--json").document["pitr_floor"] == 0
    done = onto(*preview.splitlines()[-1].split()[1:], "--json").document
    assert done["pitr_floor"] == 3
    with open_storage(url) as store:
        assert store.get_page(PageId(1), Lsn(3)).bytes.startswith(b"final")


def test_a_branch_holds_the_floor_back(onto, url: str) -> None:
    plan = onto("storage", "compact", url, "--floor", "3", "--json").document
    assert (plan["pitr_floor_after"], plan["held_back_by"]) == (1, ["try"])
    assert "held back below LSN 3 by: try" in onto("storage", "compact", url, "--floor", "3").out
    onto("storage", "branch", "create", url, "early", "--at", "0")
    done = onto("storage", "compact", url, "--floor", "3", "--token", plan["token"])
    assert done.code == 7, "the new branch was not in the preview"


@pytest.mark.parametrize(("options", "words"), [(("--floor", "99"), "durable LSN 4"), (("--token", "x"), "--floor")])
def test_a_floor_that_cannot_be_is_refused(onto, url: str, options: tuple[str, ...], words: str) -> None:
    done = onto("storage", "compact", url, *options)
    assert (done.code, done.out) == (2, "")
    assert words in done.err


def test_compacting_beside_a_writer_disturbs_nobody(onto, url: str) -> None:
    with open_storage(url) as store:
        token = store.acquire_fence("a writer")
        failures: list[BaseException] = []

        def write() -> None:
            try:
                for i in range(50):
                    store.append_wal(token, [WalRecord(bytes([i]) * 4096, PageId(9))])
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        assert onto("storage", "compact", url).code == 0
        thread.join()
        assert failures == []
        assert store.get_page(PageId(9), store.durable_lsn()).bytes == bytes([49]) * 4096
    assert onto("storage", "verify", url).code == 0
