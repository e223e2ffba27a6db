"""Typed stores in SQLite, engines sqlite/v1 and sqlite/v2."""
