"""Group commit: everyone gets their own answer, and nobody gets it before the shared write is done."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence

import pytest
from waiting import wait_for

from ontolake.errors import DurabilityUnconfirmed, Invalid
from ontolake.storage import group as group_commit
from ontolake.storage.group import GroupCommit, Waiting


class Numbered(Waiting):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def run_all(group: GroupCommit[Numbered], items: Sequence[Numbered]) -> list[int | Exception]:
    results: list[int | Exception] = [0] * len(items)

    def run(at: int, item: Numbered) -> None:
        try:
            results[at] = group.commit(item)
        except Exception as error:
            results[at] = error

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(items)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    return results


@pytest.mark.parametrize("window_ms", [0, 2])
def test_appends_that_arrive_during_a_write_share_the_next_one(window_ms: float) -> None:
    sizes: list[int] = []
    first_is_in, go_on = threading.Event(), threading.Event()

    def write(items: Sequence[Numbered]) -> None:
        sizes.append(len(items))
        if len(sizes) == 1:
            first_is_in.set()
            assert go_on.wait(120)
        for item in items:
            item.lsn = item.number

    group = GroupCommit(write, window_ms)
    leader = threading.Thread(target=group.commit, args=(Numbered(1),))
    leader.start()
    assert first_is_in.wait(120)
    items = [Numbered(n) for n in range(2, 34)]
    waiting = threading.Thread(target=lambda: results.extend(run_all(group, items)))
    results: list[int | Exception] = []
    waiting.start()
    wait_for(lambda: len(group._queue) == len(items))
    assert not results
    go_on.set()
    waiting.join(120)
    leader.join(120)
    assert results == list(range(2, 34))
    assert sizes == [1, 32]


def test_an_error_of_one_does_not_touch_the_others() -> None:
    def write(items: Sequence[Numbered]) -> None:
        for item in items:
            if item.number % 3:
                item.lsn = item.number
            else:
                item.error = Invalid(f"no {item.number}")

    results = run_all(GroupCommit(write, 2), [Numbered(n) for n in range(1, 40)])
    for number, result in enumerate(results, 1):
        assert isinstance(result, Invalid) if number % 3 == 0 else result == number


class Interrupted(BaseException):
    pass


def test_a_leader_that_is_interrupted_leaves_nobody_waiting() -> None:
    calls: list[int] = []

    def write(items: Sequence[Numbered]) -> None:
        calls.append(len(items))
        if len(calls) == 1:
            raise Interrupted
        for item in items:
            item.lsn = item.number

    group = GroupCommit(write, 0)
    with pytest.raises(Interrupted):
        group.commit(Numbered(1))
    assert group.commit(Numbered(2)) == 2


def test_those_in_the_group_of_an_interrupted_leader_are_told_that_nothing_is_known() -> None:
    entered, joined = threading.Event(), threading.Event()

    def write(items: Sequence[Numbered]) -> None:
        if not entered.is_set():
            entered.set()
            assert joined.wait(120)
            for item in items:
                item.lsn = 1
        else:
            raise Interrupted

    group = GroupCommit(write, 0)
    first = threading.Thread(target=group.commit, args=(Numbered(1),))
    first.start()
    assert entered.wait(120)
    outcome: list[BaseException] = []

    def run() -> None:
        try:
            group.commit(Numbered(2))
        except BaseException as error:
            outcome.append(error)

    others = [threading.Thread(target=run) for _ in range(4)]
    for thread in others:
        thread.start()
    wait_for(lambda: len(group._queue) == 4)
    joined.set()
    for thread in [first, *others]:
        thread.join(120)
    assert sorted(type(error).__name__ for error in outcome) == ["DurabilityUnconfirmed"] * 3 + ["Interrupted"]
    assert all(isinstance(error, DurabilityUnconfirmed | Interrupted) for error in outcome)


class NeverWaits(Numbered):
    """One whose thread is interrupted while it waits."""

    def wait(self) -> bool:
        raise Interrupted


def test_one_that_is_interrupted_while_it_waits_does_not_hold_up_the_others() -> None:
    entered, go_on = threading.Event(), threading.Event()
    written: list[int] = []

    def write(items: Sequence[Numbered]) -> None:
        if not entered.is_set():
            entered.set()
            assert go_on.wait(120)
        for item in items:
            written.append(item.number)
            item.lsn = item.number

    group = GroupCommit(write, 0)
    leader = threading.Thread(target=group.commit, args=(Numbered(1),))
    leader.start()
    assert entered.wait(120)
    with pytest.raises(Interrupted):
        group.commit(NeverWaits(2))
    go_on.set()
    leader.join(120)
    assert run_all(group, [Numbered(3)]) == [3]
    assert written == [1, 3]


def test_a_leader_that_is_interrupted_while_others_gather_passes_the_lead_on() -> None:
    class Impatient(GroupCommit[Numbered]):
        interrupts = 1

        def _gather(self) -> None:
            if self.interrupts:
                self.interrupts -= 1
                raise Interrupted

    def write(items: Sequence[Numbered]) -> None:
        for item in items:
            item.lsn = item.number

    group = Impatient(write, 2)
    with pytest.raises(Interrupted):
        group.commit(Numbered(1))
    assert run_all(group, [Numbered(2), Numbered(3)]) == [2, 3]


class InterruptedWhenTold(Numbered):
    """One whose thread is interrupted when it has been told and has not passed it on."""

    def wait(self) -> bool:
        while not (super().wait() or self.lsn):
            pass
        raise Interrupted


def test_one_that_is_interrupted_when_it_is_told_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "_LOOK_AGAIN", 3600.0)  # so that looking again would come too late
    entered, go_on = threading.Event(), threading.Event()

    def write(items: Sequence[Numbered]) -> None:
        entered.set()
        assert go_on.wait(120)
        for item in items:
            item.lsn = item.number

    group = GroupCommit(write, 0)
    answers: list[int] = []

    def run(item: Numbered) -> None:
        with contextlib.suppress(Interrupted):
            group.commit(item)
        answers.append(item.number)

    # The first leads alone, the second leads the others.
    items = [InterruptedWhenTold(n) if n == 4 else Numbered(n) for n in range(1, 7)]
    threads = [threading.Thread(target=run, args=(item,), daemon=True) for item in items]
    for waiting, thread in enumerate(threads):
        thread.start()
        assert entered.wait(120)
        wait_for(lambda waiting=waiting: len(group._queue) >= waiting)  # type: ignore[misc]
    go_on.set()
    wait_for(lambda: sorted(answers) == list(range(1, 7)))


def test_a_word_that_was_not_passed_on_is_made_good() -> None:
    class Silent(Numbered):
        def pass_on(self) -> None:
            pass

    groups: list[int] = []

    def write(items: Sequence[Numbered]) -> None:
        groups.append(len(items))
        if len(groups) == 1:
            wait_for(lambda: len(group._queue) == 8 - len(items))
        for item in items:
            item.lsn = item.number

    group = GroupCommit(write, 0)
    results = run_all(group, [Silent(n) for n in range(1, 9)])
    assert results == list(range(1, 9))
