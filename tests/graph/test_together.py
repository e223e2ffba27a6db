"""Writes beside each other end together."""

from __future__ import annotations

import threading

import pytest

from ontolake.graph.concurrency import in_order


def test_results_come_in_the_order_of_their_writes() -> None:
    later = threading.Event()

    def first() -> int:
        assert later.wait(30)  # it ends after the second one, which runs beside it
        return 1

    def second() -> int:
        later.set()
        return 2

    assert list(in_order([first, second, lambda: 3])) == [1, 2, 3]
    assert list(in_order([lambda: 4])) == [4]
    assert list(in_order([])) == []


def test_no_write_goes_on_when_one_has_failed() -> None:
    begun, failed = threading.Event(), threading.Event()
    ended: list[int] = []

    def fail() -> None:
        assert begun.wait(30)
        failed.set()
        raise OSError("no more")

    def slow() -> None:
        begun.set()
        assert failed.wait(30)
        ended.append(1)

    with pytest.raises(OSError, match="no more"):
        list(in_order([fail, slow]))
    assert ended == [1]
