"""The digits of numeric: to the base 10,000 in the binary format, and as text."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.sql.errors import DataError

_SIGNS = {0x0000: "", 0x4000: "-"}
_SPECIAL = {0xC000: "NaN", 0xD000: "Infinity", 0xF000: "-Infinity"}
_BY_NAME = {name: sign for sign, name in _SPECIAL.items()}
_GROUPS = 6
"""Digits to the base 10,000 that a number of 18 decimal ones has at most, wherever its point stands."""


def digits_of(text: str) -> bytes:
    """The binary form of a number from its text, as PostgreSQL writes it."""
    if text in _BY_NAME:
        return struct.pack(">hhHh", 0, 0, _BY_NAME[text], 0 if text == "NaN" else 32)
    whole, _, part = text.lstrip("-").partition(".")
    scale, sign = len(part), 0x4000 if text.startswith("-") else 0
    whole = whole.lstrip("0")
    whole = "0" * (-len(whole) % 4) + whole
    digits = whole + part + "0" * (-scale % 4)
    groups = [int(digits[n : n + 4]) for n in range(0, len(digits), 4)]
    weight = len(whole) // 4 - 1
    first = next((n for n, each in enumerate(groups) if each), len(groups))
    groups, weight = groups[first:], weight - first
    while groups and not groups[-1]:
        groups.pop()
    if not groups:
        return struct.pack(">hhHh", 0, 0, 0, scale)
    return struct.pack(f">hhHh{len(groups)}h", len(groups), weight, sign, scale, *groups)


def text_of_digits(data: bytes) -> str:
    """The text of a number from its binary form. Raises `DataError` (22P03)."""
    if len(data) < 8:
        raise wrong_bytes("numeric")
    count, weight, sign, scale = struct.unpack(">HhHH", data[:8])
    if len(data) != 8 + 2 * count or scale > 0x3FFF or (sign not in _SIGNS and sign not in _SPECIAL):
        raise wrong_bytes("numeric")
    if sign in _SPECIAL:
        return _SPECIAL[sign]
    groups = struct.unpack(f">{count}H", data[8:])
    if any(each > 9999 for each in groups):
        raise wrong_bytes("numeric")
    digits = "".join(f"{each:04}" for each in groups)
    point = (weight + 1) * 4
    if point > len(digits):
        digits += "0" * (point - len(digits))
    if point < 0:
        digits, point = "0" * -point + digits, 0
    whole, part = digits[:point].lstrip("0") or "0", digits[point:][:scale].ljust(scale, "0")
    found = f"{whole}.{part}" if scale else whole
    return _SIGNS[sign] + found if found.strip("0.") else found


def wrong_bytes(type: str) -> DataError:
    return DataError(f"incorrect binary data format for the type {type}", sqlstate="22P03")


def mantissas(column: pa.Array) -> npt.NDArray[np.int64] | None:
    """The digits of decimals as integers; None if one has more than 18. What is NULL has 0."""
    whole = pa.Array.from_buffers(pa.decimal128(38, 0), len(column), column.buffers(), column.null_count, column.offset)
    try:
        found = whole.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    numbers: npt.NDArray[np.int64] = np.asarray(pc.fill_null(found, 0))
    return numbers if not len(numbers) or max(int(numbers.max()), -int(numbers.min())) < 10**18 else None


def decimal_texts(column: pa.Array) -> pa.Array:
    """Decimals as text with all digits of their scale."""
    scale = column.type.scale
    texts = pa.Array.from_buffers(pa.decimal128(38, 0), len(column), column.buffers(), column.null_count,
                                  column.offset).cast(pa.string())  # fmt: skip
    if not scale:
        return texts
    negative = pc.starts_with(texts, "-")
    digits = pc.ascii_lpad(pc.ascii_ltrim(texts, "-"), scale + 1, "0")
    whole, part = pc.binary_slice(digits.cast(pa.binary()), 0, -scale), pc.binary_slice(digits.cast(pa.binary()),
                                                                                        -scale)  # fmt: skip
    sign = pc.if_else(negative, pa.scalar(b"-"), pa.scalar(b""))
    return pc.binary_join_element_wise(sign, whole, b".", part, b"")


def decimal_digits(column: pa.Array) -> pa.Array:
    """The binary forms of decimals."""
    scale = column.type.scale
    numbers = mantissas(column)
    if numbers is None:
        return pa.array([None if each is None else digits_of(each.decode()) for each in
                         decimal_texts(column).cast(pa.binary()).to_pylist()], pa.binary())  # fmt: skip
    data, lengths = _packed(numbers, scale)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    found = pa.Array.from_buffers(pa.binary(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pc.if_else(column.is_valid(), found, pa.scalar(None, pa.binary())) if column.null_count else found


def _packed(numbers: npt.NDArray[np.int64], scale: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The bytes of numbers with so many digits behind the point, one behind the other, and how many each has."""
    behind = -(-scale // 4)
    """Groups behind the point."""
    rest = np.abs(numbers)
    groups = np.zeros((len(numbers), _GROUPS), np.int64)
    fill = behind * 4 - scale
    last = 10 ** (4 - fill)  # the last group has fewer digits: zeros fill it up
    rest, least = np.divmod(rest, last)
    groups[:, -1] = least * 10**fill
    for place in range(_GROUPS - 2, -1, -1):
        rest, groups[:, place] = np.divmod(rest, 10_000)
    used = groups != 0
    any_used = used.any(axis=1)
    first = np.where(any_used, used.argmax(axis=1), 0)
    end = np.where(any_used, _GROUPS - used[:, ::-1].argmax(axis=1), 0)
    count = end - first
    weight = np.where(any_used, _GROUPS - behind - 1 - first, 0)
    block = np.empty((len(numbers), 4 + _GROUPS), ">i2")
    block[:, 0], block[:, 1], block[:, 2], block[:, 3] = count, weight, np.where(numbers < 0, 0x4000, 0), scale
    block[:, 4:] = groups
    places = np.arange(_GROUPS)
    kept = np.ones(block.shape, np.bool_)
    kept[:, 4:] = (places >= first[:, None]) & (places < end[:, None])
    return block[kept].view(np.uint8), 8 + 2 * count


def numeric_digits(texts: pa.Array) -> pa.Array:
    """The binary forms of numbers from their texts, each with a scale of its own."""
    point = pc.find_substring(texts, ".")
    scales = pc.if_else(pc.less(point, 0), 0, pc.subtract(pc.subtract(pc.binary_length(texts), point), 1))
    known = pc.unique(pc.drop_null(scales)).to_pylist()
    if len(known) <= 8 and all(scale <= 38 for scale in known):
        try:
            return _by_scale(texts, scales, known)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass  # one is not finite, or has many digits
    return pa.array([None if each is None else digits_of(each) for each in texts.to_pylist()], pa.binary())


def _by_scale(texts: pa.Array, scales: pa.Array, known: list[int]) -> pa.Array:
    found: Any = pa.nulls(len(texts), pa.binary())
    for scale in known:
        mask = pc.fill_null(pc.equal(scales, scale), False)
        found = pc.replace_with_mask(found, mask, decimal_digits(texts.filter(mask).cast(pa.decimal128(38, scale))))
    return found


def read_mantissas(
    buffer: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], scale: int
) -> npt.NDArray[np.int64] | None:
    """The digits of numbers in binary as integers of a scale. None if one has to be read by itself: it has many digits,
    has to be rounded, is not finite, or is not a number at all. The bytes of each are there, eight or more."""
    heads = np.ascontiguousarray(buffer[starts[:, None] + np.arange(8)]).view(">i2").astype(np.int64)
    counts, weights, signs = heads[:, 0], heads[:, 1], heads[:, 2]
    most = int(counts.max(initial=0))
    if ((counts < 0) | (8 + 2 * counts != ends - starts) | ((signs != 0) & (signs != 0x4000))).any() or most > 5 \
            or int(weights.max(initial=0)) * 4 + 4 + scale > 18 or int(weights.min(initial=0)) < -5:  # fmt: skip
        return None
    found = np.zeros(len(starts), np.int64)
    for place in range(most):
        there = counts > place
        at = np.where(there, starts + 8 + 2 * place, starts)
        digits = np.where(there, buffer[at].astype(np.int64) * 256 + buffer[at + 1], 0)
        powers = (weights - place) * 4 + scale
        shares = 10 ** np.clip(-powers, 0, 18)
        if (digits > 9999).any() or (digits % shares).any():
            return None
        found += digits // shares * 10 ** np.clip(powers, 0, 18)
    return np.where(signs != 0, -found, found)
