"""SCRAM-SHA-256 (RFC 5802, RFC 7677) as PostgreSQL uses it: what is stored of a token, and the server's side of the
exchange that proves that a client has the token."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from functools import cached_property

import msgspec

from ontolake.errors import Invalid

MECHANISM = "SCRAM-SHA-256"
ITERATIONS = 4096
"""Rounds of hashing. Tokens are random, so that more would make nothing safer."""
_STORED = re.compile(r"SCRAM-SHA-256\$(\d{1,9}):([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)")
_FIRST = re.compile(r"([ny]|p=[^,]*),(?:a=[^,]*)?,((?:m=[^,]*,)?n=[^,]*,r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?)", re.DOTALL)
_FINAL = re.compile(r"(c=([^,]*),r=([^,]+)(?:,.*)?),p=([^,]+)", re.DOTALL)


class ScramVerifier(msgspec.Struct, frozen=True):
    """What a server keeps of a secret: enough to check a proof, too little to make one."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, secret: str, salt: bytes | None = None, iterations: int = ITERATIONS) -> ScramVerifier:
        """The verifier of a secret."""
        salt = secrets.token_bytes(16) if salt is None else salt
        salted = hashlib.pbkdf2_hmac("sha256", secret.encode(), salt, iterations)
        client_key = _hmac(salted, b"Client Key")
        return cls(iterations, salt, hashlib.sha256(client_key).digest(), _hmac(salted, b"Server Key"))

    @classmethod
    def parse(cls, text: str) -> ScramVerifier:
        """A verifier as it is stored, in the form of PostgreSQL's pg_authid. Raises `Invalid`."""
        found = _STORED.fullmatch(text)
        try:
            if found is not None:
                salt, stored, server = (base64.b64decode(each, validate=True) for each in found.groups()[1:])
                if len(stored) == len(server) == 32 and int(found[1]) > 0:
                    return cls(int(found[1]), salt, stored, server)
        except binascii.Error:
            pass
        raise Invalid("this is no verifier of SCRAM-SHA-256", hint="create the token anew")

    def __str__(self) -> str:
        salt, stored, server = (_encoded(each) for each in (self.salt, self.stored_key, self.server_key))
        return f"{MECHANISM}${self.iterations}:{salt}${stored}:{server}"


class MockVerifiers:
    """Verifiers of names that nobody has, always the same for one name: an exchange fails with them as with a wrong
    secret, so that nobody learns which names there are."""

    @cached_property
    def _key(self) -> bytes:
        return secrets.token_bytes(32)

    def of(self, name: str) -> ScramVerifier:
        salt = _hmac(self._key, name.encode("utf-8", "surrogatepass"))[:16]
        return ScramVerifier(ITERATIONS, salt, secrets.token_bytes(32), secrets.token_bytes(32))


class ScramExchange:
    """The server's side of one exchange: two messages of the client, with an answer to each."""

    def __init__(self, verifier: ScramVerifier, nonce: str | None = None) -> None:
        self._verifier = verifier
        self._nonce = secrets.token_urlsafe(18) if nonce is None else nonce
        self._binding = ""
        self._said = ""
        """What both have said so far, which the proof is about."""

    def first(self, data: bytes) -> bytes:
        """The answer to the client's first message. Raises `Invalid` if that cannot be read."""
        found = _FIRST.fullmatch(_decoded(data))
        if found is None or found[1].startswith("p="):
            raise Invalid("the first message of SCRAM cannot be read", hint=f"only {MECHANISM} is offered")
        if found[2].startswith("m="):
            raise Invalid("the client needs an extension of SCRAM that is not known")
        self._binding = f"{data.decode()[: -len(found[2])]}"
        self._nonce = found[3] + self._nonce
        answer = f"r={self._nonce},s={_encoded(self._verifier.salt)},i={self._verifier.iterations}"
        self._said = f"{found[2]},{answer}"
        return answer.encode()

    def final(self, data: bytes) -> bytes | None:
        """The answer to the client's second message; None if it does not have the secret. Raises `Invalid` if the
        message cannot be read."""
        found = _FINAL.fullmatch(_decoded(data))
        try:
            binding = base64.b64decode(found[2], validate=True) if found is not None else b""
            proof = base64.b64decode(found[4], validate=True) if found is not None else b""
        except binascii.Error:
            found = None
        if found is None or found[3] != self._nonce or binding != self._binding.encode() or len(proof) != 32:
            raise Invalid("the second message of SCRAM cannot be read")
        said = f"{self._said},{found[1]}".encode()
        signature = _hmac(self._verifier.stored_key, said)
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), self._verifier.stored_key):
            return None
        return f"v={_encoded(_hmac(self._verifier.server_key, said))}".encode()


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Invalid("a message of SCRAM is not UTF-8") from error
