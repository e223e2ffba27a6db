"""The optimistic loop: read the head, work out the difference, commit, and do it again if somebody else was quicker.

Nobody waits for a lock. So an attempt must read everything anew, and leave nothing visible behind where it loses.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Beaten(Exception):
    """Raised by an attempt that somebody else beat, where no error of the storage below says so."""


class Pace(NamedTuple):
    """How often, and for how long, a contended commit is tried."""

    attempts: float = 5
    """Attempts at most, the first one included; `math.inf` if only time limits them."""
    first: float = 0.005
    """Seconds before the second attempt, at most: waits are random, so that those who met once do not meet again."""
    longest: float = 0.25
    """Waits double up to this."""
    seconds: float = math.inf
    """No attempt begins later than so long after the first one."""

    def wait(self, attempt: int) -> float:
        """Seconds between an attempt, counted from 1, and the next one, at most."""
        return min(self.first * 2.0 ** min(attempt - 1, 60), self.longest)


DEFAULT_PACE = Pace()
ONCE = Pace(attempts=1)
"""For a commit on a head that the caller has named: if another one came, the caller must look at it."""


def commit_optimistically(
    attempt: Callable[[], T], contention: type[Exception] | tuple[type[Exception], ...], pace: Pace = DEFAULT_PACE, *,
    is_contention: Callable[[Exception], bool] = lambda error: True,
    exhausted: Callable[[Exception], Exception] = lambda error: error,
) -> T:  # fmt: skip
    """Call `attempt` until it is not beaten by somebody else, and return what it returns.

    It was beaten if it raises `contention` and `is_contention` agrees; any other error ends the loop. After the last
    attempt the error that `exhausted` makes of the last contention is raised, with that as its cause.
    """
    begun = time.monotonic()
    for number in itertools.count(1):
        try:
            return attempt()
        except contention as error:
            if not is_contention(error):
                raise
            if number >= pace.attempts or time.monotonic() - begun >= pace.seconds:
                final = exhausted(error)
                if final is error:
                    raise
                raise final from error
        time.sleep(random.uniform(0, pace.wait(number)))
    raise AssertionError("unreachable")
