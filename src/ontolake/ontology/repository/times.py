"""Times as typed stores keep them: text in UTC, with microseconds."""

from __future__ import annotations

from datetime import UTC, datetime

from ontolake.model.codecs import encode_datetime


def now_text() -> str:
    """The time as it is stored: UTC, with microseconds."""
    return encode_datetime(datetime.now(UTC))


def parse_time(text: str) -> datetime:
    """A stored time. One without a zone is UTC."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
