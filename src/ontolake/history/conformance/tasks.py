"""What other processes do in the suite: play a history and be killed in the midst of it, look at what a kill left,
write or merge beside another process.

Every function is a task of `ontolake.suites.peers`: it gets the link to the test, the adapter, and what the test sends.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from ontolake import faults
from ontolake.errors import Conflict
from ontolake.history.conformance.oracle import State
from ontolake.history.conformance.workload import CRASHING, HistoryPlayer, HistoryStep, Played
from ontolake.history.refs import Ref

Picture = tuple[dict[str, State], set[str]]
"""What a store has: the states of all branches and tags, and the protected branches."""


def rehearse(link: Connection, adapter: Any, where: str) -> None:
    """Play `CRASHING` to its end. Sends the picture after each step, from none to all, as the oracle says, and the
    modules that were loaded for it."""
    adapter.create(where)
    player = HistoryPlayer(adapter, where)
    pictures: list[Picture] = [(player.states(), set(player.git.protected))]
    for step in CRASHING:
        player.do(step)
        player.check()
        pictures.append((player.states(), set(player.git.protected)))
    player.close()
    link.send((pictures, [*sys.modules]))


def play(link: Connection, adapter: Any, where: str, played: Played, steps: Sequence[HistoryStep], n: int) -> None:
    """Go on with a history, and end at the n-th fault point; at none if n is negative.

    Says `done` after each step that was acknowledged and, if it is not killed, which fault points there were.
    """
    hook = faults.At(n, faults.kill)
    with faults.arm(hook):
        player = HistoryPlayer(adapter, where, played)
        for step in steps:
            player.do(step)
            link.send("done")
        player.close()
    link.send((hook.seen, player.played))


def look(link: Connection, adapter: Any, where: str, expected: Sequence[Picture]) -> None:
    """Check that a store is whole, has one of these pictures, and takes further commits."""
    with adapter.open(where) as store:
        refs = [*(branch.name or adapter.first for branch in store.branches.list()),
                *(tag.name for tag in store.tags.list())]  # fmt: skip
        before = _picture(adapter, store, refs)
    assert before in expected, f"found {before}, the oracle says {' or '.join(map(str, expected))}"
    with adapter.open(where) as store:
        assert _picture(adapter, store, refs) == before, "opened again, the store has another state"
        after = {"f": 1, "g": 1}
        adapter.write(store, adapter.first, {"after": after})
        assert adapter.records(store.at(Ref(adapter.first)))["after"] == after
        damage = list(store.verify())
        assert not damage, f"damage: {damage}"


def _picture(adapter: Any, store: Any, refs: Sequence[str]) -> Picture:
    states = {"main" if ref == adapter.first else ref: adapter.records(store.at(Ref(ref))) for ref in refs}
    return states, {branch.name for branch in store.branches.list() if branch.protected}


def write(link: Connection, adapter: Any, where: str, branch: str, prefix: str, count: int) -> None:
    """Write so many records, one commit each, while another process works on the same store."""
    done = 0
    while done < count:
        with suppress(Conflict), adapter.open(where) as store:
            while done < count:
                adapter.write(store, branch, {f"{prefix}{done}": {"f": done, "g": None}})
                done += 1


def merge(link: Connection, adapter: Any, where: str, source: str, into: str) -> None:
    """Merge a branch as soon as the test says so, while another process works on the same store.

    Whenever that one was first, the merge is repeated. Sends the status.
    """
    link.send("ready")
    link.recv()
    while True:
        with suppress(Conflict), adapter.open(where) as store:
            link.send(store.merge(source, into).status.value)
            return
