"""The routes of the HTTP API, one module a subject: `health`."""

from ontolake.server.api import health

__all__ = ["health"]
