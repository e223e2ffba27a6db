"""A store of the model `typed` behind a server."""

from __future__ import annotations

from ontolake.client.store import ClientStore


class RemoteTypedStore(ClientStore):
    """See `ClientStore`."""
