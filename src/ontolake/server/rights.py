"""Who may do what: scopes, the stores and branches that they hold for, and the one check that every way in asks.

HTTP and every other protocol of the server call `check` before they touch a store; nothing else grants anything.
"""

from __future__ import annotations

from enum import IntEnum
from fnmatch import fnmatchcase
from typing import NamedTuple

from ontolake.errors import SafetyRefusal


class TokenScope(IntEnum):
    """What a token allows. Each scope includes those before it."""

    READ = 1
    WRITE = 2
    MERGE = 3
    ADMIN = 4

    @classmethod
    def parse(cls, text: str) -> TokenScope:
        """The scope of a name. Raises `KeyError`."""
        return cls[text.upper()]


class Principal(NamedTuple):
    """Who asks. `name` is the author of commits; `stores` and `branches` are patterns such as `try/*`."""

    name: str
    scope: TokenScope
    stores: tuple[str, ...] = ("*",)
    branches: tuple[str, ...] = ("*",)

    def sees_store(self, store: str) -> bool:
        return any(fnmatchcase(store, pattern) for pattern in self.stores)

    def sees_branch(self, branch: str) -> bool:
        return any(fnmatchcase(branch, pattern) for pattern in self.branches)

    @property
    def sees_all_stores(self) -> bool:
        return "*" in self.stores

    @property
    def sees_all_branches(self) -> bool:
        return "*" in self.branches


NOBODY = Principal("", TokenScope.READ, (), ())
"""Who asks for what needs no token."""


class Touch(NamedTuple):
    """What a request does to a store: the scope that it needs on a branch. `branch` None means all branches.

    `server` means all stores, as for the audit log.
    """

    scope: TokenScope
    branch: str | None
    server: bool = False


class ForbiddenError(SafetyRefusal):
    """The token does not allow this. `needs` is the scope that would."""

    def __init__(self, message: str, needs: TokenScope, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.needs = needs.name.lower()


def check_store(principal: Principal, store: str) -> None:
    """Raise `ForbiddenError` unless `principal` may do something with a store."""
    if not principal.sees_store(store):
        raise ForbiddenError(f"the token {principal.name!r} is not for the store {store!r}", TokenScope.READ,
                             hint="use a token for this store")


def check(principal: Principal, store: str | None, touch: Touch) -> None:
    """Raise `ForbiddenError` unless `principal` may do what `touch` says. `store` None means the server itself."""
    scope = touch.scope.name.lower()
    if principal.scope < touch.scope:
        raise ForbiddenError(f"the token {principal.name!r} has no scope {scope}", touch.scope,
                             hint=f"ask an administrator for a token: onto token create --scope {scope}")
    if store is not None:
        check_store(principal, store)
    if touch.server and not principal.sees_all_stores:
        raise ForbiddenError(f"this touches the whole server, and the token {principal.name!r} is for some stores",
                             touch.scope, hint="use a token for all stores and branches")
    if touch.branch is None and not principal.sees_all_branches:
        raise ForbiddenError(f"this touches every branch, and the token {principal.name!r} is for some", touch.scope,
                             hint="use a token for all branches")
    if touch.branch is not None and not principal.sees_branch(touch.branch):
        raise ForbiddenError(f"the token {principal.name!r} is not for the branch {touch.branch!r}", touch.scope,
                             hint="use a token for this branch")
