"""Who a client is: the credentials that SCRAM is checked against, and the parameters that a session begins with."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple, Protocol

from ontolake.server.pg.scram import ScramVerifier
from ontolake.server.rights import Principal
from ontolake.server.tokens import TokenFile
from ontolake.sql.commands.settings import Settings
from ontolake.sql.errors import SqlError

NOT_SETTINGS = frozenset({"user", "database", "options", "replication"})


class ClientCredential(NamedTuple):
    """Who has a name, and how to check the secret; `verifier` is None for a token that was made without one."""

    principal: Principal
    verifier: ScramVerifier | None


class ClientCredentials(Protocol):
    """The tokens that clients can come with."""

    def find(self, name: str) -> ClientCredential | None:
        """Whoever has a name now; None if nobody does, or the token has expired."""
        ...

    def used(self, name: str) -> None:
        """Note that a token was used."""
        ...


class TokenCredentials:
    """The tokens of a file, by name. A token that is revoked is gone from the next look on."""

    def __init__(self, tokens: TokenFile) -> None:
        self._tokens = tokens

    def find(self, name: str) -> ClientCredential | None:
        found = self._tokens.find(name)
        if found is None:
            return None
        return ClientCredential(found.principal, None if found.scram is None else _verifier(found.scram))

    def used(self, name: str) -> None:
        self._tokens.note_use(name)


@lru_cache(maxsize=1024)
def _verifier(text: str) -> ScramVerifier:
    return ScramVerifier.parse(text)


class KnownCredentials:
    """ClientCredentials that are known beforehand, by name: those of the server itself, and of tests."""

    def __init__(self, secrets: Mapping[str, Principal], others: ClientCredentials | None = None) -> None:
        """`secrets` has principals by their secrets; `others` are looked at for other names."""
        self._known = {one.name: ClientCredential(one, ScramVerifier.of(secret)) for secret, one in secrets.items()}
        self._others = others

    def find(self, name: str) -> ClientCredential | None:
        found = self._known.get(name)
        return found if found is not None or self._others is None else self._others.find(name)

    def used(self, name: str) -> None:
        if name not in self._known and self._others is not None:
            self._others.used(name)


def apply_parameters(settings: Settings, parameters: Mapping[str, str], notice: Callable[[str], None]) -> None:
    """Let a session begin with the settings that a client sends. Raises `SqlError`.

    A time zone or another setting that would change answers, and is not the one that answers are given for, is left
    as it is with a notice: drivers send that of their machine by themselves.
    """
    given = {name: value for name, value in parameters.items() if name not in NOT_SETTINGS}
    for name, value in {**given, **_options(parameters.get("options", ""))}.items():
        if name.startswith("_pq_."):
            continue
        try:
            settings.start(name, value)
        except SqlError as error:
            if error.sqlstate != "22023" or name in _options(parameters.get("options", "")):
                raise
            notice(f"{name} is {settings.get(name)}: {error.message}")


def _options(text: str) -> dict[str, str]:
    """Settings in the form of the command line: `-c name=value` and `--name=value`. Raises `SqlError`."""
    found: dict[str, str] = {}
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise SqlError(f"the options cannot be read: {error}", sqlstate="08P01") from error
    while words:
        word = words.pop(0)
        if word == "-c" and words:
            word = words.pop(0)
        elif word.startswith(("-c", "--")):
            word = word[2:]
        else:
            raise SqlError(f"invalid command-line argument for server process: {word}", sqlstate="42601")
        name, equals, value = word.partition("=")
        if not equals:
            raise SqlError(f"-c {name} requires a value", sqlstate="42601")
        found[name.replace("-", "_")] = value
    return found


