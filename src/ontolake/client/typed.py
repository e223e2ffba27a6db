"""`RemoteTypedStore`: a typed store behind a server, with classes made from the schemas that it holds."""

from __future__ import annotations

from functools import cached_property
from typing import Any, cast

from ontolake.client.connection import StoreConnection
from ontolake.client.repository import RemoteRepository
from ontolake.client.store import ClientStore
from ontolake.client.transport import ConnectOptions
from ontolake.ontology.config import Config
from ontolake.ontology.repository import Repository
from ontolake.ontology.typed_store import TypedStore


class RemoteTypedStore(ClientStore, TypedStore):  # type: ignore[misc]
    """See `ontology.TypedStore`: `types`, `find` and `query` work as there."""

    def __init__(
        self, url: str, *, write: bool = True, branch: str | None = None, options: ConnectOptions | None = None
    ) -> None:  # fmt: skip
        connection = StoreConnection(url, write=write, options=options or ConnectOptions())
        self._attach(connection, branch)
        self.config = Config(branch="main" if branch is None else branch, readonly=not write)
        self._declared = {}
        self.repository = cast(Repository, RemoteRepository(connection, self.config))

    @cached_property
    def _infos(self) -> Any:  # type: ignore[override]
        return self._adopted({})
