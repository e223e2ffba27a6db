"""What can go wrong with streams."""

from __future__ import annotations

from ontolake.errors import ConflictFailure


class StreamError(ConflictFailure):
    """A stream cannot go on without publishing twice or leaving something out. `stream` is its name."""

    def __init__(self, stream: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"stream {stream!r}: {message}", hint=hint)
        self.stream = stream
