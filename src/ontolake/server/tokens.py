"""Tokens: secrets that are shown once and stored as SHA-256, with what each of them allows. PostgreSQL's clients prove
that they have one without sending it, which needs a verifier of SCRAM besides.

They are in one file of mode 0600, which the command line and running servers share: a token that is created or revoked
counts from the next request on.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import secrets
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec

from ontolake.errors import AlreadyExists, Invalid, NotFound, SafetyRefusal
from ontolake.folders import obstacle
from ontolake.server.pg.scram import ScramVerifier
from ontolake.server.rights import Principal, TokenScope

PREFIX = "onto_"
"""What tokens begin with, so that scanners of repositories know one."""
_USE_SECONDS = 60
"""How long the time of a last use may be kept in memory before it is written."""
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@+-")


class StoredToken(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A token as it is stored: everything but the secret."""

    name: str
    scope: str
    sha256: str
    created: datetime
    stores: tuple[str, ...] = ("*",)
    branches: tuple[str, ...] = ("*",)
    expires: datetime | None = None
    used: datetime | None = None
    """When it was last used, to the minute."""
    scram: str | None = None
    """What PostgreSQL's clients are checked against; tokens of earlier versions have none."""

    @property
    def principal(self) -> Principal:
        return Principal(self.name, TokenScope.parse(self.scope), self.stores, self.branches)

    def holds(self, now: datetime) -> bool:
        return self.expires is None or now < self.expires


class TokenRequest(NamedTuple):
    """A token that is wanted."""

    name: str
    scope: str = "read"
    stores: tuple[str, ...] = ("*",)
    branches: tuple[str, ...] = ("*",)
    lifetime: timedelta | None = None

    def check(self) -> None:
        """Raise `Invalid` if there cannot be such a token."""
        if not 0 < len(self.name) <= 128 or not _NAME.issuperset(self.name):
            raise Invalid(f"a token cannot be called {self.name!r}",
                          hint="use letters, digits and . _ @ + -, up to 128")
        if self.scope not in _SCOPES:
            raise Invalid(f"there is no scope {self.scope!r}", hint=f"use {', '.join(_SCOPES)}")
        for what, patterns in (("store", self.stores), ("branch", self.branches)):
            if not patterns or not all(patterns):
                raise Invalid(f"a {what} pattern cannot be empty", hint="use * for all")
        if self.lifetime is not None and self.lifetime <= timedelta():
            raise Invalid("a token has to live for some time", hint="write --expires 30d")


_SCOPES = tuple(scope.name.lower() for scope in TokenScope)


def digest(token: str) -> str:
    """What is stored of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(32)


class TokenFile:
    """The tokens in a file. Threads and processes may share it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._seen: tuple[int, ...] | None = None
        self._tokens: tuple[StoredToken, ...] = ()
        self._used: dict[str, datetime] = {}
        self._written = datetime.min.replace(tzinfo=UTC)

    def list(self) -> tuple[StoredToken, ...]:
        """All tokens, by name. None if there is no file. Raises `Invalid` for a file that holds something else,
        `SafetyRefusal` for one that others may read."""
        with self._lock:
            self._refresh()
            return tuple(msgspec.structs.replace(one, used=self._used.get(one.name, one.used)) for one in self._tokens)

    def create(self, wanted: TokenRequest) -> str:
        """Store a new token and return its secret, which cannot be had again. Raises `Invalid`, `AlreadyExists`."""
        wanted.check()
        secret, now = new_secret(), datetime.now(UTC).replace(microsecond=0)
        with self._changing() as tokens:
            if any(one.name == wanted.name for one in tokens.values()):
                raise AlreadyExists(f"there is a token {wanted.name!r} already",
                                    hint="revoke it first, or use another name")
            tokens[wanted.name] = StoredToken(
                wanted.name, wanted.scope, digest(secret), now, wanted.stores, wanted.branches,
                None if wanted.lifetime is None else now + wanted.lifetime,
                scram=str(ScramVerifier.of(secret)))  # fmt: skip
        return secret

    def revoke(self, name: str) -> None:
        """Remove a token. Raises `NotFound`."""
        with self._changing() as tokens:
            if tokens.pop(name, None) is None:
                raise NotFound(f"there is no token {name!r}", hint="onto token list shows them")

    def authenticate(self, token: str) -> Principal | None:
        """Who has a token; None for one that is unknown, revoked or expired. Every stored token is compared, in
        constant time."""
        wanted, now, found = digest(token), datetime.now(UTC), None
        with self._lock:
            self._refresh()
            for one in self._tokens:
                if hmac.compare_digest(one.sha256, wanted) and one.holds(now):
                    found = one
        if found is None:
            return None
        self.note_use(found.name)
        return found.principal

    def find(self, name: str) -> StoredToken | None:
        """The token of a name; None for one that is unknown, revoked or expired."""
        now = datetime.now(UTC)
        with self._lock:
            self._refresh()
            return next((one for one in self._tokens if one.name == name and one.holds(now)), None)

    def note_use(self, name: str) -> None:
        """A token was used: that is written down in a while."""
        now = datetime.now(UTC)
        with self._lock:
            self._used[name] = now.replace(second=0, microsecond=0)
            is_due = (now - self._written).total_seconds() > _USE_SECONDS
            self._written = now if is_due else self._written
        if is_due:
            threading.Thread(target=self.save_uses, name="ontolake-token-uses", daemon=True).start()

    def save_uses(self) -> None:
        """Write down when tokens were last used. A file that cannot be written to is left alone."""
        if not self._used:
            return
        try:
            with self._changing() as tokens:
                for name, used in self._used.items():
                    if name in tokens:
                        tokens[name] = msgspec.structs.replace(tokens[name], used=used)
        except (OSError, Invalid, NotFound):
            return

    def _refresh(self) -> None:
        """Read the file again if it has changed."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._seen, self._tokens = None, ()
            return
        seen = (status.st_mtime_ns, status.st_ino, status.st_size)
        if seen == self._seen:
            return
        if status.st_mode & 0o077:
            raise SafetyRefusal(f"others may read the tokens in {self.path}", hint=f"chmod 600 {self.path}")
        self._tokens, self._seen = _read(self.path), seen

    @contextmanager
    def _changing(self) -> Iterator[dict[str, StoredToken]]:
        """The tokens by name, which are written when the block ends without an error."""
        if told := obstacle(self.path):
            raise told
        with self._locked(), self._lock:
            self._refresh()
            tokens = {one.name: one for one in self._tokens}
            yield tokens
            self._write(tokens)
            self._refresh()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone among processes."""
        lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _write(self, tokens: Mapping[str, StoredToken]) -> None:
        ordered = [tokens[name] for name in sorted(tokens)]
        data = msgspec.json.format(msgspec.json.encode({"tokens": ordered}), indent=2) + b"\n"
        handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")  # of mode 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
        except BaseException:
            os.unlink(temporary)
            raise


class _Tokens(msgspec.Struct, forbid_unknown_fields=True):
    tokens: tuple[StoredToken, ...]


_FILE = msgspec.json.Decoder(_Tokens)


def _read(path: Path) -> tuple[StoredToken, ...]:
    try:
        found = _FILE.decode(path.read_bytes()).tokens
    except (msgspec.DecodeError, OSError) as error:
        raise Invalid(f"{path} is not a file of tokens: {error}", hint="onto token create starts one") from error
    wrong = next((one for one in found if one.scope not in _SCOPES), None)
    if wrong is not None:
        raise Invalid(f"the token {wrong.name!r} in {path} has the scope {wrong.scope!r}",
                      hint=f"use {', '.join(_SCOPES)}")
    return found
