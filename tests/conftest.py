"""Shared by all tests: the servers as fixtures, and no deadline for property tests on busy machines."""

from __future__ import annotations

from hypothesis import settings

pytest_plugins = ["ontolake.objects.testing.fixtures"]

settings.register_profile("ontolake", deadline=None)
settings.load_profile("ontolake")
