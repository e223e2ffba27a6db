"""Long answers: a thread of their own reads and encodes, the event loop only sends. Between the two are a few chunks at
most, so that a slow reader holds the thread up and not the memory."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any

from starlette.responses import StreamingResponse

AHEAD = 2
"""How many chunks wait to be sent."""


class ChunkSource:
    """Chunks that a thread produces. Close it, whether or not all were taken."""

    def __init__(self, produce: Callable[[], Iterable[bytes | memoryview]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Queue[bytes | memoryview | BaseException | None] = asyncio.Queue()
        self._room = threading.Semaphore(AHEAD)
        self._closed = threading.Event()
        self._produce = produce
        threading.Thread(target=self._run, name="ontolake-stream", daemon=True).start()

    def _run(self) -> None:
        end: BaseException | None = None
        try:
            chunks: Iterator[bytes | memoryview] = iter(self._produce())
            try:
                for chunk in chunks:
                    self._room.acquire()
                    if self._closed.is_set():
                        return
                    self._put(chunk)
            finally:
                close = getattr(chunks, "close", None)
                if close is not None:
                    close()
        except BaseException as error:
            end = error
        finally:
            self._put(end)

    def _put(self, item: bytes | memoryview | BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone, and with it whoever waited
            self._loop.call_soon_threadsafe(self._ready.put_nowait, item)

    async def next(self) -> bytes | memoryview | None:
        """The next chunk; None behind the last one. Raises what the thread has raised."""
        item = await self._ready.get()
        self._room.release()
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        self._closed.set()
        self._room.release()


async def streamed(
    produce: Callable[[], Iterable[bytes | memoryview]], media_type: str, headers: Mapping[str, str]
) -> StreamingResponse:  # fmt: skip
    """An answer of chunks. What goes wrong before the first one is raised here; later it ends the connection."""
    source = ChunkSource(produce)
    try:
        first = await source.next()
    except BaseException:
        source.close()
        raise

    async def body() -> AsyncIterator[Any]:
        try:
            chunk = first
            while chunk is not None:
                if chunk:
                    yield chunk
                chunk = await source.next()
        finally:
            source.close()

    return StreamingResponse(body(), 200, dict(headers), media_type)
