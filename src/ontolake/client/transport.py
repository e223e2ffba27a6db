"""Requests to a server: a pool of connections, time-outs, and tries again that change nothing twice.

Every request that changes something carries an `Idempotency-Key`, the same in every try, so that a server that did it
already answers as it did the first time. What was not answered at all is tried again until `RetryPolicy.seconds` have
passed; what the server refused for the moment, when its `Retry-After` says so.
"""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec
import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    MaxRetryError,
    NameResolutionError,
    NewConnectionError,
    SSLError,
)

from ontolake.client.errors import UnknownOutcomeError, UnreachableError
from ontolake.client.problems import error_of, seconds_to_wait
from ontolake.errors import Invalid, OntolakeError
from ontolake.history import wire

_BUSY = (408, 429, 502, 503, 504)
"""Statuses after which the same request may succeed."""
_CONNECTIONS = 16
IDEMPOTENCY_KEY = "Idempotency-Key"


class RetryPolicy(NamedTuple):
    """How often and how long a request is tried again. Pauses double from `pause` seconds up to `longest`."""

    seconds: float = 30.0
    pause: float = 0.05
    longest: float = 5.0

    def wait(self, attempt: int, wanted: float | None) -> float:
        """Seconds to wait after an attempt, of which the first is 0; at least what the server wants."""
        most = min(self.longest, self.pause * 2.0 ** min(attempt, 20))
        return max(random.uniform(most / 2, most), wanted or 0.0)


class ConnectOptions(NamedTuple):
    """How a client reaches a server. `timeout` is how many seconds an answer may take to begin and to go on.

    `ca_certs` is a file of certificates to trust beside those of the system, `verify` False trusts any server: only
    for tests.
    """

    token: str | None = None
    timeout: float = 60.0
    connect_timeout: float = 5.0
    retry: RetryPolicy = RetryPolicy()
    ca_certs: str | None = None
    verify: bool = True


class HttpAnswer(NamedTuple):
    """An answer that is not an error."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        """The value of a body of JSON, with tags if it says so; None if there is none. Raises `Invalid`."""
        if not self.body:
            return None
        if self.headers.get("content-type", "").startswith(wire.MEDIA_TYPE):
            return wire.load(self.body)
        try:
            return msgspec.json.decode(self.body)
        except msgspec.MsgspecError as error:
            raise Invalid(f"the answer is not JSON: {error}") from error


class Transport:
    """Connections to one server, which threads may share."""

    def __init__(self, server: str, options: ConnectOptions = ConnectOptions()) -> None:  # noqa: B008
        """Nothing is sent yet. Raises `Invalid` for a file of certificates that is not one."""
        self.server = server
        self.options = options
        self._closed = False
        self._lock = threading.Lock()
        tls: dict[str, Any] = {}
        if server.startswith("https://"):
            tls = {"cert_reqs": "CERT_REQUIRED" if options.verify else "CERT_NONE"}
            if options.ca_certs is not None:
                if not os.path.isfile(options.ca_certs):
                    raise Invalid(f"there is no file {options.ca_certs!r}", hint="pass a file of certificates, PEM")
                tls["ca_certs"] = options.ca_certs
        self._pool = urllib3.PoolManager(
            maxsize=_CONNECTIONS, block=False, retries=False, **tls,
            timeout=urllib3.Timeout(connect=options.connect_timeout, read=options.timeout))  # fmt: skip

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Close all connections. Closing twice does no harm."""
        with self._lock:
            self._closed = True
        self._pool.clear()

    def request(
        self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: Any = None,
        data: bytes | None = None, headers: Mapping[str, str] | None = None, changes: bool | None = None,
    ) -> HttpAnswer:  # fmt: skip
        """Send a request and read its answer. `body` goes as JSON with tags, `data` as it is.

        It changes something unless its method is GET or `changes` says otherwise. Raises the error that the server met,
        `UnreachableError`, `UnknownOutcomeError`, `Invalid` for a value that cannot be sent.
        """
        sent = self._headers(headers, body)
        if body is not None:
            data = wire.dump(body)
        if changes is None:
            changes = method != "GET"
        if changes:
            sent.setdefault(IDEMPOTENCY_KEY, uuid.uuid4().hex)
        address = self._address(path, query)
        started, attempt, unsure = time.monotonic(), 0, False
        while True:
            wanted: float | None = None
            try:
                found = self._once(method, address, data, sent)
            except HTTPError as error:
                problem = self._failure(error, changes, unsure)
                unsure = unsure or isinstance(problem, UnknownOutcomeError)
                if isinstance(problem, Invalid):
                    raise problem from error
            else:
                if found.status < 400:
                    return found
                problem = error_of(found.status, found.body, found.headers)
                wanted = seconds_to_wait(found.headers)
                if found.status not in _BUSY or (found.status == 503 and wanted is None):
                    raise problem
            pause = self.options.retry.wait(attempt, wanted)
            if time.monotonic() - started + pause > self.options.retry.seconds:
                raise problem
            time.sleep(pause)
            attempt += 1

    @contextmanager
    def stream(
        self, method: str, path: str, *, query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None, timeout: float | None = None,
    ) -> Iterator[urllib3.BaseHTTPResponse]:  # fmt: skip
        """The answer to a request that only reads, while it comes. It is not tried again. Raises what `request` does;
        in the block, errors of the connection become `UnreachableError`."""
        response = None
        try:
            limit = None if timeout is None else urllib3.Timeout(connect=self.options.connect_timeout, read=timeout)
            extra: dict[str, Any] = {} if limit is None else {"timeout": limit}
            response = self._open().request(method, self._address(path, query), headers=self._headers(headers, None),
                                            preload_content=False, redirect=False, **extra)
            if response.status >= 400:
                raise error_of(response.status, response.read(), _lower(response.headers))
            yield response
        except HTTPError as error:
            raise self._failure(error, False, False) from error
        finally:
            if response is not None:
                response.close()  # whatever was not read makes the connection useless

    def _open(self) -> urllib3.PoolManager:
        if self._closed:
            raise Invalid(f"the connection to {self.server} is closed", hint="open the store again")
        return self._pool

    def _once(self, method: str, address: str, data: bytes | None, headers: Mapping[str, str]) -> HttpAnswer:
        response = self._open().request(method, address, body=data, headers=headers, redirect=False)
        return HttpAnswer(response.status, _lower(response.headers), response.data)

    def _headers(self, headers: Mapping[str, str] | None, body: Any) -> dict[str, str]:
        found = {"accept": wire.MEDIA_TYPE, **(headers or {})}
        if body is not None:
            found["content-type"] = wire.MEDIA_TYPE
        if self.options.token is not None:
            found["authorization"] = f"Bearer {self.options.token}"
        return found

    def _address(self, path: str, query: Mapping[str, Any] | None) -> str:
        given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        try:
            return f"{self.server}{path}" + (f"?{urlencode(given)}" if given else "")
        except UnicodeEncodeError as error:
            raise Invalid(f"a parameter cannot be sent: {error}") from error

    def _failure(self, error: HTTPError, changes: bool, unsure: bool) -> OntolakeError:
        """What a failure of the connection means to the caller."""
        cause = error.reason if isinstance(error, MaxRetryError) and error.reason is not None else error
        if isinstance(cause, SSLError):
            return Invalid(f"the certificate of {self.server} is not trusted: {cause}",
                           hint="pass ca_certs= with the certificate of its authority")
        if isinstance(cause, NameResolutionError):
            return UnreachableError(f"there is no host as in {self.server}", hint="check the URL")
        before = isinstance(cause, NewConnectionError | ConnectTimeoutError)
        if before and not unsure:
            return UnreachableError(f"nothing answers at {self.server}: {_reason(cause)}",
                                    hint="is the server running? onto serve starts one")
        if not changes:
            return UnreachableError(f"the connection to {self.server} failed: {_reason(cause)}", hint="try again")
        return UnknownOutcomeError(f"no answer came from {self.server}: {_reason(cause)}",
                                   hint="it may or may not have happened: look before you do it again")


def _reason(cause: BaseException) -> str:
    return str(cause).rpartition(": ")[2] or type(cause).__name__


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
