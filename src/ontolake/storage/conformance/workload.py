"""Seeded workloads: programs of appends, branches, fences, floors, compactions and reopens.

A program is worked out step by step against the oracle, so that every step is one the store should
answer in a known way; the same steps are then given to a backend.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from ontolake.errors import StorageError
from ontolake.storage.conformance.oracle import Oracle, OracleState
from ontolake.storage.protocol import Storage
from ontolake.storage.types import MAIN, FenceToken, Lsn, PageId, WalRecord

PAGES = [PageId(page_id) for page_id in (0, 1, 2, 3, 7, 2**32, 2**64 - 1)]
NEVER = PageId(5)
"""A page that no workload writes."""

EVERYTHING = [*PAGES, NEVER]

WEIGHTS = {
    "append": 60, "branch": 12, "compact": 6, "reopen": 5, "delete": 5, "floor": 5, "acquire": 4, "renew": 3,
    "retry": 4, "flush": 1,
}  # fmt: skip
"""How often each kind of step is taken in a seeded program."""

MISUSE = ["release", "floor back", "delete parent", "branch twice"]
"""Steps that are refused, or make later ones refused: random histories take them too."""

T = TypeVar("T")
Outcome = tuple[str, int]
"""How a step went: ("lsn", n), ("epoch", its rank among this player's), ("done", 0), or an error's name and 0."""


class Op(NamedTuple):
    """One step, fully spelled out."""

    kind: str
    branch: str = "main"
    records: tuple[WalRecord, ...] = ()
    request_id: str | None = None
    lsn: int = 0
    name: str = ""

    def __repr__(self) -> str:
        shown = [f"{len(self.records)} records"] if self.records else []
        shown += [f"{key}={value!r}" for key, value in self._asdict().items()
                  if key not in ("kind", "records") and value != self._field_defaults[key]]  # fmt: skip
        return f"{self.kind}({', '.join(shown)})"


def image(seed: int, size: int) -> bytes:
    """Bytes that no other seed gives, and that no compressor makes smaller."""
    return random.Random(seed).randbytes(size)


class Choices:
    """Bytes read as a series of choices, each a byte. 0 chooses the first, so that programs shrink well."""

    def __init__(self, data: bytes) -> None:
        self._left = iter(data)

    def below(self, count: int) -> int:
        return next(self._left, 0) % count

    def of(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]


def step(kind: str, data: bytes, oracle: Oracle, serial: int) -> Op:
    """The step of this kind that `data` chooses, given what the store holds by now."""
    if kind not in _SPELLED:
        return Op(kind)
    return _SPELLED[kind](Choices(data), oracle, serial)


def _append(choose: Choices, oracle: Oracle, serial: int) -> Op:
    name = choose.of([branch.name for branch in oracle.model.branches.values()])
    count = 1 + choose.below(5)
    request_id = f"request-{serial}" if choose.below(3) == 1 else None
    return Op("append", name, _records(choose, count, serial, oracle.page_size), request_id)


def _retry(choose: Choices, oracle: Oracle, serial: int) -> Op:
    """A request that was made before and is still remembered."""
    alive = {branch.id: branch.name for branch in oracle.model.branches.values()}
    known = [
        (request_id, request)
        for request_id, request in oracle.model.requests.items()
        if request.branch in alive and request.lsn > oracle.pitr_floor()
    ]
    if not known:
        return _append(choose, oracle, serial)
    request_id, request = choose.of(known)
    return Op("append", alive[request.branch], request.records, request_id)


def _branch(choose: Choices, oracle: Oracle, serial: int) -> Op:
    names = [branch.name for branch in oracle.model.branches.values()]
    unused = [name for name in ("north", "south", "east", "west", "up") if name not in names]
    if not unused:
        return _delete(choose, oracle, serial)
    base = oracle.durable_lsn() - choose.below(oracle.durable_lsn() - oracle.pitr_floor() + 1)
    return Op("branch", choose.of(names), lsn=base, name=unused[0])


def _branch_twice(choose: Choices, oracle: Oracle, serial: int) -> Op:
    name = choose.of([branch.name for branch in oracle.model.branches.values()])
    return Op("branch", lsn=oracle.durable_lsn(), name=name)


def _delete(choose: Choices, oracle: Oracle, serial: int) -> Op:
    """Delete a branch that may be deleted."""
    branches = oracle.model.branches.values()
    parents = {branch.parent for branch in branches}
    leaves = [branch.name for branch in branches if branch.id not in parents and branch.parent is not None]
    return Op("delete", choose.of(leaves)) if leaves else Op("flush")


def _delete_parent(choose: Choices, oracle: Oracle, serial: int) -> Op:
    """Delete a branch that may not be deleted: `main` is always one."""
    branches = oracle.model.branches.values()
    parents = {branch.parent for branch in branches} | {MAIN}
    return Op("delete", choose.of([branch.name for branch in branches if branch.id in parents]))


def _floor(choose: Choices, oracle: Oracle, serial: int) -> Op:
    declared = oracle.model.declared
    return Op("floor", lsn=declared + choose.below(oracle.durable_lsn() - declared + 1) // 2)


def _floor_back(choose: Choices, oracle: Oracle, serial: int) -> Op:
    return Op("floor", lsn=max(oracle.model.declared - 1, 0))


_SPELLED: dict[str, Callable[[Choices, Oracle, int], Op]] = {
    "append": _append,
    "retry": _retry,
    "branch": _branch,
    "branch twice": _branch_twice,
    "delete": _delete,
    "delete parent": _delete_parent,
    "floor": _floor,
    "floor back": _floor_back,
}


def _records(choose: Choices, count: int, serial: int, page_size: int) -> tuple[WalRecord, ...]:
    made = []
    for i in range(count):
        data = image(serial * 8 + i, page_size)
        page = choose.of([*PAGES, None])
        made.append(WalRecord(data[: 1 + choose.below(200)], None) if page is None else WalRecord(data, page))
    return tuple(made)


def program(seed: int, length: int, page_size: int) -> list[Op]:
    """`length` steps that all succeed, the same for the same seed. The first acquires the fence."""
    chance = random.Random(seed)
    kinds = chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=length - 1)
    return spell((("acquire", b""), *((kind, chance.randbytes(20)) for kind in kinds)), page_size)


def spell(steps: Iterable[tuple[str, bytes]], page_size: int) -> list[Op]:
    """Steps given by kind and choices, spelled out one after the other against an oracle."""
    player = oracle_player(page_size)
    assert isinstance(player.storage, Oracle)
    ops = []
    for serial, (kind, data) in enumerate(steps, 1):
        ops.append(step(kind, data, player.storage, serial))
        player.do(ops[-1])
    return ops


class Player:
    """Does steps on a store, one after the other, as one writer that remembers its token."""

    def __init__(self, opener: Callable[[], Storage]) -> None:
        self._opener = opener
        self.storage = opener()
        self.token = FenceToken(0, "nobody", 0.0)
        self.epochs: list[int] = []

    def do(self, op: Op) -> Outcome:
        """Do one step and say how it went. Errors of the seam are outcomes; all others pass through."""
        try:
            return self._do(op)
        except StorageError as error:
            return type(error).__name__, 0

    def _do(self, op: Op) -> Outcome:
        storage = self.storage
        if op.kind == "append":
            return "lsn", storage.append_wal(self.token, op.records, branch=op.branch, request_id=op.request_id)
        if op.kind == "acquire":
            self.token = storage.acquire_fence("player")
            if self.epochs and self.token.epoch <= self.epochs[-1]:
                return "epoch issued again", self.token.epoch
            self.epochs.append(self.token.epoch)
            return "epoch", len(self.epochs)
        if op.kind == "renew":
            self.token = storage.renew_fence(self.token)
            return "epoch", 1 + self.epochs.index(self.token.epoch)
        if op.kind == "release":
            storage.release_fence(self.token)
        elif op.kind == "branch":
            storage.create_branch(op.name, Lsn(op.lsn), parent=op.branch)
        elif op.kind == "delete":
            storage.delete_branch(op.branch)
        elif op.kind == "floor":
            storage.set_retention_floor(Lsn(op.lsn))
        elif op.kind == "compact":
            compact(storage)
        elif op.kind == "reopen":
            storage.close()
            self.storage = self._opener()
        else:
            storage.flush()
        return "done", 0


def compact(storage: Storage) -> None:
    """Have a store tidy up now, if it can be told to."""
    tidy: Callable[[], object] | None = getattr(storage, "compact", None)
    if tidy is not None:
        tidy()


def oracle_player(page_size: int) -> Player:
    """A player on a new oracle, which keeps what it holds when it is reopened."""
    model = OracleState(page_size)
    return Player(lambda: Oracle(model, lease_ms=3_600_000))
