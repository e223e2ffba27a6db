"""A store of the model `documents` behind a server."""

from __future__ import annotations

from ontolake.client.store import ClientStore


class RemoteSpace(ClientStore):
    """See `ClientStore`."""
