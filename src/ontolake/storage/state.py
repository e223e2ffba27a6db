"""The state of a database, folded from its log: the writer's place, the branches, the floor.

Pure rules, no I/O: `LogState.apply` takes a change that a control frame holds, and the checks say whether a
request may be made against the state as it is.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from ontolake.decoders import learn
from ontolake.errors import AlreadyExists, Corruption, Fenced, Invalid, NotFound
from ontolake.storage.types import MAIN, BranchId, BranchRef, FenceToken, Lsn, WriterId


class BranchState(msgspec.Struct):
    """A live branch. `head` is the last LSN written on it."""

    id: int
    name: str
    base: int
    head: int
    parent: int | None

    def ref(self) -> BranchRef:
        parent = None if self.parent is None else BranchId(self.parent)
        return BranchRef(BranchId(self.id), self.name, Lsn(self.base), Lsn(self.head), parent)


class LogState(msgspec.Struct):
    """Everything that the log says, except the records themselves. `cursor` is where its medium continues."""

    cursor: int
    ordinal: int = 0
    prev: int = 0
    next_lsn: int = 1
    epoch: int = 0
    owner: dict[str, str] = msgspec.field(default_factory=dict)
    lease_until: float = 0.0
    held: bool = False
    declared_floor: int = 0
    next_branch: int = 1
    branches: dict[int, BranchState] = msgspec.field(default_factory=lambda: {0: BranchState(0, "main", 0, 0, None)})

    def copy(self) -> LogState:
        return msgspec.convert(msgspec.to_builtins(self), LogState)

    @property
    def floor(self) -> int:
        """The oldest LSN that can be read: what was declared, held back by the base of every live branch."""
        bases = [branch.base for branch in self.branches.values() if branch.id != MAIN]
        return min([self.declared_floor, *bases])

    # what may be asked
    def branch(self, branch: BranchId | str) -> BranchState:
        if isinstance(branch, str):
            for found in self.branches.values():
                if found.name == branch:
                    return found
        elif isinstance(branch, int) and branch in self.branches:
            return self.branches[branch]
        known = ", ".join(sorted(found.name for found in self.branches.values()))
        raise NotFound(f"there is no branch {branch!r}", hint=f"branches: {known}")

    def lineage(self, branch: BranchState) -> list[tuple[int, int]]:
        """The branches whose records this one sees, itself first, each with the last LSN it sees of it."""
        cap, found = 2**64 - 1, [(branch.id, 2**64 - 1)]
        while branch.parent is not None:
            cap = min(cap, branch.base)
            branch = self.branches[branch.parent]
            found.append((branch.id, cap))
        return found

    def check_token(self, token: FenceToken) -> None:
        """Raise `Fenced` unless `token` is the one that may write now."""
        if not isinstance(token, FenceToken):
            raise Invalid(f"a fence token is needed, not {type(token).__name__}", hint="acquire_fence gives one")
        if type(token.epoch) is not int or type(token.owner) not in (int, str):
            raise Invalid(f"{token!r} is no token of ours", hint="acquire_fence gives one")
        if token.epoch != self.epoch:
            reason = None if token.epoch < self.epoch else f"it was never issued here (epoch is {self.epoch})"
            raise Fenced(token.epoch, self.epoch, reason)
        if not self.epoch:
            raise Fenced(token.epoch, 0, "no fence was ever acquired here")
        if _keep(token.owner) != self.owner:
            raise Fenced(token.epoch, self.epoch, f"its epoch belongs to {self.token().owner!r}")
        if not self.held:
            raise Fenced(token.epoch, self.epoch, "it was released")
        if time.time() >= self.lease_until:
            raise Fenced(token.epoch, self.epoch, "its lease has expired")

    def token(self) -> FenceToken:
        """The token in force."""
        kind, name = next(iter(self.owner.items()))
        return FenceToken(self.epoch, int(name) if kind == "int" else name, self.lease_until)

    # changes
    def acquire(self, owner: WriterId, lease_until: float) -> dict[str, Any]:
        known = is_text(owner) or (type(owner) is int and 0 <= owner < 2**128)
        if not known or owner == "":
            raise Invalid(f"a writer is named by a non-empty string or an integer of up to 128 bits, not {owner!r}")
        return {"op": "acquire", "epoch": self.epoch + 1, "owner": _keep(owner), "until": lease_until}

    def renew(self, token: FenceToken, lease_until: float) -> dict[str, Any]:
        self.check_token(token)
        return {"op": "renew", "epoch": token.epoch, "until": lease_until}

    def release(self, token: FenceToken) -> dict[str, Any] | None:
        """None when the token is not the one in force: there is nothing to give up."""
        if not isinstance(token, FenceToken):
            raise Invalid(f"a fence token is needed, not {type(token).__name__}", hint="acquire_fence gives one")
        if token.epoch != self.epoch or not self.held or _keep(token.owner) != self.owner:
            return None
        return {"op": "release", "epoch": token.epoch}

    def create_branch(self, name: str, base_lsn: int, parent: BranchId | str) -> dict[str, Any]:
        found = self.branch(parent)
        self._check_name(name)
        check_lsn(base_lsn, "base_lsn")
        self.check_readable(base_lsn)
        if base_lsn >= self.next_lsn:
            raise NotFound(f"LSN {base_lsn} lies in the future: the durable LSN is {self.next_lsn - 1}")
        return {"op": "branch", "id": self.next_branch, "name": name, "base": base_lsn, "parent": found.id}

    def delete_branch(self, branch: BranchId | str) -> dict[str, Any]:
        found = self.branch(branch)
        if found.id == MAIN:
            raise Invalid("the branch main cannot be deleted")
        children = [other.name for other in self.branches.values() if other.parent == found.id]
        if children:
            raise Invalid(f"branch {found.name!r} has branches of its own: {', '.join(children)}",
                          hint="delete those first")
        return {"op": "unbranch", "id": found.id}

    def rename_branch(self, branch: BranchId | str, name: str) -> dict[str, Any]:
        found = self.branch(branch)
        if found.id == MAIN:
            raise Invalid("the branch main cannot be renamed")
        self._check_name(name)
        return {"op": "rename", "id": found.id, "name": name}

    def rebase_branch(self, branch: BranchId | str, base_lsn: int) -> dict[str, Any] | None:
        """None when the branch has this base already."""
        found = self.branch(branch)
        if found.id == MAIN:
            raise Invalid("the branch main has no base")
        check_lsn(base_lsn, "base_lsn")
        if base_lsn < found.base:
            raise Invalid(f"the base of {found.name!r} cannot move back from LSN {found.base} to {base_lsn}")
        if base_lsn >= self.next_lsn:
            raise NotFound(f"LSN {base_lsn} lies in the future: the durable LSN is {self.next_lsn - 1}")
        return None if base_lsn == found.base else {"op": "rebase", "id": found.id, "base": base_lsn}

    def _check_name(self, name: str) -> None:
        """Raise `Invalid` or `AlreadyExists` if no branch can get this name."""
        if not is_text(name) or not name.strip() or name != name.strip() or len(name) > 200 or not (
                name.isprintable()):
            raise Invalid(f"{name!r} is not a branch name", hint="1 to 200 printable characters, no blanks around")
        if any(branch.name == name for branch in self.branches.values()):
            raise AlreadyExists(f"a branch named {name!r} exists already")

    def set_floor(self, lsn: int) -> dict[str, Any] | None:
        """None when `lsn` is the floor that was declared already."""
        check_lsn(lsn, "the retention floor")
        if lsn < self.declared_floor:
            raise Invalid(f"the retention floor cannot move back from LSN {self.declared_floor} to {lsn}")
        if lsn >= self.next_lsn:
            raise Invalid(f"the retention floor {lsn} lies above the durable LSN {self.next_lsn - 1}")
        return None if lsn == self.declared_floor else {"op": "floor", "lsn": lsn}

    def check_readable(self, lsn: int) -> None:
        """Raise `NotFound` if `lsn` lies below the floor."""
        if lsn < self.floor:
            raise NotFound(f"LSN {lsn} is no longer kept: the oldest that can be read is {self.floor}")

    def apply(self, change: dict[str, Any], epoch: int) -> None:
        """Take a change over from the log. `epoch` is the frame's own."""
        op = change["op"]
        if op == "acquire":
            self.epoch, self.owner = epoch, change["owner"]
            self.lease_until, self.held = change["until"], True
        elif op == "renew":
            self.lease_until = max(self.lease_until, change["until"])
        elif op == "release":
            self.held = False
        elif op == "branch":
            self.branches[change["id"]] = BranchState(
                change["id"], change["name"], change["base"], change["base"], change["parent"])
            self.next_branch = change["id"] + 1
        elif op == "unbranch":
            self.branches.pop(change["id"])
        elif op == "rename":
            self.branches[change["id"]].name = change["name"]
        elif op == "rebase":
            found = self.branches[change["id"]]
            found.head = change["base"] if found.head == found.base else found.head  # where nothing was written
            found.base = change["base"]
        elif op == "floor":
            self.declared_floor = change["lsn"]
        else:
            raise Corruption(f"the log holds an unknown change {op!r}",
                             hint="the database was written by a newer version")


learn(LogState)


def is_text(value: object) -> bool:
    """Whether `value` is a string that can be stored: one without lone surrogates."""
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)


def check_lsn(lsn: int, name: str) -> None:
    """Raise `Invalid` unless `lsn` can be a log sequence number."""
    if not isinstance(lsn, int) or isinstance(lsn, bool) or not 0 <= lsn < 2**64:
        raise Invalid(f"{name} must be an integer of 0 or more, not {lsn!r}")


def _keep(owner: WriterId) -> dict[str, str]:
    """A writer's name as it is stored: integers of up to 128 bits do not fit the encoding, so they are text."""
    return {"int": str(owner)} if isinstance(owner, int) else {"str": owner}
