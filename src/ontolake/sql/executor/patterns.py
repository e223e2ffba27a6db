"""Regular expressions of PostgreSQL, on top of Python's."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from ontolake.sql.errors import SqlError


def similar_pattern(pattern: str, escape: str = "\\") -> str:
    """A pattern of SIMILAR TO as a regular expression."""
    parts, place, inside = [], 0, False
    while place < len(pattern):
        mark = pattern[place]
        if mark == escape:
            parts.append(re.escape(pattern[place + 1 : place + 2]))
            place += 1
        elif inside:
            inside = mark != "]"
            parts.append(mark)
        elif mark == "[":
            inside = True
            parts.append(mark)
        elif mark in "%_":
            parts.append(".*" if mark == "%" else ".")
        elif mark in ".^$\\":
            parts.append("\\" + mark)
        else:
            parts.append("(?:" if mark == "(" else mark)
        place += 1
    return "".join(parts)


_CLASSES = {"alpha": r"^\W\d_", "digit": r"\d", "alnum": r"^\W_", "space": r"\s", "upper": "A-Z", "lower": "a-z",
            "punct": r"!-/:-@\[-`{-~", "xdigit": "0-9A-Fa-f"}  # fmt: skip


_ESCAPES = {"m": r"\b(?=\w)", "M": r"\b(?<=\w)", "y": r"\b", "Y": r"\B", "b": r"\x08", "B": r"\\", "e": r"\x1b"}
"""Escapes that mean something else to Python."""


@lru_cache(maxsize=512)
def compiled(pattern: str, flags: str) -> re.Pattern[str]:
    """A regular expression of PostgreSQL. Raises `SqlError` (2201B)."""
    options = re.NOFLAG if set(flags) & set("nmp") else re.DOTALL
    if set(flags) & set("nmw"):
        options |= re.MULTILINE
    for flag in flags:
        if flag not in "gicnmsqxpwt":
            raise SqlError(f'invalid regular expression option: "{flag}"', sqlstate="22023")
    if "i" in flags:
        options |= re.IGNORECASE
    if "x" in flags:
        options |= re.VERBOSE
    if "q" in flags:
        pattern = re.escape(pattern)
    else:
        pattern = re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), pattern, flags=re.DOTALL)
    pattern = re.sub(r"\[\[:(\w+):\]\]", lambda found: f"[{_CLASSES.get(found[1], found[0])}]", pattern)
    try:
        return re.compile(pattern, options)
    except re.error as error:
        raise SqlError(f"invalid regular expression: {error}", sqlstate="2201B") from None


def split_pattern(text: str, pattern: str, flags: str) -> list[str]:
    """A text, split where a pattern matches; an empty match at an end or behind another match splits nothing."""
    found, last, parts = compiled(pattern, flags), 0, []
    for each in found.finditer(text):
        if each.end() == each.start() and each.start() in (last, len(text)):
            continue
        parts.append(text[last : each.start()])
        last = each.end()
    return [*parts, text[last:]]


def match_pattern(text: str, pattern: str, flags: str) -> list[list[str | None]]:
    """The groups of each match of a pattern, or the whole match; one match unless there is the flag g."""
    found = compiled(pattern, flags)
    matches = found.finditer(text)
    rows: list[list[str | None]] = [list(each.groups()) if found.groups else [each[0]] for each in matches]
    return rows if "g" in flags else rows[:1]


def replace_pattern(text: str, pattern: str, new: str, flags: str) -> str:
    """A text in which matches of a pattern are replaced."""
    return compiled(pattern, flags).sub(_replacement(new), text, count=0 if "g" in flags else 1)


def _replacement(new: str) -> Callable[[re.Match[str]], str]:
    def given(found: re.Match[str]) -> str:
        def part(mark: re.Match[str]) -> str:
            if mark[1] == "&":
                return found[0]
            if mark[1].isdigit():
                return (found[int(mark[1])] or "") if int(mark[1]) <= len(found.groups()) else ""
            return mark[1]

        return re.sub(r"\\([&\d\\])", part, new)

    return given


def replace_nth(text: str, pattern: str, new: str, start: int, number: int, flags: str) -> str:
    """A text in which one match, or all where the number is 0, from a place on is replaced."""
    _check(start, number, 0)
    give, parts, last = _replacement(new), [], 0
    for count, each in enumerate(compiled(pattern, flags).finditer(text, start - 1), 1):
        if number in (0, count):
            parts += [text[last : each.start()], give(each)]
            last = each.end()
    return "".join([*parts, text[last:]])


def count_matches(text: str, pattern: str, start: int, flags: str) -> int:
    """How often a pattern matches from a place on."""
    _check(start, 1, 0)
    return sum(1 for _ in _compiled_alone(pattern, flags, "regexp_count").finditer(text, start - 1))


def matches_pattern(text: str, pattern: str, flags: str) -> bool:
    """Whether a pattern matches."""
    return _compiled_alone(pattern, flags, "regexp_like").search(text) is not None


def find_match(text: str, pattern: str, start: int, number: int, flags: str, group: int) -> list[str | None] | None:
    """One match from a place on: its text, or that of a group, and where it begins and ends, counted from 1."""
    _check(start, number, group)
    for count, each in enumerate(_compiled_alone(pattern, flags, "regexp_substr").finditer(text, start - 1), 1):
        if count == number:
            if group > each.re.groups or each.start(group) < 0:
                return None
            return [each[group], str(each.start(group) + 1), str(each.end(group) + 1)]
    return None


def _compiled_alone(pattern: str, flags: str, function: str) -> re.Pattern[str]:
    if "g" in flags:
        raise SqlError(f'{function}() does not support the "global" option', sqlstate="22023")
    return compiled(pattern, flags)


def _check(start: int, number: int, group: int) -> None:
    for name, value, least in (("start", start, 1), ("n", number, 0), ("subexpr", group, 0)):
        if value < least:
            raise SqlError(f'invalid value for parameter "{name}": {value}', sqlstate="22023")


def similar(text: str, pattern: str, escape: str) -> bool:
    """Whether a text matches a pattern of SIMILAR TO."""
    return re.fullmatch(similar_pattern(pattern, escape), text, re.DOTALL) is not None


def similar_part(text: str, pattern: str, escape: str) -> str | None:
    """The part of a text between two marks of a pattern: `substring(text SIMILAR pattern ESCAPE mark)`."""
    parts = pattern.split(f'{escape}"')
    if len(parts) not in (1, 3):
        raise SqlError("SQL regular expression may not contain more than two escape-double-quote separators",
                       sqlstate="2200C")  # fmt: skip
    groups = [similar_pattern(part, escape) for part in parts]
    whole = f"({groups[0]})" if len(groups) == 1 else f"(?:{groups[0]})({groups[1]})(?:{groups[2]})"
    found = re.fullmatch(whole, text, re.DOTALL)
    return None if found is None else found[1]
