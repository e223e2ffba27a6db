"""Giving space inside a file back to the file system. Where that is not possible the space stays in use."""

from __future__ import annotations

import ctypes
import ctypes.util
import sys

_KEEP_SIZE, _PUNCH_HOLE = 0x01, 0x02
_BLOCK = 4096

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
