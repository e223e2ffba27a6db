"""SQLite connections: on a native file, or on our own pages, at any moment of the past and on any branch."""

from ontolake.engine.connection import connect

__all__ = ["connect"]
