"""Tokens: given by the caller, from `ONTO_TOKEN`, or from a credentials file that only its owner can read."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

import msgspec

from ontolake.client.address import origin
from ontolake.errors import Invalid

TOKEN = "ONTO_TOKEN"
FILE = "ONTO_CREDENTIALS"
"""Names another file."""


def find_token(server: str, token: str | None = None) -> str | None:
    """The token for a server: the given one, that of `ONTO_TOKEN`, or that of the credentials file; None if none is.

    Raises `Invalid` for a token that cannot be one, and for a file that others can read or that is damaged.
    """
    if token is None:
        token = os.environ.get(TOKEN) or read_tokens().get(origin(server))
    if token is None:
        return None
    if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable() or " " in token:
        raise Invalid("a token is text without blanks", hint="take it as onto token create printed it")
    return token


def credentials_file() -> Path:
    """Where tokens are kept: `ONTO_CREDENTIALS`, else `ontolake/credentials.json` in the folder of configurations."""
    if named := os.environ.get(FILE):
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "ontolake" / "credentials.json"


def read_tokens() -> dict[str, str]:
    """The tokens of the credentials file, by server; none if there is no file. Raises `Invalid`."""
    file = credentials_file()
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            data = opened.read()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise Invalid(f"cannot read {str(file)!r}: {error.strerror}", hint="check its rights") from error
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise Invalid(f"{str(file)!r} holds tokens and can be read by others", hint=f"chmod 600 {file}")
    try:
        found = msgspec.json.decode(data, type=dict[str, str])
    except msgspec.MsgspecError as error:
        raise Invalid(f"{str(file)!r} is not a file of tokens: {error}",
                      hint='write {"http://host:8400": "TOKEN"}') from error
    return {origin(server): token for server, token in found.items()}


def save_token(server: str, token: str | None) -> Path:
    """Keep a token for a server, or forget it if it is None. Returns the file, which only its owner can read.

    Raises `Invalid` if the file cannot be read or written.
    """
    tokens = read_tokens()
    tokens.pop(origin(server), None)
    if token is not None:
        tokens[origin(server)] = token
    file = credentials_file()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(prefix=".credentials", dir=file.parent)  # of mode 0600
        try:
            with os.fdopen(number, "wb") as opened:
                opened.write(msgspec.json.format(msgspec.json.encode(tokens), indent=2) + b"\n")
            os.replace(name, file)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise Invalid(f"cannot write {str(file)!r}: {error.strerror}", hint=f"check {file.parent}") from error
    return file
