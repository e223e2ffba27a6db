"""Values of stores as JSON has them, and keys as they stand in addresses."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from ontolake.history import MergeResult

_INT64 = 1 << 63


def plain(value: Any) -> Any:
    """A value as JSON has it: bytes as base64, times as ISO 8601, exact numbers as text, NaN and infinities as text.

    Words of history are objects of their fields.
    """
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return value if -_INT64 <= value < _INT64 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID | timedelta):
        return str(value)
    if isinstance(value, MergeResult):
        return {name: plain(one) for name, one in vars(value).items()}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    return str(value)
