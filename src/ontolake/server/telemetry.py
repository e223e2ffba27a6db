"""What a server says of the requests that it answers: lines of JSON for logs, spans for OpenTelemetry.

Spans use the API package alone: without an exporter they cost nothing, and nothing is sent anywhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any

import msgspec
from opentelemetry import propagate, trace
from starlette.requests import HTTPConnection

from ontolake import __version__

requests = logging.getLogger("ontolake.server.requests")
"""One record a request, with its facts as `fields`."""
failures = logging.getLogger("ontolake.server")

_tracer = trace.get_tracer("ontolake.server", __version__)


class JsonLines(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        facts: dict[str, Any] = {"time": time, "level": record.levelname.lower(), "logger": record.name,
                                 "message": record.getMessage(), **getattr(record, "fields", {})}  # fmt: skip
        if record.exc_info:
            facts["traceback"] = self.formatException(record.exc_info)
        return _encoder.encode(facts).decode()


_encoder = msgspec.json.Encoder(enc_hook=str)


class LineHandler(logging.StreamHandler[Any]):
    """Writes to standard error. What requests of one turn of the event loop say is written at once when it ends;
    warnings, errors and what other threads say is written immediately."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._waiting.append(self.format(record))
            if len(self._waiting) == 1 and record.levelno < logging.WARNING:
                asyncio.get_running_loop().call_soon(self.flush)
            elif record.levelno >= logging.WARNING:
                self.flush()
        except RuntimeError:  # not on the event loop
            self.flush()
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        with self.lock or nullcontext():
            lines, self._waiting = self._waiting, []
            if lines:
                self.stream.write("\n".join(lines) + "\n")
                super().flush()


def log_to_stderr(level: str) -> None:
    """Write all that Ontolake and uvicorn log to standard error, as lines of JSON."""
    handler = LineHandler()
    handler.setFormatter(JsonLines())
    for name in ("ontolake", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level.upper())
    logging.getLogger("uvicorn").setLevel("WARNING")


def note_request(method: str, path: str, fields: dict[str, Any]) -> None:
    """Log that a request has ended."""
    if requests.isEnabledFor(logging.INFO):  # without looking for the line of code that says it
        requests.handle(requests.makeRecord(requests.name, logging.INFO, "", 0, "%s %s", (method, path), None,
                                            extra={"fields": fields}))  # fmt: skip


def spanned(operation: str, connection: HTTPConnection, store: str | None) -> AbstractContextManager[trace.Span]:
    """A span for one request, below the one that its headers name. `operation` is the name of its route.

    Without a provider of tracers nobody sees spans, so none is begun.
    """
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return _NO_SPAN
    return _span(operation, connection, store)


_NO_SPAN = nullcontext(trace.INVALID_SPAN)


@contextmanager
def _span(operation: str, connection: HTTPConnection, store: str | None) -> Iterator[trace.Span]:
    table = connection.query_params.get("table")
    attributes = {"db.system.name": "ontolake", "db.operation.name": operation}
    if store is not None:
        attributes["db.namespace"] = store
    if table is not None:
        attributes["db.collection.name"] = table
    attributes["db.query.summary"] = " ".join(filter(None, (operation, table or store)))
    with _tracer.start_as_current_span(attributes["db.query.summary"], context=propagate.extract(connection.headers),
                                       kind=trace.SpanKind.SERVER, attributes=attributes,
                                       record_exception=False, set_status_on_exception=False) as span:  # fmt: skip
        yield span


def note_result(span: trace.Span, status: int, problem: str | None) -> None:
    """Keep with a span how its request went."""
    span.set_attribute("db.response.status_code", str(status))
    if problem is not None:
        span.set_attribute("error.type", problem)
        if status >= 500:
            span.set_status(trace.StatusCode.ERROR)
