"""Giving space inside a file back to the file system. Where that is not possible the space stays in use."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import sys

_KEEP_SIZE, _PUNCH_HOLE = 0x01, 0x02
_BLOCK = 4096
_ZEROS = bytes(1 << 20)

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
if _libc is not None:
    _libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def punch_hole(fd: int, offset: int, length: int) -> bool:
    """Free the whole blocks within a range, which then reads as zeros. False if nothing could be freed."""
    start = offset + -offset % _BLOCK
    size = (offset + length) // _BLOCK * _BLOCK - start
    if size <= 0 or _libc is None:
        return False
    done: int = _libc.fallocate(fd, _KEEP_SIZE | _PUNCH_HOLE, start, size)
    return done == 0


def wipe(fd: int, offset: int, length: int) -> None:
    """Have a range read as zeros: its whole blocks are freed if that is possible, the rest is overwritten."""
    start, end = offset + -offset % _BLOCK, (offset + length) // _BLOCK * _BLOCK
    if end > start and punch_hole(fd, offset, length):
        _overwrite(fd, offset, start)
        _overwrite(fd, end, offset + length)
    else:
        _overwrite(fd, offset, offset + length)


def _overwrite(fd: int, start: int, end: int) -> None:
    while start < end:
        start += os.pwrite(fd, _ZEROS[: end - start], start)
