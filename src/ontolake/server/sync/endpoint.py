"""Where sockets come in: a client with a token for the store, which holds documents."""

from __future__ import annotations

from collections.abc import Iterable

from ontolake.server.models import check_model
from ontolake.server.rights import TokenScope, Touch
from ontolake.server.routes import Call, socket
from ontolake.server.sync.connections import SyncConnection
from ontolake.stores import DOCUMENTS


def _greeted(call: Call) -> Iterable[Touch]:
    """Reading whatever the token is for; each message is checked again for the branch that it names."""
    check_model(call.store, DOCUMENTS)
    branches = call.principal.branches
    return [Touch(TokenScope.READ, call.store.first_branch if "*" in branches else next(iter(branches), None))]


@socket("/stores/{store}/sync", touches=_greeted, tag="documents")
async def sync_documents(call: Call) -> None:
    """Documents over WebSocket: sessions, transactions and watch sets, as docs/sync.md describes them."""
    from ontolake.server.app import sent_token

    await SyncConnection(call, sent_token(call.socket)).run()
