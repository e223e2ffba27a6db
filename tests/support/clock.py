"""A clock for tests that can be turned forward, so that nothing depends on how long they take themselves."""

from __future__ import annotations

import time

import pytest


class Clock:
    """What `time.time` tells in this process, from now on until the test ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ahead = 0.0
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + self._ahead)

    def turn_forward(self, seconds: float) -> None:
        self._ahead += seconds
