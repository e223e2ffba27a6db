"""What is kept of an erasure, the same on every model: when, who, why, of which table, and a salted hash of the key.

The hash tells whether a key that somebody knows was erased. The key itself is never kept.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

from ontolake.errors import Invalid
from ontolake.history.metadata import ERASED, KIND
from ontolake.history.words import Garbage

ERASURE = "erasure"
"""The kind of the commit that an erasure leaves."""


class KeyHash(NamedTuple):
    """A key of a table as an audit entry has it."""

    salt: str
    hash: str

    @classmethod
    def of(cls, table: str, key: Any, salt: str | None = None) -> KeyHash:
        """The hash of a key, with a new salt unless one is given."""
        salt = secrets.token_hex(16) if salt is None else salt
        text = json.dumps([salt, table, *map(str, parts(key))])
        return cls(salt, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())

    def is_of(self, table: str, key: Any) -> bool:
        """Whether this is the hash of a key."""
        return KeyHash.of(table, key, self.salt) == self

    def metadata(self, table: str, found: Garbage) -> dict[str, Any]:
        """What the commit of an erasure says of itself."""
        return {KIND: ERASURE, ERASED: {"table": table, "salt": self.salt, "hash": self.hash, "items": found.items,
                                        "bytes": found.bytes}}  # fmt: skip


def parts(key: Any) -> Sequence[Any]:
    """The parts of a key: one, unless it has several columns."""
    return key if isinstance(key, tuple | list) else (key,)


def check_reason(reason: Any, key: Any) -> str:
    """A reason that can stay for ever. Raises `Invalid` if there is none, or if it names the key."""
    if not isinstance(reason, str) or not reason.strip() or any("\ud800" <= char <= "\udfff" for char in reason):
        raise Invalid("an erasure needs a reason", hint="say why, without naming the row")
    if any(names(reason, part) for part in parts(key)):
        raise Invalid("the reason names the row, and stays for ever", hint="say why without the key")
    return reason


def names(text: str, part: Any) -> bool:
    """Whether a text has a part of a key in it, as a word of its own."""
    return pattern(part).search(text) is not None


def pattern(part: Any) -> re.Pattern[str]:
    """What finds a part of a key in texts. Text that is empty is found nowhere."""
    return re.compile(rf"(?<!\w){re.escape(str(part))}(?!\w)" if str(part) else r"(?!)")
