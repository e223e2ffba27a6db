"""Where a store behind a server is: the server's address and the name of the store."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

from ontolake import urls
from ontolake.errors import Invalid

API = "/api/v1"


class StoreAddress(NamedTuple):
    """`server` is the URL of the server, with no slash at its end; `store` is the name of the store there."""

    server: str
    store: str

    @classmethod
    def parse(cls, url: str) -> StoreAddress:
        """The address of `http://host:8400/shop`. Raises `Invalid`."""
        location = urls.parse(url)
        if location.place is not urls.Place.SERVER:
            raise Invalid(f"{url!r} is not the URL of a store behind a server", hint="write http://host:8400/name")
        prefix, _, name = location.path.rpartition("/")
        below = f"/{quote(prefix)}" if prefix else ""
        return cls(f"{location.scheme}://{location.bucket}{below}", name)

    @property
    def url(self) -> str:
        return f"{self.server}/{quote(self.store, safe='')}"

    @property
    def path(self) -> str:
        """The path of the store's routes, below the server's address."""
        return f"{API}/stores/{quote(self.store, safe='')}"


def origin(url: str) -> str:
    """The scheme, host and port of a URL, in one spelling: what tokens are kept by. Raises `Invalid`."""
    scheme, separator, rest = url.partition("://")
    host = rest.partition("/")[0].lower()
    if not separator or scheme.lower() not in urls.SERVERS or not host or "@" in host:
        raise Invalid(f"{url!r} is not the address of a server", hint="write http://host:8400 or https://host")
    default = {"http": ":80", "https": ":443"}[scheme.lower()]
    return f"{scheme.lower()}://{unquote(host).removesuffix(default)}"
