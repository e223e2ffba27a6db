"""URLs say where, and stamps say what is there."""

from __future__ import annotations

import os
import sqlite3
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ontolake.errors import Invalid
from ontolake.objects import open_store
from ontolake.urls import KNOWN, PAGES_MAGIC, Place, Stamp, detect, parse


@pytest.mark.parametrize(
    ("url", "scheme", "place", "bucket", "path", "seam"),
    [
        ("shop.db", "sqlite", Place.SQLITE, "", "shop.db", False),
        ("/data/shop.sqlite", "sqlite", Place.SQLITE, "", "/data/shop.sqlite", False),
        ("a#b?c.db", "sqlite", Place.SQLITE, "", "a#b?c.db", False),
        ("sqlite:///shop.db", "sqlite", Place.SQLITE, "", "shop.db", False),
        ("sqlite:////data/shop.db", "sqlite", Place.SQLITE, "", "/data/shop.db", False),
        (":memory:", "sqlite", Place.SQLITE, "", ":memory:", False),
        ("sqlite:///:memory:", "sqlite", Place.SQLITE, "", ":memory:", False),
        ("file:///data/shop.db", "file", Place.PAGE_FILE, "", "/data/shop.db", False),
        ("file://localhost/data/shop.db", "file", Place.PAGE_FILE, "", "/data/shop.db", False),
        ("file://./shop.db", "file", Place.PAGE_FILE, "", "./shop.db", False),
        ("file://../shop.db", "file", Place.PAGE_FILE, "", "../shop.db", False),
        ("file:///data/a%20b%23.db", "file", Place.PAGE_FILE, "", "/data/a b#.db", False),
        ("file:///data/lake", "file", Place.DIRECTORY, "", "/data/lake", False),
        ("file:///data/lake/", "file", Place.DIRECTORY, "", "/data/lake", False),
        ("file://./lake", "file", Place.DIRECTORY, "", "./lake", False),
        ("lake/", "file", Place.DIRECTORY, "", "lake", False),
        ("./", "file", Place.DIRECTORY, "", ".", False),
        ("s3://bucket", "s3", Place.BUCKET, "bucket", "", False),
        ("s3://bucket/", "s3", Place.BUCKET, "bucket", "", False),
        ("s3://bucket/a/b/", "s3", Place.BUCKET, "bucket", "a/b", False),
        ("r2://bucket/a", "r2", Place.BUCKET, "bucket", "a", False),
        ("gs://bucket/a", "gs", Place.BUCKET, "bucket", "a", False),
        ("memory://name", "memory", Place.MEMORY, "name", "", False),
        ("memory://name/a", "memory", Place.MEMORY, "name", "a", False),
        ("http://127.0.0.1:8400/shop", "http", Place.SERVER, "127.0.0.1:8400", "shop", False),
        ("https://Lake.example/shop/", "https", Place.SERVER, "lake.example", "shop", False),
        ("http://[::1]:8400/a%20b", "http", Place.SERVER, "[::1]:8400", "a b", False),
        ("https://host/behind/proxy/shop", "https", Place.SERVER, "host", "behind/proxy/shop", False),
        ("sqlite+s3://bucket/a", "s3", Place.BUCKET, "bucket", "a", True),
        ("sqlite+memory://name", "memory", Place.MEMORY, "name", "", True),
        ("sqlite+file:///data/shop.db", "file", Place.PAGE_FILE, "", "/data/shop.db", True),
        ("sqlite+file:///data/lake", "file", Place.DIRECTORY, "", "/data/lake", True),
    ],
)
def test_a_url_names_a_place(url: str, scheme: str, place: Place, bucket: str, path: str, seam: bool) -> None:
    location = parse(url)
    assert location == (url, scheme, place, bucket, path, seam)
    assert location.base_url == url.removeprefix("sqlite+" if seam else "")


@pytest.mark.parametrize(
    "url",
    [
        "", "shop", ".", "..", "s3://", "s3:///prefix", "gs://", "r2://", "memory://", "memory:///x", "file://",
        "file:///", "file://otherhost/x", "file://shop.db", "sqlite://shop.db", "sqlite:///", "sqlite:///dir/",
        "s3://bucket/a?versionId=1", "s3://bucket/a#b", "file:///x?mode=ro", "s3://bucket/a\x00b", "x\x00.db",
        "file:///a%00b.db", "file:///a%zz.db", "file:///a%ff.db", "s3://bucket/../other", "s3://bucket/a/../b",
        "s3://bucket/a//b", "s3://bucket//a", "s3://key:secret@bucket/a", "s3://bucket/a\\b", "ftp://host/x",
        "S3://bucket/a", "sqlite+sqlite:///x.db", "sqlite+ftp://x", "://x", "s3://bucket/.ontolake/x",
        "http://", "http://host:8400", "http://host:8400/", "http:///shop", "http://host:8400/a//b", "http://h t/x",
        "http://host:8400/shop?token=x", "http://host:8400/shop#x", "http://host:8400/../x", "sqlite+http://host/shop",
    ],
)
def test_a_malformed_url_is_refused_and_named(url: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse(url)
    assert repr(url) in caught.value.message
    assert caught.value.hint


def test_an_unknown_scheme_is_answered_with_the_known_ones() -> None:
    with pytest.raises(Invalid) as caught:
        parse("ftp://host/x")
    for scheme in KNOWN:
        assert scheme in str(caught.value)


def test_what_is_not_text_is_refused() -> None:
    with pytest.raises(Invalid, match="must be text"):
        parse(Path("shop.db"))  # type: ignore[arg-type]


@given(st.text())
def test_any_text_is_a_place_or_invalid(text: str) -> None:
    for url in (text, f"s3://{text}", f"file://{text}", f"sqlite:///{text}", f"memory://{text}"):
        with suppress(Invalid):
            assert parse(url).url == url


@pytest.mark.parametrize("name", ["new.db", "dir/", "sub/new.db"])
def test_detect_finds_nothing_and_creates_nothing(tmp_path: Path, name: str) -> None:
    assert detect(f"{tmp_path}/{name}") is None
    assert detect(f"file://{tmp_path}/{name}") is None
    assert detect(":memory:") is None
    assert detect("memory://never-opened") is None
    assert list(tmp_path.iterdir()) == []


def test_detect_recognises_a_native_sqlite_file(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table t (x)")
    connection.close()
    # What is there does not depend on what the URL would have meant.
    for url in (str(path), f"sqlite:///{path}", f"file://{path}", f"sqlite+file://{path}"):
        assert detect(url) == Stamp("sqlite", "native")


def test_detect_recognises_a_page_file(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    path.write_bytes(PAGES_MAGIC + struct.pack("<II", 1, 4096) + b"\x00" * 100)
    assert detect(f"file://{path}") == Stamp("pages", "file", 1, 4096)
    assert detect(str(path)) == Stamp("pages", "file", 1, 4096)


@pytest.mark.parametrize("content", [b"x", b"SQLite format 4\x00" + b"\x00" * 100, b"PAR1", PAGES_MAGIC, b"\x00" * 30])
def test_detect_refuses_a_file_that_is_not_ours(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "shop.db"
    path.write_bytes(content)
    with pytest.raises(Invalid, match=r"shop\.db"):
        detect(str(path))
    assert path.read_bytes() == content


def test_detect_takes_an_empty_file_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "shop.db").touch()
    assert detect(f"{tmp_path}/shop.db") is None


def test_detect_refuses_a_directory_where_a_file_should_be(tmp_path: Path) -> None:
    (tmp_path / "shop.db").mkdir()
    with pytest.raises(Invalid, match="is a directory"):
        detect(f"{tmp_path}/shop.db")


def test_detect_refuses_a_file_where_a_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "lake").touch()
    with pytest.raises(Invalid, match="is a file"):
        detect(f"file://{tmp_path}/lake")


@pytest.fixture(params=["directory", "memory", "ministack"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "directory":
        return f"file://{tmp_path}/lake"
    if request.param == "memory":
        return f"memory://{os.urandom(8).hex()}/p"
    url: str = request.getfixturevalue("ministack_url")
    return url


def test_detect_recognises_pages_in_objects(place: str) -> None:
    assert detect(place) is None
    open_store(place).put("root.json", b'{"kind": "pages", "version": 1, "page_size": 8192, "more": []}')
    assert detect(place) == Stamp("pages", "objects", 1, 8192)


@pytest.mark.parametrize(
    ("key", "content"),
    [
        ("other.txt", b"somebody's"), ("root.json", b"not json"), ("root.json", b"[]"), ("root.json", b"{}"),
        ("root.json", b'{"kind": "novel", "version": 1}'), ("root.json", b'{"kind": "pages", "version": "x"}'),
        ("root.json", b"\xff\x00"),
    ],
)
def test_detect_refuses_objects_that_are_not_ours(place: str, key: str, content: bytes) -> None:
    open_store(place).put(key, content)
    with pytest.raises(Invalid) as caught:
        detect(place)
    assert repr(place) in str(caught.value)


def test_detect_does_not_mind_what_a_file_manager_leaves(place: str) -> None:
    open_store(place).put(".DS_Store", b"x")
    assert detect(place) is None


@pytest.mark.parametrize("url", ["shop.db", ":memory:", "file:///tmp/shop.db", "sqlite+file:///tmp/shop.db"])
def test_only_places_of_objects_open_as_a_store(url: str) -> None:
    with pytest.raises(Invalid, match="holds no objects"):
        open_store(url)
