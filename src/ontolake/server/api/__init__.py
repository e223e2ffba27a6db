"""The routes of the HTTP API, one module a subject: `blobs`, `documents`, `health`."""

from ontolake.server.api import blobs, documents, health

__all__ = ["blobs", "documents", "health"]
