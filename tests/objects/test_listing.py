"""Key order from any server: those that list by bytes and those that list by directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hypothesis import example, given
from hypothesis import strategies as st

from ontolake.objects.listing import in_key_order, start_after
from ontolake.objects.store import ObjectInfo

part = st.text(alphabet="ab-. 0/~", min_size=1, max_size=6).filter(
    lambda text: not text.startswith("/") and not text.endswith("/") and "//" not in text
    and not {".", ".."} & set(text.split("/"))
)
keys = st.sets(part, max_size=12)


def by_directory(found: Iterable[str]) -> list[str]:
    return sorted(found, key=lambda key: key.split("/"))


def listed_by_directory(found: Iterable[str], start: str | None) -> list[str]:
    """As SeaweedFS does it: what equals the start, or is below it, is left out."""
    wanted = start.split("/") if start else []
    return [key for key in by_directory(found) if not wanted or key.split("/")[: len(wanted)] > wanted]


def infos(found: Iterable[str]) -> Iterator[ObjectInfo]:
    return (ObjectInfo(key, 0, 0.0) for key in found)


@given(keys)
@example({"a-b", "a/c", "a"})
def test_either_order_becomes_key_order(found: set[str]) -> None:
    for listed in (sorted(found), by_directory(found)):
        assert [info.key for info in in_key_order(infos(listed), "")] == sorted(found)


@given(keys, st.sampled_from(["", "a/", "b-/", "a/b/"]))
def test_within_a_directory_too(found: set[str], base: str) -> None:
    below = {base + key for key in found}
    assert [info.key for info in in_key_order(infos(by_directory(below)), base)] == sorted(below)


def test_keys_of_one_directory_pass_at_once() -> None:
    seen: list[str] = []

    def server() -> Iterator[ObjectInfo]:
        for n in range(10):
            seen.append(f"wal/{n}")
            yield ObjectInfo(f"wal/{n}", 0, 0.0)

    assert next(in_key_order(server(), "wal/")).key == "wal/0"
    assert seen == ["wal/0", "wal/1"]


@given(keys, st.one_of(st.just(""), part), st.one_of(st.none(), part))
@example({"a-b", "a/c"}, "", "a-b")
@example({"a/c"}, "", "a")
@example({"a/c"}, "a/", "a/b")
def test_no_start_leaves_out_what_is_wanted(found: set[str], prefix: str, after: str | None) -> None:
    base = prefix[: prefix.rfind("/") + 1]
    start = start_after(prefix, after, base)
    wanted = {key for key in found if key.startswith(prefix) and (after is None or key > after)}
    assert wanted <= {key for key in found if start is None or key > start}
    assert wanted <= set(listed_by_directory(found, start))


def test_a_listing_after_an_ordinal_starts_close_to_it() -> None:
    ordinals = [f"p/wal/{n:020}.log" for n in range(1000)]
    for n in range(1, 1000):
        start = start_after("p/wal/", ordinals[n], "p/wal/")
        assert start is not None
        assert len([key for key in ordinals if start < key <= ordinals[n]]) <= 1
