"""JSON pointers as RFC 6901 has them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ontolake.history import pointers


@pytest.mark.parametrize(
    ("pointer", "tokens"),
    [
        ("", ()),
        ("/", ("",)),
        ("/foo", ("foo",)),
        ("/foo/0", ("foo", "0")),
        ("/a~1b", ("a/b",)),
        ("/m~0n", ("m~n",)),
        ("/~01", ("~1",)),
        ("/ ", (" ",)),
        ('/k"l', ('k"l',)),
        ("//", ("", "")),
    ],
)
def test_the_examples_of_the_standard(pointer: str, tokens: tuple[str, ...]) -> None:
    assert pointers.parse(pointer) == tokens
    assert pointers.format(tokens) == pointer


@pytest.mark.parametrize("pointer", ["foo", "foo/bar", "#/foo", "/~", "/~2", "/a~", "/~~0"])
def test_a_malformed_pointer_is_refused_by_name(pointer: str) -> None:
    with pytest.raises(ValueError, match="the pointer"):
        pointers.parse(pointer)


@given(st.lists(st.text()))
def test_every_path_has_a_pointer(tokens: list[str]) -> None:
    assert pointers.parse(pointers.format(tokens)) == tuple(tokens)


@pytest.mark.parametrize(("token", "index"), [("0", 0), ("7", 7), ("10", 10), ("123456789012345", 123456789012345)])
def test_digits_are_indices(token: str, index: int) -> None:
    assert pointers.index(token) == index


@pytest.mark.parametrize("token", ["", "-", "-1", "+1", "00", "01", "1.0", "1e2", " 1", "٣", "²", "1" * 16, "9" * 5000])
def test_nothing_else_is_an_index(token: str) -> None:
    assert pointers.index(token) is None


def test_paths_overlap_when_one_leads_to_the_other() -> None:
    assert pointers.overlap((), ("a",))
    assert pointers.overlap(("a", "b"), ("a",))
    assert pointers.overlap(("a",), ("a",))
    assert not pointers.overlap(("a", "b"), ("a", "c"))
    assert not pointers.overlap(("a",), ("ab",))
