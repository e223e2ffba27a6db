"""What branches and tags may be called: the same on every model."""

from __future__ import annotations

import re
from typing import Any

from ontolake.history.errors import BranchError, TagError

MAIN = "main"
"""The first branch, where a model does not call it otherwise."""

MAX_LENGTH = 128

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
_HINT = (f"use at most {MAX_LENGTH} letters, digits, '.', '_' and '-', beginning with a letter or digit; '/' may stand "
         "between such parts")  # fmt: skip


def is_name(name: Any) -> bool:
    """Whether a text can name a branch or a tag: it then needs no quoting in references and URLs.

    Names such as `try/prices` have parts. `try` may be a branch beside it.
    """
    return (isinstance(name, str) and len(name) <= MAX_LENGTH and _NAME.fullmatch(name) is not None
            and ".." not in name and not any(part.endswith((".lock", ".")) for part in name.split("/")))  # fmt: skip


def check_branch_name(name: Any) -> str:
    """The name of a new branch. Raises `BranchError`."""
    if not is_name(name):
        raise BranchError(name, "cannot be called that", hint=_HINT)
    return str(name)


def check_tag_name(name: Any) -> str:
    """The name of a new tag. Raises `TagError`."""
    if not is_name(name):
        raise TagError(name, "cannot be called that", hint=_HINT)
    return str(name)
