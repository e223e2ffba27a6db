"""What every object store promises, checked on a directory, memory and servers of S3 and Azure."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from marking import slow_after

from ontolake.errors import AlreadyExists, Invalid, NotFound, PreconditionFailed
from ontolake.objects import ObjectStore, Range, open_store

BAD_KEYS = ["", "/", "/a", "a/", "../x", "a/../b", ".", "a/./b", "a//b", "a\x00b", "a\\b", "a\nb", ".ontolake/x",
            "x" * 256, "/".join(["x" * 200] * 6), None, 7]


class TestObjectStore:
    def test_it_is_an_object_store(self, store: ObjectStore, place: str) -> None:
        assert isinstance(store, ObjectStore)
        assert store.url == place

    @pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)), b"0123456789" * 700_000])
    def test_what_is_put_is_got(self, store: ObjectStore, data: bytes) -> None:
        tag = store.put("a/b c=é+%/d.bin", data)
        assert store.get("a/b c=é+%/d.bin") == (data, tag)
        assert [(info.key, info.size) for info in store.list()] == [("a/b c=é+%/d.bin", len(data))]

    def test_it_survives_reopening(self, store: ObjectStore, place: str) -> None:
        tag = store.put("a", b"1")
        store.close()
        again = open_store(place)
        assert again.get("a") == (b"1", tag)
        assert again.put_if_match("a", b"2", tag) != tag

    def test_put_replaces(self, store: ObjectStore) -> None:
        first, second = store.put("a", b"1"), store.put("a", b"2")
        assert first != second
        assert store.get("a") == (b"2", second)

    def test_what_is_missing_is_not_found(self, store: ObjectStore) -> None:
        store.put("a/b", b"1")
        for key in ("x", "a", "a/b/c", "a/c"):
            with pytest.raises(NotFound, match=key):
                store.get(key)
            with pytest.raises(NotFound, match=key):
                store.get_range(key, 0, 1)
            with pytest.raises(NotFound):
                store.get_range(key, 0, 0)

    def test_put_if_absent_creates_once(self, store: ObjectStore) -> None:
        tag = store.put_if_absent("a", b"1")
        with pytest.raises(AlreadyExists, match="'a'"):
            store.put_if_absent("a", b"2")
        assert store.get("a") == (b"1", tag)
        store.delete(["a"])
        store.put_if_absent("a", b"3")
        assert store.get("a").data == b"3"

    def test_put_if_match_replaces_the_named_version_only(self, store: ObjectStore) -> None:
        first = store.put("a", b"1")
        second = store.put_if_match("a", b"2", first)
        with pytest.raises(PreconditionFailed, match="'a'") as caught:
            store.put_if_match("a", b"3", first)
        assert not isinstance(caught.value, AlreadyExists)
        assert store.get("a") == (b"2", second)

    def test_put_if_match_does_not_create(self, store: ObjectStore) -> None:
        tag = store.put("a", b"1")
        store.delete(["a"])
        with pytest.raises(PreconditionFailed):
            store.put_if_match("a", b"2", tag)
        with pytest.raises(PreconditionFailed):
            store.put_if_match("b", b"2", tag)
        assert list(store.list()) == []

    def test_ranges(self, store: ObjectStore) -> None:
        store.put("a", b"0123456789")
        assert store.get_range("a", 0, 10) == b"0123456789"
        assert store.get_range("a", 3, 4) == b"3456"
        assert store.get_range("a", 8, 10) == b"89"
        assert store.get_range("a", 10, 1) == b""
        assert store.get_range("a", 99, 1) == b""
        assert store.get_range("a", 3, 0) == b""
        store.put("empty", b"")
        assert store.get_range("empty", 0, 5) == b""

    def test_many_ranges_with_errors_in_their_place(self, store: ObjectStore) -> None:
        content = {f"k{i}": bytes([i]) * 300_000 for i in range(3)}
        for key, data in content.items():
            store.put(key, data)
        wanted = [Range("k1", 5, 3), Range("none", 0, 1), Range("k0", 0, 4), Range("k1", 250_000, 100_000),
                  Range("k1", 5, 3), Range("k2", 400_000, 5), Range("k0", -1, 5), Range("../k", 0, 1),
                  Range("k2", 7, 0)]
        got = store.get_ranges(wanted)
        assert [type(part) for part in got] == [bytes, NotFound, bytes, bytes, bytes, bytes, Invalid, Invalid, bytes]
        for (key, start, length), part in zip(wanted, got, strict=True):
            if isinstance(part, bytes):
                assert part == content[key][start : start + length]
        assert store.get_ranges([]) == []

    def test_many_ranges_of_many_objects(self, store: ObjectStore) -> None:
        for i in range(40):
            store.put(f"p/{i}", f"content {i}".encode())
        got = store.get_ranges([Range(f"p/{i % 40}", 8, 2) for i in range(80)])
        assert got == [str(i % 40).encode() for i in range(80)]

    def test_listing_is_in_key_order(self, store: ObjectStore) -> None:
        keys = ["a-b", "a.b", "a/b-c/d", "a/b/c", "a/b/d", "a/b0", "a/c", "a0/x", "a=1/x", "aé", "b", "B", "a b/c",
                "z/y/x/w", "z/y-/a", "z/y.txt", "wal/00000001", "wal/00000002", "wal/00000010", "wal.old/1"]
        for key in keys:
            store.put(key, key.encode())
        listed = list(store.list())
        assert [info.key for info in listed] == sorted(keys)
        assert all(info.size == len(info.key.encode()) for info in listed)
        assert all(abs(info.modified - listed[0].modified) < 60 for info in listed)
        prefixes = ["a", "a/", "a/b", "a/b/", "wal", "wal/", "wal/000000", "wal/0000001", "zz", "none/", "z/y", "a-b"]
        for prefix in ["", *prefixes]:
            for after in [None, "", *keys, "a/b~", "wal/", "wal/00000005", "0", "~", "a/b-"]:
                expected = sorted(key for key in keys if key.startswith(prefix) and (after is None or key > after))
                assert [info.key for info in store.list(prefix, after=after)] == expected, (prefix, after)

    @pytest.mark.parametrize("place", slow_after(1, ["memory", "directory", "ministack", "seaweed"]), indirect=True)
    def test_a_long_listing_is_whole_and_in_order(self, store: ObjectStore) -> None:
        keys = [f"n/{i % 3}/{i:05}" for i in range(1100)]
        run_in_threads([lambda part=part: [store.put(key, b"x") for key in part]  # type: ignore[misc]
                        for part in (keys[::4], keys[1::4], keys[2::4], keys[3::4])])
        assert [info.key for info in store.list("n/")] == sorted(keys)
        assert next(store.list("n/", after="n/1/00500")).key == "n/1/00502"
        store.delete(keys)
        assert list(store.list()) == []

    def test_a_store_sees_nothing_outside_its_prefix(self, store: ObjectStore, place: str) -> None:
        inner, beside = open_store(f"{place}/in"), open_store(f"{place}-beside")
        store.put("a", b"1")
        inner.put("b", b"2")
        beside.put("c", b"3")
        assert [info.key for info in inner.list()] == ["b"]
        assert [info.key for info in store.list()] == ["a", "in/b"]
        with pytest.raises(NotFound):
            inner.get("a")
        beside.delete(["c"])

    def test_delete_passes_over_what_is_missing(self, store: ObjectStore) -> None:
        store.delete([])
        store.delete(["none", "no/where"])
        store.put("a/b", b"1")
        store.put("c", b"2")
        store.put("d", b"3")
        store.delete(["a/b", "none", "a", "a/b/c", "c", "c"])
        assert [info.key for info in store.list()] == ["d"]
        store.delete(iter(["d"]))
        assert list(store.list()) == []

    @pytest.mark.parametrize("key", BAD_KEYS)
    def test_a_malformed_key_is_refused_and_named(self, store: ObjectStore, key: str) -> None:
        store.put("good", b"1")
        calls: list[Callable[[], object]] = [
            lambda: store.get(key), lambda: store.get_range(key, 0, 1), lambda: store.put(key, b"2"),
            lambda: store.put_if_absent(key, b"2"), lambda: store.put_if_match(key, b"2", "t"),
            lambda: store.delete(["good", key]),
        ]
        for call in calls:
            with pytest.raises(Invalid) as caught:
                call()
            assert repr(key) in str(caught.value)
        assert [info.key for info in store.list()] == ["good"], "nothing changed"

    @pytest.mark.parametrize("prefix", ["/", "/a", "../", "a//", "a/../b", "a\x00"])
    def test_a_malformed_prefix_is_refused(self, store: ObjectStore, prefix: str) -> None:
        with pytest.raises(Invalid):
            list(store.list(prefix))

    def test_malformed_ranges_are_refused(self, store: ObjectStore) -> None:
        store.put("a", b"1")
        for start, length in ((-1, 1), (0, -1)):
            with pytest.raises(Invalid):
                store.get_range("a", start, length)

    def test_readers_never_see_a_mixture(self, store: ObjectStore) -> None:
        versions = [bytes([n]) * 100_000 for n in range(8)]
        store.put("a", versions[0])
        done = threading.Event()
        mixed: list[bytes] = []

        def read() -> None:
            while not done.is_set():
                data = store.get("a").data
                if data not in versions:
                    mixed.append(data)

        def write() -> None:
            try:
                for data in versions * 3:
                    store.put("a", data)
            finally:
                done.set()

        run_in_threads([read, read, write])
        assert not mixed


def run_in_threads(calls: list[Callable[[], object]]) -> None:
    """Run all at once; the first error is raised here."""
    errors: list[BaseException] = []

    def guarded(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
