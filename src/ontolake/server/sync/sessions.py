"""Who may go on with a session: tokens that change with every opening and that a restarted server still knows.

A resume token is signed with the client's own token, so that nothing has to be kept for it. While a server lives it
takes the newest one of a session alone.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable

from ontolake.documents.errors import ProtocolError

_KNOWN = 10_000
"""Sessions whose newest token is remembered."""


class SessionKey:
    """What signs the tokens of one client for one store."""

    def __init__(self, token: str, principal: str, store: str) -> None:
        self._key = hashlib.sha256(token.encode()).digest()
        self._scope = f"{principal}\0{store}"

    def sign(self, session: str, generation: int) -> str:
        signed = hmac.new(self._key, f"{self._scope}\0{session}\0{generation}".encode(), hashlib.sha256).hexdigest()
        return f"{generation}.{signed}"

    def generation(self, session: str, token: str) -> int | None:
        """The number of an opening that a token is of; None if it was not signed here."""
        number, _, _ = token.partition(".")
        if not (number.isascii() and number.isdigit() and len(number) < 16):
            return None
        signed = self.sign(session, int(number))
        return int(number) if hmac.compare_digest(signed.encode(), token.encode()) else None


class OpenSessions:
    """The sessions of a space that are open, and the newest token of each that was."""

    def __init__(self) -> None:
        self._holders: dict[str, Callable[[], None]] = {}
        self._generations: OrderedDict[str, int] = OrderedDict()

    def open(self, key: SessionKey, session: str | None, token: str | None, used: bool, revoke: Callable[[], None]
             ) -> tuple[str, str, bool]:  # fmt: skip
        """Open a session: its name, its next token, and whether it was resumed. Whoever holds it is revoked.

        `used` says that the store has commits of it. Raises `ProtocolError` if it is another one's.
        """
        name = secrets.token_hex(16) if session is None else session
        known = self._generations.get(name, 0)
        if token is None:
            if used or known:
                raise ProtocolError(f"the session {name!r} was used before, and going on with it takes its token",
                                    hint="send resumeToken, or leave session out for a new one")
            generation = 0
        else:
            found = key.generation(name, token)
            if found is None or found < known:
                raise ProtocolError(f"this is not the newest resume token of the session {name!r}",
                                    hint="open a new session")
            generation = found
        self.close(name)
        self._holders[name] = revoke
        self._generations[name] = generation + 1
        self._generations.move_to_end(name)
        while len(self._generations) > _KNOWN:
            self._generations.popitem(last=False)
        return name, key.sign(name, generation + 1), token is not None

    def close(self, session: str) -> None:
        """Revoke whoever holds a session."""
        holder = self._holders.pop(session, None)
        if holder is not None:
            holder()

    def leave(self, session: str, revoke: Callable[[], None]) -> None:
        """Give a session back, if it is still held with this `revoke`."""
        if self._holders.get(session) == revoke:
            del self._holders[session]
