"""The stores that a server has: which there are, and what each one is."""

from __future__ import annotations

from typing import Any

import msgspec

from ontolake.server.handles import ServedStore
from ontolake.server.rights import TokenScope, Touch
from ontolake.server.routes import Call, nothing, route


class StoreOut(msgspec.Struct):
    """A store: its name, its model, and what can be done with it."""

    name: str
    model: str
    described: str
    verbs: list[str]
    writes: bool
    """Whether the server writes to it."""
    first_branch: str


class StoreList(msgspec.Struct):
    """All stores that the token may see."""

    stores: list[StoreOut]


def _described(served: ServedStore) -> StoreOut:
    found = served.found
    verbs = sorted({*served.model.verbs, *found.more} - {"copy"})
    return StoreOut(served.name, served.model.name, found.described, list(verbs), served.writes, served.first_branch)


@route("GET", "/stores", touches=nothing, answers={200: StoreList}, tag="stores")
def list_stores(call: Call) -> Any:
    """The stores that the token may see."""
    return StoreList([_described(one) for one in call.server.stores if call.principal.sees_store(one.name)])


def reads_something(call: Call) -> list[Touch]:
    """For what shows nothing of any branch."""
    patterns = call.principal.branches
    return [Touch(TokenScope.READ, None if call.principal.sees_all_branches else patterns[0] if patterns else None)]


@route("GET", "/stores/{store}", touches=reads_something, answers={200: StoreOut}, tag="stores")
def describe_store(call: Call) -> Any:
    """One store: its model, and what can be done with it."""
    return _described(call.store)
