"""What is behind the URL of a server, and how it is opened: `ontolake.stores` asks here."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from ontolake.client.connection import StoreConnection
from ontolake.client.store import ClientStore
from ontolake.client.transport import ConnectOptions
from ontolake.errors import Invalid

_CLASSES = {"documents": "documents:RemoteSpace", "graph": "graph:RemoteGraph", "sql": "sql:RemoteDatabase",
            "typed": "typed:RemoteTypedStore"}  # fmt: skip


class RemoteFound(NamedTuple):
    """A store that a server has: its model, and what can be done with it."""

    url: str
    model: str
    verbs: list[str]
    options: ConnectOptions

    def open(self, *, write: bool, branch: str | None) -> ClientStore:
        """The store, as its model has it."""
        module, _, name = _CLASSES.get(self.model, "store:ClientStore").partition(":")
        cls: type[ClientStore] = getattr(import_module(f"ontolake.client.{module}"), name)
        return cls(self.url, write=write, branch=branch, options=self.options)


def describe(url: str, connect: Mapping[str, Any]) -> RemoteFound:
    """What is behind a URL. Raises `NotServedError`, `UnauthorizedError`, `UnreachableError`, `Invalid`."""
    options = connect_options(connect)
    connection = StoreConnection(url, write=False, options=options)
    try:
        info = connection.info
        return RemoteFound(url, info.model, info.verbs, options)
    finally:
        connection.close()


def connect_options(connect: Mapping[str, Any]) -> ConnectOptions:
    """Options as keyword arguments. Raises `Invalid` for one that is not known."""
    for name in connect:
        if name not in ConnectOptions._fields:
            raise Invalid(f"there is no option {name!r} of a connection",
                          hint=f"there are {', '.join(ConnectOptions._fields)}")
    return ConnectOptions(**connect)
