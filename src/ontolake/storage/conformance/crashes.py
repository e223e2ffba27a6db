"""Crashes: run a workload into one, then check what is left against the oracle."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import NamedTuple

from ontolake.storage.conformance.base import Base, Start
from ontolake.storage.conformance.observe import Observation, difference
from ontolake.storage.conformance.tasks import play
from ontolake.storage.conformance.workload import Op, Outcome, Player, oracle_player
from ontolake.storage.types import PageId, WalRecord
from ontolake.suites.peers import Peer, ProcessPeer


class CrashRun(NamedTuple):
    """How far a workload came: what was acknowledged, the step in flight, the fault points if it ended."""

    acked: list[Outcome]
    epoch: int
    in_flight: Op | None
    steps: list[str] | None


def run(start: Start, where: str, ops: Sequence[Op], n: int) -> CrashRun:
    """Run a workload in a peer that crashes at the n-th fault point."""
    return listen(start(play, where, ops, n), ops)


def listen(peer: Peer, ops: Sequence[Op], kill_after: int | None = None) -> CrashRun:
    """What a peer at `play` says until it ends; after `kill_after` acknowledgements it is killed from outside."""
    acked: list[Outcome] = []
    epoch, in_flight, steps = 0, None, None
    while (said := peer.hear()) is not None:
        if said[0] == "doing":
            in_flight = ops[said[1]]
        elif said[0] == "done":
            acked.append(said[2])
            epoch, in_flight = said[3], None
            if len(acked) == kill_after and isinstance(peer, ProcessPeer):
                peer.kill()
        else:
            steps = said[1]
    peer.end()
    return CrashRun(acked, epoch, in_flight, steps)


def choose_points(steps: Sequence[str], most: int, seed: int) -> list[int]:
    """Fault points to crash at: all of them, or about `most`, every kind of step among them."""
    if len(steps) <= most:
        return list(range(len(steps)))
    chance = random.Random(seed)
    by_kind: dict[str, list[int]] = {}
    for n, step in enumerate(steps):
        by_kind.setdefault(kind_of(step), []).append(n)
    for ns in by_kind.values():
        chance.shuffle(ns)
    most = max(most, len(by_kind))
    chosen: list[int] = []
    while len(chosen) < most:
        chosen += [ns.pop() for ns in by_kind.values() if ns]
    return sorted(chosen[:most])


def kind_of(step: str) -> str:
    """A step without the numbers and names that differ from one run to the next."""
    return re.sub(r"[0-9a-f]{8,}|[0-9]+", "#", step)


def check_recovered(suite: Base, where: str, ops: Sequence[Op], ended: CrashRun) -> None:
    """Open what a crash left, twice, and compare it with the oracle; then write on it."""
    before = _replay(suite, ops[: len(ended.acked)])
    assert before.outcomes == ended.acked, f"acknowledged {ended.acked}, the oracle says {before.outcomes}"
    highest = max([lsn for kind, lsn in ended.acked if kind == "lsn"], default=0)

    with suite.connect(where, **suite.sweep_knobs) as storage:
        assert storage.durable_lsn() >= highest, f"acknowledged LSN {highest} is lost"
        found = suite.observe(storage)
    with suite.connect(where, **suite.sweep_knobs) as storage:
        again = difference(found, suite.observe_again(storage))
        assert again is None, f"opening a second time gives another answer: {again}"
        state = _match(suite, found, before, ended, ops)
        _write_on(suite, Player(lambda: storage), state, ended.in_flight, ended.epoch)


class _Replayed(NamedTuple):
    player: Player
    outcomes: list[Outcome]


def _replay(suite: Base, ops: Sequence[Op]) -> _Replayed:
    player = oracle_player(suite.page_size)
    return _Replayed(player, [player.do(op) for op in ops])


def _match(suite: Base, found: Observation, before: _Replayed, ended: CrashRun, ops: Sequence[Op]) -> Player:
    """The oracle in the state that was found: everything acknowledged, and the step in flight whole or not at all."""
    absent = difference(found, suite.observe(before.player.storage))
    if absent is None:
        return before.player
    assert ended.in_flight is not None, f"nothing was in flight, but {absent}"
    after = _replay(suite, ops[: len(ended.acked) + 1])
    present = difference(found, suite.observe(after.player.storage))
    assert present is None, f"{ended.in_flight} is neither absent ({absent}) nor there ({present})"
    return after.player


def _write_on(suite: Base, player: Player, oracle: Player, in_flight: Op | None, epoch: int) -> None:
    """A new writer takes over, repeats the step in flight if that is safe, and appends to every branch."""
    acquired, _ = player.do(Op("acquire"))
    assert acquired == "epoch", f"taking over fails with {acquired}"
    assert player.token.epoch > epoch, f"epoch {player.token.epoch} was issued again: {epoch} was acknowledged"
    oracle.do(Op("acquire"))
    start = oracle.storage.durable_lsn()
    ops = [in_flight] if in_flight is not None and in_flight.request_id is not None else []
    names = [ref.name for ref in oracle.storage.list_branches()]
    ops += [Op("append", name, (suite.write(9000, 1), WalRecord(name.encode()))) for name in names[:2]]
    for op in ops:
        expected, found = oracle.do(op), player.do(op)
        assert found == expected, f"after recovery {op} gives {found}, the oracle says {expected}"
    for name in names[:2]:
        log = list(player.storage.scan_wal(start, branch=name))
        assert log == list(oracle.storage.scan_wal(start, branch=name))
        lsn = oracle.storage.durable_lsn()
        page = PageId(1)
        assert player.storage.get_page(page, lsn, branch=name) == oracle.storage.get_page(page, lsn, branch=name)
