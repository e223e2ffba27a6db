"""Which node a span of versions stands under, and under which nodes what lived at a moment can stand.

The numbers from 1 up form a binary tree in which rounder numbers are higher. A span belongs to the roundest number
in it; a moment lies in spans of its ancestors only, and no key has two spans under one node.
"""

from __future__ import annotations

from ontolake.sql.keyspace.keys import ROW

_PART = 9


def node(version: int, until: int) -> int:
    """The node of the span from `version` up to, not including, `until`."""
    last = until - 1
    bit = ((version - 1) ^ last).bit_length() - 1
    return last >> bit << bit


def expression(version: str, until: int) -> str:
    """`node` as SQL, for any version before `until`, which is an expression."""
    last = until - 1
    bits = [bit for bit in range(last.bit_length()) if last >> bit & 1]
    arms = [f"WHEN {version} > {last >> bit + 1 << bit + 1} THEN {last >> bit << bit}" for bit in bits]
    return f"CASE {' '.join(arms)} END" if arms else "NULL"


def ancestors(moment: int, newest: int) -> list[int]:
    """The nodes of all spans that `moment` can lie in, among versions up to `newest`."""
    levels = range((moment & -moment).bit_length(), max(newest, 1).bit_length())
    above = [moment >> level + 1 << level + 1 | 1 << level for level in levels]
    return [moment, *above] if moment else above


def part(key: bytes) -> bytes:
    """The part of the keyspace that a key belongs to: the rows or the index entries of a table, or the catalog."""
    return key[:_PART] if key[0] >= ROW else b""
