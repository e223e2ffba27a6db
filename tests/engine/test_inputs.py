"""What cannot be opened is refused by name, and nothing is created."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from ontolake.errors import Contended, Invalid, NotFound
from ontolake.objects import open_store
from ontolake.objects.testing import MinistackServer
from ontolake.storage import ObjectStorage, WalRecord, open_storage, register_backend

Connect = Callable[..., apsw.Connection]


def nothing_at(place: str) -> bool:
    if place.endswith(".db"):
        return not Path(place.removeprefix("file://")).exists()
    return list(open_store(place).list()) == []


@pytest.mark.parametrize("url", ["", "ftp://host/x", "plain", "s3://", "file://host/x.db", 7, None, "x.db?mode=ro\n"])
def test_a_url_that_names_no_place_is_named(url: Any, connect: Connect) -> None:
    with pytest.raises(Invalid) as refused:
        connect(url)
    assert repr(url) in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize(("options", "error", "named"), [
    ({"readonly": True}, NotFound, "there is no"),
    ({"at": 0}, NotFound, "there is no"),
    ({"branch": "typo"}, NotFound, "there is no"),
    ({"branch": 3}, Invalid, "3"),
    ({"branch": None}, Invalid, "None"),
    ({"at": -1}, Invalid, "-1"),
    ({"at": "5"}, Invalid, "'5'"),
    ({"at": True}, Invalid, "True"),
    ({"at": 2**64}, Invalid, str(2**64)),
    ({"at": 1.5}, Invalid, "1.5"),
    ({"readonly": True, "takeover": True}, Invalid, "takeover|takes nothing over"),
    ({"at": 0, "takeover": True}, Invalid, "takeover|takes nothing over"),
    ({"page_size": 1000}, Invalid, "1000"),
    ({"page_size": "big"}, Invalid, "'big'"),
    ({"page_size": 0}, Invalid, "0"),
    ({"page_size": None}, Invalid, "None"),
    ({"fence_lease_ms": -5}, Invalid, "fence_lease_ms"),
    ({"fence_lease_ms": "long"}, Invalid, "fence_lease_ms"),
    ({"no_such_knob": 1}, Invalid, "no_such_knob"),
    ({"create": False}, NotFound, "there is no"),
])  # fmt: skip
def test_a_wrong_request_creates_nothing(
    options: dict[str, Any], error: type[Exception], named: str, place: str, connect: Connect
) -> None:
    with pytest.raises(error, match=named):
        connect(place, **options)
    assert nothing_at(place)
    connect(place).execute("CREATE TABLE t(x)")


def test_a_missing_branch_is_named_with_those_there_are(place: str, connect: Connect) -> None:
    connect(place).execute("CREATE TABLE t(x)")
    with open_storage(place, create=False) as storage:
        storage.create_branch("there", storage.get_commit_lsn())
    with pytest.raises(NotFound, match="'not there'") as refused:
        connect(place, branch="not there")
    assert "there" in str(refused.value.hint)


def test_another_page_size_than_the_one_there_is_refused(place: str, connect: Connect) -> None:
    connection = connect(place, page_size=8192)
    connection.execute("CREATE TABLE t(x)")
    with pytest.raises(Invalid, match="other options"):
        connect(place, page_size=4096)
    assert connect(place).execute("PRAGMA page_size").get == 8192, "who does not say gets what is there"


def test_another_page_size_is_refused_when_nobody_has_it_open(place: str, connect: Connect) -> None:
    connection = connect(place, page_size=8192)
    connection.execute("CREATE TABLE t(x)")
    connection.close()
    with pytest.raises(Invalid, match="8192"):
        connect(place, page_size=4096)


def test_connections_of_one_process_share_their_options(place: str, connect: Connect) -> None:
    connect(place, fence_lease_ms=5000)
    connect(place, fence_lease_ms=5000)
    with pytest.raises(Invalid, match=r"fence_lease_ms.*6000"):
        connect(place, fence_lease_ms=6000)


def test_pages_that_are_no_sqlite_database_are_refused(place: str, connect: Connect) -> None:
    with open_storage(place) as storage:
        token = storage.acquire_fence("somebody")
        storage.append_wal(token, [WalRecord(b"something else".ljust(4096, b"."), 1)])
        storage.release_fence(token)
    with pytest.raises(Invalid, match="not a SQLite database"):
        connect(place)


def test_a_folder_with_other_things_is_refused(tmp_path: Path, connect: Connect) -> None:
    (tmp_path / "mine.txt").write_text("keep me")
    with pytest.raises(Invalid, match=r"mine\.txt"):
        connect(f"file://{tmp_path}")
    assert os.listdir(tmp_path) == ["mine.txt"]


def test_a_native_file_is_not_taken_for_pages(tmp_path: Path, connect: Connect) -> None:
    path = tmp_path / "native.db"
    connect(str(path)).execute("CREATE TABLE t(x)")
    before = path.read_bytes()
    with pytest.raises(Invalid, match="native SQLite"):
        connect(f"file://{path}", page_size=4096)
    with pytest.raises(Invalid, match=r"native\.db"):
        connect(f"file://{path}")
    assert path.read_bytes() == before


def test_a_page_file_is_not_taken_for_a_native_one(tmp_path: Path, connect: Connect) -> None:
    connect(f"file://{tmp_path}/pages.db").execute("CREATE TABLE t(x)")
    with pytest.raises(Invalid, match=r"pages\.db is not a SQLite file"):
        connect(f"{tmp_path}/pages.db")


def test_a_registered_backend_gets_its_own_knobs(connect: Connect) -> None:
    given: list[dict[str, Any]] = []

    def backend(url: str, *, page_size: int, flavour: str, **knobs: Any) -> ObjectStorage:
        given.append({"url": url, "page_size": page_size, "flavour": flavour})
        return ObjectStorage(f"memory://{secrets.token_hex(6)}", page_size=page_size, **knobs)

    scheme = f"x{secrets.token_hex(4)}"
    register_backend(scheme, backend)
    connection = connect(f"{scheme}://there", page_size=1024, flavour="plain", fence_lease_ms=5000)
    connection.execute("CREATE TABLE t(x); INSERT INTO t VALUES (1)")
    assert connection.execute("PRAGMA page_size").get == 1024
    assert given == [{"url": f"{scheme}://there", "page_size": 1024, "flavour": "plain"}]


# URLs that name the same place
def test_spellings_of_one_place_share_one_writer(
    tmp_path: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.symlink(tmp_path, tmp_path / "link")
    name = secrets.token_hex(4)
    spellings = [
        [f"file://{tmp_path}/x.db", "file://./x.db", f"sqlite+file://{tmp_path}/x.db", f"file://{tmp_path}/./x.db",
         f"file://localhost{tmp_path}/x.db", f"file://{tmp_path}/link/x.db", f"file://{tmp_path}/%78.db"],
        [f"file://{tmp_path}/d", f"file://{tmp_path}/d/", "d/", "file://./d", f"sqlite+file://{tmp_path}/d"],
        [f"memory://{name}/a", f"memory://{name}/a/", f"sqlite+memory://{name}/a"],
    ]
    for same in spellings:
        connections = [connect(url) for url in same]
        connections[0].execute("CREATE TABLE t(x)")
        for i, connection in enumerate(connections):
            connection.execute("INSERT INTO t VALUES (?)", (i,))  # not Contended, not Busy
        assert connections[0].execute("SELECT count(*) FROM t").get == len(same)
        connections[0].execute("BEGIN IMMEDIATE")
        for connection in connections[1:]:
            with pytest.raises(apsw.BusyError):
                connection.execute("BEGIN IMMEDIATE")


@pytest.mark.slow
def test_the_same_name_on_two_servers_is_two_places(
    seaweed_url: str, ministack: MinistackServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = connect(seaweed_url)
    here.execute("CREATE TABLE t(x)")
    for name, value in ministack.env().items():
        monkeypatch.setenv(name, value)
    there = connect(seaweed_url)
    assert there.execute("SELECT count(*) FROM sqlite_schema").get == 0
    there.execute("CREATE TABLE u(x)")
    assert here.execute("SELECT name FROM sqlite_schema").get == "t"


def test_a_connection_can_be_had_while_the_last_one_closes(shared_place: str, connect: Connect) -> None:
    """Whoever connects just then must not be told that this very process is in the way."""
    connect(shared_place).execute("CREATE TABLE t(x)")
    problems: list[BaseException] = []

    def come_and_go() -> None:
        try:
            for _ in range(8):
                connection = connect(shared_place)
                connection.set_busy_timeout(60_000)
                connection.execute("INSERT INTO t VALUES (1)")
                connection.close()
        except (Contended, apsw.Error) as error:
            problems.append(error)

    threads = [threading.Thread(target=come_and_go) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert problems == []
    assert connect(shared_place).execute("SELECT count(*) FROM t").get == 24
