"""Shared by all tests: the servers as fixtures, no deadline for property tests on busy machines, and interrupts that
reach the processes that tests start."""

from __future__ import annotations

import signal

from hypothesis import settings

pytest_plugins = ["ontolake.objects.testing.fixtures"]

settings.register_profile("ontolake", deadline=None)
settings.load_profile("ontolake")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in a job that runs in the background; processes started from here would never notice an interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
