"""Keys as people type them, and the fields that differ between two rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from ontolake.cli.common.values import changed_fields, field_text, key_cell, key_like, parse_key
from ontolake.errors import Invalid


class OneTable(NamedTuple):
    """A snapshot of a table with some keys."""

    keys: Sequence[Any]
    commit: int = 1
    branch: str = "main"

    def tables(self) -> Sequence[str]:
        return ["t"]

    def rows(self, table: str) -> Iterator[tuple[Any, Any]]:
        return iter((key, {}) for key in self.keys)


@pytest.mark.parametrize("key", [
    "a", "7", '["a"]', "a b", 7, -3, 1.5, True, Decimal("10.50"), date(2026, 11, 1), UUID(int=5), b"\x00\xff>>",
    datetime(2026, 11, 1, 10, tzinfo=UTC), ("a", 1), ("7", date(2026, 1, 2)), (1, (2, "x"))], ids=repr)  # fmt: skip
def test_a_key_is_typed_as_it_is_printed(key: Any) -> None:
    found = parse_key(key_cell(key), "t", OneTable([key]))
    assert (found, type(found)) == (key, type(key))


def test_in_a_table_without_rows_numbers_and_lists_are_taken_for_such() -> None:
    empty = OneTable([])
    assert [parse_key(text, "t", empty) for text in ("7", "a", '["a", 1]', "true", "null", "{}")] == [
        7, "a", ("a", 1), "true", "null", "{}"]  # fmt: skip


@pytest.mark.parametrize(("text", "example"), [
    ("a", 7), ("7", ("a", 1)), ("[", ("a", 1)), ('["a"]', ("a", 1)), ('["a", "b"]', ("a", 1)), ("x", date(2026, 1, 1)),
    ("é", b"x")])  # fmt: skip
def test_a_key_that_cannot_be_one_is_refused_with_an_example(text: str, example: Any) -> None:
    with pytest.raises(Invalid, match="cannot be a key of t") as refused:
        parse_key(text, "t", OneTable([example]))
    assert refused.value.hint is not None
    assert key_cell(example) in refused.value.hint


def test_a_list_from_a_file_becomes_a_key() -> None:
    assert key_like(("a", date(2026, 1, 1)), ["b", "2026-01-02"], "t") == ("b", date(2026, 1, 2))


def test_fields_that_differ() -> None:
    before, after = {"a": 1, "b": {"x": 1, "y": 2}, "gone": 1}, {"a": 1, "b": {"x": 1, "y": 3}, "new": None}
    assert [field_text(one) for one in changed_fields(before, after)] == [
        'b: {"x": 1, "y": 2} → {"x": 1, "y": 3}', "new: (none) → null", "gone: 1 → (none)"]  # fmt: skip
    assert [one.field for one in changed_fields(before, after, pointers=True)] == ["/b/y", "/new", "/gone"]
    assert [field_text(one) for one in changed_fields({"a/b~": 1}, {"a/b~": True}, pointers=True)] == [
        "/a~1b~0: 1 → true"]  # fmt: skip
    assert [field_text(one) for one in changed_fields("x", "y")] == ['"x" → "y"']
