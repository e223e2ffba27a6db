"""Stores behind a server, for the commands of one model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ontolake.errors import Invalid

if TYPE_CHECKING:
    from ontolake.stores import Model


def is_server(url: str) -> bool:
    """Whether a URL is that of a server, or of a store behind one."""
    from ontolake import urls

    return url.startswith(tuple(f"{scheme}://" for scheme in urls.SERVERS))


def store_url(server: str, name: str) -> str:
    """The URL of a store of a server."""
    return f"{server.rstrip('/')}/{quote(name, safe='')}"


def open_remote(url: str, model: Model, *, write: bool) -> Any:
    """The store of a model behind a server. Raises `Invalid` for another model, and what `stores.find` raises."""
    from ontolake.stores import find

    found = find(url)
    if found.model is None or found.model.name != model.name:
        raise Invalid(f"{url!r} holds {found.described}, which this command is not for", hint=f"see onto info {url}")
    return found.open(write=write)
