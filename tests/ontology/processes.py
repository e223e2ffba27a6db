"""Other processes for tests: started, killed, paused and continued."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

_TESTS = Path(__file__).parents[1]
PRELUDE = f"import sys; sys.path[:0] = {[str(_TESTS), str(_TESTS / 'support')]!r}\n"


class Process:
    """A Python program that talks in lines."""

    def __init__(self, program: str, *arguments: str) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(program), *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._popen.pid

    def line(self) -> str:
        """What it says next."""
        assert self._popen.stdout is not None
        found = self._popen.stdout.readline()
        if not found:
            assert self._popen.stderr is not None
            error = self._popen.stderr.read()
            raise AssertionError(f"it ended with {self._popen.wait()}: {error}")
        return found.strip()

    def tell(self, text: str) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(text + "\n")
        self._popen.stdin.flush()

    def ask(self, text: str) -> str:
        self.tell(text)
        return self.line()

    def signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def wait(self, seconds: float = 200) -> int:
        """How it ended. Fails with its error output if it did so by itself, and badly."""
        _, error = self._popen.communicate(timeout=seconds)
        assert self._popen.returncode in (0, -signal.SIGKILL), error
        return self._popen.returncode

    def kill(self) -> None:
        """End it, with all that it has forked: they would keep its pipes open."""
        if self._popen.returncode is None:
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.communicate()


@contextlib.contextmanager
def process(program: str, *arguments: str) -> Iterator[Process]:
    started = Process(program, *arguments)
    try:
        yield started
    finally:
        started.kill()


FORKS = """
    import os, sys, traceback

    def each(work):
        '''For every line, call `work` in a forked process and say how that ended: the signal or exit code.'''
        for line in sys.stdin:
            child = os.fork()
            if child == 0:
                try:
                    code = work(*line.rstrip("\\n").split("\\t"))
                except BaseException:
                    traceback.print_exc()
                    code = 1
                os._exit(code or 0)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Starting an interpreter takes long. A process that forks does it once for many that are to be killed."""
