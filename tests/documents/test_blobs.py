"""Bytes under the hash of their content; what describes them is an ordinary entity."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from documents_support import rows

from ontolake.documents import DocumentError, InvalidOperationError, Space, blobs, meta_id
from ontolake.errors import Corruption, NotFound


@pytest.mark.parametrize("data", [b"", b"abc", bytes(range(256)) * 1000])
def test_bytes_come_back_under_the_hash_of_their_content(space: Space, data: bytes) -> None:
    hash = space.put_blob(data, content_type="image/png")
    assert hash == hashlib.sha256(data).hexdigest()
    assert space.get_blob(hash) == blobs.Blob(hash, data, "image/png", len(data))


def test_the_same_bytes_are_stored_once(space: Space) -> None:
    first = space.put_blob(b"abc", content_type="text/plain")
    assert space.put_blob(bytearray(b"abc"), content_type="text/html") == first
    assert space.put_blob(memoryview(b"abc")) == first
    assert len(rows(space, "blob_store")) == 1
    assert space.get_blob(first).content_type == "text/plain"


def test_a_blob_alone_takes_no_seq(space: Space) -> None:
    space.put_blob(b"abc")
    assert space.last_seq() == 0


def test_metadata_is_an_entity_with_a_history(space: Space) -> None:
    hash = space.put_blob(b"abc", metadata={"value": {"name": "one"}})
    space.put_blob(b"abc", metadata={"value": {"name": "two"}})
    space.branches.create("side")
    space.put_blob(b"abc", metadata={"value": {"name": "three"}}, branch="side")
    assert meta_id(hash) == f"urn:blob-meta:{hash}"
    names = [revision.data["value"]["name"] for revision in space.history(meta_id(hash), branch="side")]
    assert names == ["one", "two", "three"]
    assert space.read(meta_id(hash)).document == {"value": {"name": "two"}}


@pytest.mark.parametrize(
    ("metadata", "branch"), [({"size": float("nan")}, ""), ([], ""), ({}, "nowhere"), ({}, 5)]
)
def test_a_blob_whose_metadata_is_refused_is_not_stored(space: Space, metadata: Any, branch: Any) -> None:
    with pytest.raises(DocumentError):
        space.put_blob(b"abc", metadata=metadata, branch=branch)
    assert rows(space, "blob_store") == []
    assert space.last_seq() == 0


def test_a_blob_that_is_not_there_is_not_found(space: Space) -> None:
    with pytest.raises(NotFound, match="there is no blob"):
        space.get_blob("0" * 64)


@pytest.mark.parametrize("hash", ["", "abc", "0" * 63, "G" * 64, "A" * 64, None, 5])
def test_what_is_no_hash_is_refused(native: Space, hash: Any) -> None:
    with pytest.raises(InvalidOperationError, match="not the hash of a blob"):
        native.get_blob(hash)


@pytest.mark.parametrize("data", ["text", None, 5, [1, 2]])
def test_what_is_not_bytes_is_refused(native: Space, data: Any) -> None:
    with pytest.raises(InvalidOperationError, match="a blob is made of bytes"):
        native.put_blob(data)


@pytest.mark.parametrize("content_type", [5, "a\nb"])
def test_a_content_type_that_cannot_be_is_refused(native: Space, content_type: Any) -> None:
    with pytest.raises(InvalidOperationError, match="a content type"):
        native.put_blob(b"", content_type=content_type)
    assert rows(native, "blob_store") == []


def test_an_oversize_blob_is_refused(native: Space) -> None:
    with pytest.raises(InvalidOperationError, match="268,435,456 are the limit"):
        native.put_blob(bytes(blobs.MAX_BYTES + 1))
    assert rows(native, "blob_store") == []


def test_bytes_that_were_changed_are_never_returned(native: Space) -> None:
    hash = native.put_blob(b"abc")
    native._database.connection.execute("UPDATE blob_store SET data = x'616264'")
    with pytest.raises(Corruption):
        native.get_blob(hash)
    assert [damage.where for damage in native.verify()] == [f"blob {hash}"]
