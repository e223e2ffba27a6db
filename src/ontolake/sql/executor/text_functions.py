"""Functions of text and bytes that DuckDB does not have."""

from __future__ import annotations

import hashlib
import re

from ontolake.sql.errors import SqlError

_LAST_CHARACTER = 0x10FFFF


def split_text(text: str, mark: str, null: str) -> list[str | None]:
    """`string_to_array` with a text that stands for NULL. A mark of one character 0 stands for none."""
    parts = list(text) if mark == "\x00" else [] if not text else [text] if not mark else text.split(mark)
    return [None if part == null else part for part in parts]


def unicode_text(text: str) -> str:
    """`unistr`: a text with the characters that escapes name. Raises `SqlError` (42601)."""

    def one(found: re.Match[str]) -> str:
        digits = found[1] or found[2] or found[3] or found[4]
        if digits is None:
            if found[0] != "\\\\":
                raise SqlError("invalid Unicode escape", sqlstate="42601", hint=r"write \XXXX or \+XXXXXX")
            return "\\"
        if int(digits, 16) > _LAST_CHARACTER:
            raise SqlError("invalid Unicode escape value", sqlstate="42601")
        return chr(int(digits, 16))

    pattern = r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|\+([0-9a-fA-F]{6})|([0-9a-fA-F]{4})|\\|)"
    found = re.sub(pattern, one, text)
    try:
        return found.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise SqlError("invalid Unicode surrogate pair", sqlstate="42601") from None


def identifier_parts(text: str) -> list[str]:
    """`parse_ident`: the parts of a qualified name. Raises `SqlError` (22023)."""
    part = r'\s*(?:"((?:[^"]|"")+)"|([^\W\d][\w$]*))\s*'
    if re.fullmatch(rf"{part}(?:\.{part})*", text) is None:
        raise SqlError(f'string is not a valid identifier: "{text}"', sqlstate="22023")
    return [found[1].replace('""', '"') if found[1] else found[2].lower() for found in re.finditer(part, text)]


def digest(data: bytes, name: str) -> bytes:
    """The hash of bytes."""
    return hashlib.new(name, data).digest()


def _check(place: int, size: int) -> None:
    if not 0 <= place < size:
        raise SqlError(f"index {place} out of valid range, 0..{size - 1}", sqlstate="2202E")


def byte_number(data: bytes, what: str, place: int) -> int:
    """A byte or a bit of bytes, or how many bits are set."""
    if what == "count":
        return sum(each.bit_count() for each in data)
    if what == "byte":
        _check(place, len(data))
        return data[place]
    _check(place, len(data) * 8)
    return data[place // 8] >> (place % 8) & 1


def changed_bytes(data: bytes, what: str, place: int, new: int) -> bytes:
    """Bytes of which one byte or bit is another."""
    found = bytearray(data)
    if what == "byte":
        _check(place, len(data))
        found[place] = new & 255
        return bytes(found)
    _check(place, len(data) * 8)
    if new not in (0, 1):
        raise SqlError("new bit must be 0 or 1", sqlstate="22023")
    found[place // 8] = found[place // 8] & ~(1 << place % 8) | new << place % 8
    return bytes(found)


def trimmed_bytes(data: bytes, marks: bytes, side: str) -> bytes:
    """Bytes without those of a set at one end or both."""
    return {"btrim": data.strip, "ltrim": data.lstrip, "rtrim": data.rstrip}[side](marks)


def overlaid_bytes(data: bytes, new: bytes, start: int, length: int) -> bytes:
    """Bytes of which a part is replaced."""
    if start <= 0:
        raise SqlError("negative substring length not allowed", sqlstate="22011")
    return data[: start - 1] + new + data[max(start - 1 + length, 0) :]
