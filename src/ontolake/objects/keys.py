"""Which keys every store accepts: those that mean the same on a disk and in a bucket."""

from __future__ import annotations

import re

from ontolake.errors import Invalid

RESERVED = ".ontolake"
"""The directory a local store keeps its temporary files in; no part of a key may be called so."""

_MAX_KEY_BYTES = 1000  # S3 takes 1024 with the prefix, file systems 255 a part
_MAX_PART_BYTES = 255
# SeaweedFS takes a backslash for a slash, and control characters do not survive XML listings.
_UNFIT = re.compile(r"[\x00-\x1f\\\x7f\ud800-\udfff]")


def problem(key: str) -> str | None:
    """What is wrong with `key`, as the end of a sentence that starts with it, or None."""
    if not isinstance(key, str):
        return f"is not text but {type(key).__name__}"
    if not key:
        return "is empty"
    if key.startswith("/"):
        return "starts with /"
    if key.endswith("/"):
        return "ends in /"
    if _UNFIT.search(key):
        return "has a backslash, a control character or half a surrogate pair in it"
    size = len(key.encode())
    if size > _MAX_KEY_BYTES:
        return f"is longer than {_MAX_KEY_BYTES} bytes"
    parts = key.split("/")
    if "" in parts:
        return "has an empty part"
    if "." in parts or ".." in parts:
        return "has a '.' or '..' part"
    if RESERVED in parts:
        return f"has the part {RESERVED}, which is reserved"
    if size > _MAX_PART_BYTES and any(len(part.encode()) > _MAX_PART_BYTES for part in parts):
        return f"has a part longer than {_MAX_PART_BYTES} bytes"
    return None


def check(key: str) -> str:
    """`key` itself; raises `Invalid` if no store could take it."""
    if what := problem(key):
        raise Invalid(f"the key {key!r} {what}", hint="keys are relative, with single slashes between parts")
    return key


def check_prefix(prefix: str) -> str:
    """`prefix` itself, which may be empty or end in a slash; raises `Invalid` if no key could start with it."""
    # With something behind it, the unfinished last part is judged like a whole one.
    if what := problem(f"{prefix}x" if isinstance(prefix, str) else prefix):
        raise Invalid(f"the prefix {prefix!r} {what}", hint="keys are relative, with single slashes between parts")
    return prefix


def check_range(start: int, length: int) -> None:
    """Raises `Invalid` unless `start` and `length` are both 0 or more."""
    if start < 0 or length < 0:
        raise Invalid(f"a range cannot start at {start} and have {length} bytes", hint="both must be 0 or more")
