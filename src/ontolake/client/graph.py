"""A store of the model `graph` behind a server."""

from __future__ import annotations

from ontolake.client.store import ClientStore


class RemoteGraph(ClientStore):
    """See `ClientStore`."""
