"""What can name an entity, a session, a branch or a moment; everything else is refused before it gets anywhere."""

from __future__ import annotations

from ontolake.documents.errors import InvalidOperationError, ProtocolError
from ontolake.documents.values import codec

MAX_SEQ = 2**63 - 1
MAX_ID_LENGTH = 4096

_AGAIN = "\x1f"
"""Stands between a branch's name and a number in the line of a name that was used before; no name has it."""


def line_again(name: str, seq: int) -> str:
    """What a line of history is called whose branch has a name that an earlier branch had."""
    return f"{name}{_AGAIN}{seq}"


def name_of(line: str) -> str:
    """The name of the branch that a line of history is, or was."""
    return line.partition(_AGAIN)[0]


def check_session(session_id: str, local_seq: int) -> None:
    """Raise `ProtocolError` unless these can name a commit of a session."""
    if not isinstance(session_id, str) or not session_id or "\0" in session_id or not codec.is_unicode(session_id):
        raise ProtocolError(f"a session_id is text that is not empty, not {session_id!r}")
    if not is_seq(local_seq):
        raise ProtocolError(f"local_seq must be an integer, 0 or more, not {local_seq!r}")


def check_branch_text(branch: str) -> None:
    """Raise `ProtocolError` unless this is text; whether there is such a branch is for the database to say."""
    if not isinstance(branch, str) or "\0" in branch or not codec.is_unicode(branch):
        raise ProtocolError(f"a branch is named by text, not {branch!r}")


def check_id(id: str, operation: int | None = None) -> str:
    """`id` itself; raises `InvalidOperationError` unless it can name an entity."""
    if type(id) is str and 0 < len(id) <= MAX_ID_LENGTH and id.isascii() and "\0" not in id:
        return id
    if not isinstance(id, str):
        raise InvalidOperationError(f"an id is text, not {type(id).__name__}", operation=operation)
    if not id or len(id) > MAX_ID_LENGTH:
        raise InvalidOperationError(f"an id has 1 to {MAX_ID_LENGTH} characters, this one {len(id)}",
                                    operation=operation)
    if "\0" in id or not codec.is_unicode(id):
        raise InvalidOperationError(f"the id {id!r} has a NUL character or half a surrogate pair in it",
                                    operation=operation)
    return id


def is_seq(value: object) -> bool:
    """Whether a value can be a seq: booleans, which Python takes for integers, cannot."""
    return type(value) is int and 0 <= value <= MAX_SEQ
