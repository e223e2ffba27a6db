"""`onto storage verify` reads everything, and finds damage wherever it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ontolake.storage import Lsn, PageId, WalRecord, open_storage

Flip = Callable[[bytes], None]


@pytest.fixture
def flip(url: str) -> Flip:
    """Changes one byte of a store, in the middle of the last place where a piece is found."""

    def flip(piece: bytes) -> None:
        place = Path(url.removeprefix("file://"))
        files = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
        # What was moved into a blob may still be in the log for a while, where nobody looks for it.
        found = [path for path in files if piece in path.read_bytes()]
        path = min(found, key=lambda path: path.parent.name != "blobs")
        data = bytearray(path.read_bytes())
        data[data.rindex(piece) + len(piece) // 2] ^= 0x40
        path.write_bytes(data)

    return flip


def image(text: str) -> bytes:
    return (text.encode() * 4096)[:4096]


def test_what_is_whole_is_said_to_be(onto, url: str) -> None:
    assert onto("storage", "verify", url, "--json").document == {
        "url": url, "ok": True, "frames": 6, "records": 4, "branches": 2, "pages": 3, "damage": [],
    }  # fmt: skip
    done = onto("storage", "verify", url)
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("\nnothing is damaged\n")


@pytest.mark.parametrize("piece", [image("draft "), image("other "), b"a note"])
def test_damage_in_the_log_is_found(onto, flip: Flip, url: str, piece: bytes) -> None:
    flip(piece)
    done = onto("storage", "verify", url, "--json")
    assert (done.code, done.err) == (5, "")
    assert done.document["ok"] is False
    assert [damage["where"] for damage in done.document["damage"]] == ["log"]
    assert "DAMAGED log: " in onto("storage", "verify", url).out


@pytest.fixture
def compacted(url: str) -> str:
    """The store after its floor was raised: the images at the floor are in a layer, the old frames are gone."""
    with open_storage(url, gc_grace_ms=0) as store:
        store.delete_branch("try")
        token = store.acquire_fence("a test")
        store.append_wal(token, [WalRecord(image(f"<{i}>"), PageId(10 + i)) for i in range(5)])
        store.create_branch("side", store.durable_lsn())
        store.append_wal(token, [WalRecord(image("side "), PageId(10))], branch="side")
        store.set_retention_floor(Lsn(9))
        store.compact()  # type: ignore[attr-defined]
        store.append_wal(token, [WalRecord(image("newest "), PageId(14))])
        store.release_fence(token)
    return url


def test_a_compacted_store_is_whole(onto, compacted: str) -> None:
    found = onto("storage", "verify", compacted, "--json").document
    assert found["ok"] is True
    # Pages 1, 10 … 14 on both branches, at their heads and at the floor.
    assert (found["branches"], found["pages"]) == (2, 24)


def test_damage_in_a_page_below_the_log_is_found_and_named_once(onto, flip: Flip, compacted: str) -> None:
    flip(image("<3>"))
    done = onto("storage", "verify", compacted, "--json")
    assert done.code == 5
    (damage,) = done.document["damage"]
    assert damage["where"] == "page 13"
    assert "does not match its checksum" in damage["what"]
    assert done.document["pages"] == 24, "the rest was read all the same"


def test_damage_in_the_index_is_found(onto, flip: Flip, compacted: str) -> None:
    flip(b"OLI1")
    done = onto("storage", "verify", compacted, "--json")
    assert done.code == 5
    assert done.document["damage"][0]["where"] == "index"


@pytest.mark.parametrize("url", ["file"], indirect=True)
def test_damage_in_the_header_is_found(onto, url: str) -> None:
    path = Path(url.removeprefix("file://"))
    data = bytearray(path.read_bytes())
    data[30] ^= 1
    path.write_bytes(data)
    done = onto("storage", "verify", url, "--json")
    assert done.code == 5
    assert [damage["where"] for damage in done.document["damage"]] == ["header"]


@pytest.mark.parametrize("url", ["directory"], indirect=True)
def test_a_damaged_or_missing_object_is_found(onto, url: str) -> None:
    place = Path(url.removeprefix("file://"))
    frame = sorted((place / "wal").iterdir())[2]
    kept = frame.read_bytes()
    frame.unlink()
    done = onto("storage", "verify", url, "--json")
    assert done.code == 5
    (damage,) = done.document["damage"]
    assert damage["where"] == "log"
    assert f"wal/{frame.name}" in damage["what"]
    assert "is missing" in damage["what"]
    frame.write_bytes(kept[:-1])
    assert onto("storage", "verify", url).code == 5
    (place / "root.json").write_text('{"kind": "pages", "version": 1, "page_size": 4096}')
    assert onto("storage", "verify", url).code == 5
