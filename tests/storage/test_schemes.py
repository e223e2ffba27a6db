"""From URLs to backends, and the refusals on the way."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ontolake.errors import Invalid, NotFound
from ontolake.storage import (
    STORAGE_TRAIT_VERSION,
    LocalFileStorage,
    ObjectStorage,
    Storage,
    open_storage,
    register_backend,
)


def test_the_url_chooses_the_backend(tmp_path: Path) -> None:
    for url, kind in (
        (f"file://{tmp_path}/a.db", LocalFileStorage),
        (f"file://{tmp_path}/dir", ObjectStorage),
        (f"sqlite+file://{tmp_path}/other", ObjectStorage),
        ("memory://opening", ObjectStorage),
    ):
        with open_storage(url) as storage:
            assert isinstance(storage, kind)
            assert isinstance(storage, Storage)
            assert storage.trait_version == STORAGE_TRAIT_VERSION


@pytest.mark.parametrize("url", ["a.db", "sqlite:///a.db", ":memory:", "ftp://x/y", "", "s3://", "file://", "nothing"])
def test_what_is_no_page_store_is_refused(url: str) -> None:
    with pytest.raises(Invalid) as refused:
        open_storage(url)
    assert url in str(refused.value)
    assert refused.value.hint


@pytest.mark.parametrize("size", [0, -1, 100, 1000, 5000, 131072, "4096", 4096.0, True])
def test_a_page_size_that_cannot_be_is_refused(tmp_path: Path, size: Any) -> None:
    with pytest.raises(Invalid, match="page_size"):
        open_storage(f"file://{tmp_path}/a.db", page_size=size)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("knob", "value"),
    [("fence_lease_ms", 0), ("fence_lease_ms", -5), ("batch_read_max", 0), ("pitr_window", "a week"),
     ("cache_bytes", -1), ("maintenance", "sometimes"), ("no_such_knob", 1)])
def test_a_wrong_knob_is_named(tmp_path: Path, knob: str, value: Any) -> None:
    with pytest.raises(Invalid, match=knob):
        open_storage(f"file://{tmp_path}/a.db", **{knob: value})
    assert os.listdir(tmp_path) == []


def test_the_window_may_be_a_timedelta(tmp_path: Path) -> None:
    open_storage(f"file://{tmp_path}/a.db", pitr_window=timedelta(days=1)).close()


def test_nothing_is_created_when_that_is_not_wanted(tmp_path: Path) -> None:
    for url in (f"file://{tmp_path}/a.db", f"file://{tmp_path}/dir", "memory://not-there"):
        with pytest.raises(NotFound):
            open_storage(url, create=False)
    assert os.listdir(tmp_path) == []


class Other(LocalFileStorage):
    """A backend that somebody else wrote, for another version of the seam."""

    trait_version = STORAGE_TRAIT_VERSION + 1


def test_a_backend_for_another_version_of_the_seam_is_refused(tmp_path: Path) -> None:
    register_backend("other", lambda url, **options: Other(tmp_path / "a.db", **options))
    with pytest.raises(Invalid, match=f"version {STORAGE_TRAIT_VERSION + 1}"):
        open_storage("other://x")


def test_a_registered_backend_gets_the_url_and_the_knobs(tmp_path: Path) -> None:
    seen = []

    def backend(url: str, **options: Any) -> Storage:
        seen.append((url, options))
        return LocalFileStorage(tmp_path / "a.db", **options)

    register_backend("mine", backend)
    open_storage("mine://somewhere", page_size=1024, cache_bytes=0).close()
    assert seen == [("mine://somewhere", {"page_size": 1024, "cache_bytes": 0})]
    with pytest.raises(Invalid, match="taken"):
        register_backend("s3", backend)
