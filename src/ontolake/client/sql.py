"""A store of the model `sql` behind a server."""

from __future__ import annotations

from ontolake.client.store import ClientStore


class RemoteDatabase(ClientStore):
    """See `ClientStore`."""
