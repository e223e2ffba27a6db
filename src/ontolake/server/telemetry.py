"""What a server says of the requests that it answers: lines of JSON for logs, spans for OpenTelemetry.

Spans use the API package alone: without an exporter they cost nothing, and nothing is sent anywhere.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from opentelemetry import propagate, trace

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
        return json.dumps(facts, ensure_ascii=False, default=str)


def log_to_stderr(level: str) -> None:
    """Write all that Ontolake and uvicorn log to standard error, as lines of JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    for name in ("ontolake", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level.upper())
    logging.getLogger("uvicorn").setLevel("WARNING")


@contextmanager
def spanned(operation: str, headers: Mapping[str, str], store: str | None, table: str | None) -> Iterator[trace.Span]:
    """A span for one request, below the one that its headers name. `operation` is the name of its route."""
    attributes = {"db.system.name": "ontolake", "db.operation.name": operation}
    if store is not None:
        attributes["db.namespace"] = store
    if table is not None:
        attributes["db.collection.name"] = table
    attributes["db.query.summary"] = " ".join(filter(None, (operation, table or store)))
    with _tracer.start_as_current_span(attributes["db.query.summary"], context=propagate.extract(headers),
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
