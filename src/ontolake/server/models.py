"""What routes of one model ask of a store: that it is of the model, and which branch a name means there."""

from __future__ import annotations

from ontolake import stores
from ontolake.history.names import MAIN
from ontolake.server.handles import ServedStore
from ontolake.server.problems import RefusedError
from ontolake.server.rights import TokenScope, Touch


def check_model(store: ServedStore, model: stores.Model) -> None:
    """Raise `RefusedError` with 404 unless a store is of a model."""
    if store.model is not model:
        raise RefusedError(404, f"the store {store.name!r} is {store.model.described}, and this is for {model.name}",
                           hint="GET /api/v1/stores tells the model of each store")


def touched(scope: TokenScope, branch: str | None) -> Touch:
    """What a request for a branch touches. Documents call their first branch by an empty name."""
    return Touch(scope, branch or MAIN)
