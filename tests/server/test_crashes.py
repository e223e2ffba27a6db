"""Servers that are killed, asked to end, or share a store: what was acknowledged is there, once."""

from __future__ import annotations

import os
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import urllib3
from serving import ServerProcess
from waiting import wait_for

from ontolake import Entity, Field, Session, sql
from ontolake.documents import open_space
from ontolake.ontology.typed_store import TypedStore

ROUNDS = int(os.environ.get("ONTO_SERVER_KILLS", "5"))
WRITERS = 32


class Writers:
    """Threads that write rows of their own until the server does not answer, and remember what was acknowledged."""

    def __init__(self, server: ServerProcess, round: int, path: str, body: Callable[[str, int], object]) -> None:
        self.acknowledged: list[str] = []
        self.refused: Counter[int] = Counter()
        self.problem = b""
        self._server, self._round, self._path, self._body = server, round, path, body
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(WRITERS)]
        for thread in self._threads:
            thread.start()

    def _write(self, number: int) -> None:
        count = 0
        while not self._stop.is_set():
            count += 1
            row = f"{self._round}-{number}-{count}"
            try:
                answer = self._server.call("POST", self._path, json=self._body(row, count))
            except urllib3.exceptions.HTTPError:
                return
            if answer.status == 200:
                self.acknowledged.append(row)
            else:
                self.refused[answer.status] += 1
                self.problem = answer.body

    def wait_for(self, count: int) -> None:
        wait_for(lambda: len(self.acknowledged) >= count or self.refused)
        assert not self.refused, self.problem

    def end(self) -> list[str]:
        """Let all threads end, and return what was acknowledged."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self._threads)
        return self.acknowledged


def _insert(row: str, count: int) -> object:
    return {"sql": "INSERT INTO entry VALUES ($1)", "params": [row]}


def _transact(row: str, count: int) -> object:
    return {"sessionId": row.rpartition("-")[0], "localSeq": count,
            "operations": [{"op": "set", "id": row, "value": {"value": count}}]}  # fmt: skip


def _shop(folder: Path) -> str:
    url = str(folder / "shop.db")
    with sql.open_database(url) as database:
        database.execute("CREATE TABLE entry (name TEXT)")
    return url


class Entry(Entity):
    name: Field[str] = Field(primary_key=True)


def _typed(folder: Path) -> str:
    url = str(folder / "typed.db")
    with Session(url, entity_types=[Entry]) as session:
        session.ensure(Entry(name="first"))
    return url


def _row(row: str, count: int) -> object:
    return {"name": row}


def _insertions(url: str) -> Counter[str]:
    """How often each row of the typed store was inserted or changed."""
    with TypedStore(url, classes=[Entry]) as store:
        return Counter(change.key for change in store.changes(0))


_WAYS: Sequence[tuple[str, Callable[[str, int], object]]] = (
    ("/stores/shop/sql", _insert), ("/stores/typed/rows?table=entity%2FEntry&mode=insert", _row),
    ("/stores/notes/documents/transact", _transact))  # fmt: skip


def _entries(url: str) -> Counter[str]:
    with sql.open_database(url, readonly=True) as database:
        return Counter(database.query("SELECT name FROM entry").column("name").to_pylist())


@pytest.mark.slow
@pytest.mark.timeout(600 + 20 * ROUNDS)
def test_a_killed_server_has_kept_every_acknowledged_commit_once(tmp_path: Path) -> None:
    shop, typed = _shop(tmp_path), _typed(tmp_path)
    open_space(f"{tmp_path}/", "notes").close()
    acknowledged: tuple[list[str], ...] = ([], [], [])
    rows, entities, documents = acknowledged
    for round in range(ROUNDS):
        with ServerProcess(tmp_path, shop, typed, str(tmp_path / "notes.sqlite")) as server:
            path, body = _WAYS[round % 3]
            writers = Writers(server, round, path, body)
            writers.wait_for(20 + 13 * (round % 12))
            server.kill()
            acknowledged[round % 3].extend(writers.end())
        for stored, written in ((_entries(shop), rows), (_insertions(typed), entities)):
            assert {row: stored[row] for row in written if stored[row] != 1} == {}
            assert [row for row, count in stored.items() if count > 1] == []
        with open_space(f"{tmp_path}/", "notes", readonly=True) as space:
            assert {id for id in documents if len(list(space.history(id))) != 1} == set()


@pytest.mark.slow
def test_a_server_that_is_asked_to_end_finishes_what_is_under_way(tmp_path: Path) -> None:
    shop = _shop(tmp_path)
    with ServerProcess(tmp_path, shop) as server:
        writers = Writers(server, 0, "/stores/shop/sql", _insert)
        writers.wait_for(50)
        assert server.end() == 0, server.errors.read_text()[-2000:]
        acknowledged = writers.end()
        assert set(writers.refused) <= {503}
    assert not list(tmp_path.glob("shop.db-wal")), "the last connection was not closed"
    stored = _entries(shop)
    assert {row for row in acknowledged if stored[row] != 1} == set()


@pytest.mark.slow
@pytest.mark.parametrize("place", ["file", "bucket"])
def test_a_second_server_reads_says_who_writes_and_takes_over(
    tmp_path: Path, place: str, request: pytest.FixtureRequest
) -> None:
    url = f"file://{tmp_path}/shared.db"
    if place == "bucket":
        url = f"{request.getfixturevalue('seaweed_url')}/{secrets.token_hex(6)}/shared"
    with sql.open_database(url) as database:
        database.execute("CREATE TABLE entry (name TEXT)")
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()

    def write(server: ServerProcess, name: str) -> int:
        return server.call("POST", "/stores/shared/sql", json=_insert(name, 0)).status

    def read(server: ServerProcess) -> list[str]:
        answer = server.call("POST", "/stores/shared/sql", json={"sql": "SELECT name FROM entry ORDER BY name"})
        assert answer.status == 200, answer.body
        return [row[0] for row in answer.json["rows"]]

    with ServerProcess(folders[0], url) as first, ServerProcess(folders[1], url) as second:
        assert write(first, "a") == 200
        refused = second.call("POST", "/stores/shared/sql", json=_insert("b", 0))
        assert (refused.status, refused.json["type"]) == (409, "Contended")
        assert f"/{first.process.pid}/" in refused.json["title"], "it does not say who writes"
        assert read(second) == ["a"]
        state = second.call("GET", "//readyz").json["stores"]["shared"]
        assert (state["ready"], state["writes"]) == (True, False)
        assert f"/{first.process.pid}/" in state["problem"]
        assert write(first, "c") == 200
        assert read(second) == ["a", "c"]
        assert first.end() == 0
        assert write(second, "d") == 200, "the lease was not given back"
        assert read(second) == ["a", "c", "d"]
        with ServerProcess(folders[0], url) as third:
            assert write(third, "e") == 409
            second.kill()
            wait_for(lambda: write(third, "e") == 200)  # when the lease of the killed server has lapsed
            assert read(third) == ["a", "c", "d", "e"]
