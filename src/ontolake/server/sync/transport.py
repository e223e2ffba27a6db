"""WebSocket connections of which the server can get rid although their client reads nothing."""

from __future__ import annotations

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

EXTENSION = "ontolake.drop"
GRACE = 5.0
"""Seconds that a client has to read why it was dropped."""


class DroppableWebSocket(WebSocketsSansIOProtocol):
    """Tells the application, as an extension of ASGI, how to drop the connection."""

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if not self.handshake_complete:
            self.scope["extensions"][EXTENSION] = {"drop": self.drop}

    def shutdown(self) -> None:
        """End with the server, which waits for no client that does not read."""
        was_closing = self.close_sent
        super().shutdown()
        if was_closing:
            self.transport.abort()
        else:
            self.loop.call_later(GRACE, self.transport.abort)

    def drop(self, code: int, reason: str) -> None:
        """Close without waiting for what the client has not read; after a moment, nothing of it stays."""
        if not self.close_sent and not self.transport.is_closing():
            self.close_sent = True
            self.conn.send_close(code, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.writable.set()
        self.close_timer = self.loop.call_later(GRACE, self.transport.abort)
