"""Environment variables of object stores: texts, flags and endpoints, with errors that name the variable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from ontolake.errors import Invalid


class Variables:
    """The variables of this process, or the given ones. An empty variable counts as not set."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ

    def value(self, *names: str) -> str | None:
        """The first of the variables that is set."""
        return next((self._environ[name] for name in names if self._environ.get(name)), None)

    def flag(self, name: str, default: bool) -> bool:
        """A variable that is true or false. Raises `Invalid` for anything else."""
        text = self._environ.get(name, "").strip().lower()
        if not text:
            return default
        if text in ("1", "true", "yes", "on"):
            return True
        if text in ("0", "false", "no", "off"):
            return False
        raise Invalid(f"{name} is {self._environ[name]!r}, which is neither true nor false",
                      hint=f"set {name} to true or false")

    def endpoint(self, url: str, names: tuple[str, ...], permission: str) -> str | None:
        """The address of a server, without a slash at its end; None if no variable has one.

        Raises `Invalid` if it is not an address, or speaks plain HTTP and the variable `permission` does not allow it.
        """
        endpoint = self.value(*names)
        if endpoint is None:
            return None
        try:
            parts = urlsplit(endpoint)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not parts.query
        except ValueError:
            usable = False
        if not usable or any(c.isspace() for c in endpoint):
            raise Invalid(f"cannot open {url!r}: the endpoint {endpoint!r} is not an address",
                          hint=f"set {names[-1]} to something like https://host:port")
        if parts.scheme == "http" and not self.flag(permission, False):
            raise Invalid(f"cannot open {url!r}: the endpoint {endpoint!r} would send data in the clear",
                          hint=f"use https://, or set {permission}=true if that is meant")
        return endpoint.rstrip("/")
