"""Which web pages may use the server: none but its own, unless the configuration names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ontolake.server.problems import RefusedError

HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""What every answer has, unless its route says otherwise."""
_STRICT = (b"strict-transport-security", b"max-age=31536000")


class Origins:
    """The origins, such as `https://shop.example`, that may send requests from a browser."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self.allowed = frozenset(allowed)

    def check(self, headers: Mapping[bytes, bytes], scheme: str) -> None:
        """For requests that change something, and for sockets. Raises `RefusedError` with 403 for another origin.

        Programs that are not browsers send no origin. Those of pages that the server itself serves have its host.
        """
        origin = headers.get(b"origin")
        if origin is None:
            if headers.get(b"sec-fetch-site", b"none") in (b"cross-site", b"same-site"):
                raise _refused("another site")
            return
        text = origin.decode("latin-1")
        secure = "https" if scheme in ("https", "wss") else "http"
        if text not in self.allowed and text != f"{secure}://{headers.get(b'host', b'').decode('latin-1')}":
            raise _refused(repr(text))

    def granted(self, headers: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
        """The headers of an answer that let a page read it: none unless its origin is allowed."""
        origin = headers.get(b"origin")
        if origin is None or origin.decode("latin-1") not in self.allowed:
            return []
        return [(b"access-control-allow-origin", origin), (b"vary", b"origin"),
                (b"cross-origin-resource-policy", b"cross-origin"),
                (b"access-control-expose-headers", b"etag, x-request-id, retry-after, location")]  # fmt: skip

    def preflight(self, headers: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]] | None:
        """The headers that answer a browser's question whether it may send a request; None if it may not."""
        granted = self.granted(headers)
        if not granted or b"access-control-request-method" not in headers:
            return None
        return [*granted, (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
                (b"access-control-allow-headers",
                 b"authorization, content-type, accept, if-match, idempotency-key, x-request-id"),
                (b"access-control-max-age", b"600")]  # fmt: skip


def _refused(who: str) -> RefusedError:
    return RefusedError(403, f"pages of {who} may not use this server",
                        hint="an administrator can name the origin in the section [cors] of the configuration")


def security_headers(scheme: str) -> dict[bytes, bytes]:
    """What an answer has, unless its route says otherwise."""
    return _SECURE_HEADERS if scheme == "https" else _HEADERS


_HEADERS = dict(HEADERS)
_SECURE_HEADERS = {**_HEADERS, _STRICT[0]: _STRICT[1]}
