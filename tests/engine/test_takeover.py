"""After a takeover the old handle of every model is told that it is fenced, and stays so until it is opened again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from typing import Any

import pytest

from ontolake.documents import Set, Space
from ontolake.errors import Fenced, OntolakeError
from ontolake.model import Entity, Field
from ontolake.ontology import Session
from ontolake.sql import Database, open_database
from ontolake.storage import open_storage
from ontolake.suites.peers import ProcessPeer

Start = Callable[..., ProcessPeer]
pytestmark = pytest.mark.slow


class Item(Entity):
    id: Field[str] = Field(primary_key=True)


class Tables:
    """SQL tables."""

    @staticmethod
    def open(url: str, takeover: bool) -> Database:
        return open_database(url, takeover=takeover)

    @staticmethod
    def write(handle: Database, key: str) -> None:
        if not handle.catalog().by_full_name:
            handle.execute("CREATE TABLE t (id TEXT PRIMARY KEY)")
        handle.execute("INSERT INTO t VALUES (?)", (key,))

    @staticmethod
    def keys(handle: Database) -> list[str]:
        return sorted(key for (key,) in handle.execute("SELECT id FROM t").fetchall())


class Documents:
    """A space of documents."""

    @staticmethod
    def open(url: str, takeover: bool) -> Space:
        return Space(url, "items", readonly=False, takeover=takeover, synchronous="FULL")

    @staticmethod
    def write(handle: Space, key: str) -> None:
        handle.transact(f"of {key}", 1, [Set(key, {"key": key})])

    @staticmethod
    def keys(handle: Space) -> list[str]:
        return sorted({str(change.key) for change in handle.changes(0)})


class Typed:
    """A typed store on pages."""

    @staticmethod
    def open(url: str, takeover: bool) -> Session:
        config = {"connect": {"takeover": True} if takeover else {}, "lock_timeout": 0}
        return Session(f"sqlite+{url}", entity_types=[Item], relation_types=[], config=config)

    @staticmethod
    def write(handle: Session, key: str) -> None:
        handle.ensure(Item(id=key))
        handle.commit()

    @staticmethod
    def keys(handle: Session) -> list[str]:
        return sorted(item.id for item in handle.query().entities(Item).collect())


class Peers:
    """Tasks for other processes are functions of this module."""


MODELS: dict[str, Any] = {"sql": Tables, "documents": Documents, "typed": Typed}


def obey(link: Connection, peers: type, model: str, url: str) -> None:
    """Write the keys that the test sends; answer with "written", or with the error's name and what it says to do."""
    what = MODELS[model]
    handle: AbstractContextManager[Any] = what.open(url, False)
    link.send("open")
    while (key := link.recv()) is not None:
        try:
            what.write(handle, key)
            link.send("written")
        except OntolakeError as error:
            link.send(("Fenced" if isinstance(error, Fenced) else type(error).__name__, str(error.hint)))
    handle.close()  # type: ignore[attr-defined]
    link.send("closed")


def ask(peer: ProcessPeer, key: str | None) -> Any:
    peer.tell(key)
    return peer.hear()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("tried", [True, False], ids=["tried meanwhile", "tried afterwards"])
def test_an_old_handle_stays_fenced_after_the_new_writer_has_left(
    model: str, tried: bool, shared_place: str, start: Start
) -> None:
    what = MODELS[model]
    peer = start(obey, model, shared_place)
    assert peer.hear() == "open"
    assert ask(peer, "first") == "written"
    taken = what.open(shared_place, True)
    what.write(taken, "second")
    if tried:
        kind, hint = ask(peer, "late")
        assert kind == "Fenced"
        assert "open it again" in hint
    what.write(taken, "third")
    taken.close()
    for key in ("late", "later"):
        kind, hint = ask(peer, key)
        assert kind == "Fenced"
        assert "open it again" in hint
    assert ask(peer, None) == "closed"
    again = what.open(shared_place, False)
    what.write(again, "fourth")
    assert what.keys(again) == ["first", "fourth", "second", "third"]
    again.close()


@pytest.mark.parametrize("model", MODELS)
def test_a_handle_can_be_opened_again_beside_the_one_that_was_overtaken(model: str, place: str) -> None:
    what = MODELS[model]
    old = what.open(place, False)
    what.write(old, "first")
    with open_storage(place, create=False) as storage:
        storage.release_fence(storage.acquire_fence("somebody"))
    for _ in range(2):
        with pytest.raises(Fenced, match="has taken over"):
            what.write(old, "late")
    again = what.open(place, False)
    what.write(again, "second")
    with pytest.raises(Fenced, match="has taken over"):
        what.write(old, "late")
    assert what.keys(again) == ["first", "second"]
    old.close()
    what.write(again, "third")
    again.close()
