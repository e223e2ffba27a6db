"""Hypothesis strategies for small documents, patches and paths that often meet each other."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

KEYS = ["a", "b", "list", "0", "x/y", "~", ""]

scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, -2.25, "", "t", "ü"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=6,
)
documents = st.dictionaries(st.sampled_from(KEYS), values, max_size=4)

tokens = st.sampled_from([*KEYS, "1", "2", "-", "01"])


def pointer(parts: list[str]) -> str:
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


paths = st.lists(tokens, min_size=1, max_size=3).map(pointer)
any_paths = st.lists(tokens, max_size=3).map(pointer)


def _patch(op: str, **members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"op": st.just(op), "path": paths, **members})


def _is_possible(patch: dict[str, Any]) -> bool:
    return patch["op"] != "move" or not patch["path"].startswith(patch["from"] + "/")


patches = st.one_of(
    _patch("replace", value=values),
    _patch("add", value=values),
    _patch("add", value=values),
    _patch("remove"),
    _patch("move", **{"from": paths}),
    _patch("copy", **{"from": any_paths}),
    _patch("test", value=values),
    _patch("splice", index=st.integers(0, 3), remove=st.integers(0, 2), add=st.lists(values, max_size=2)),
    _patch("append", value=values),
    _patch("add-unique", value=values),
    _patch("remove-by-value", value=values),
    _patch("increment", by=st.sampled_from([1, -2, 0.5])),
).filter(_is_possible)
patch_lists = st.lists(patches, min_size=1, max_size=4)
