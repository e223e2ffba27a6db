"""Peers: somebody else who uses the same store, in a process of their own or in a thread.

A peer does one task, a function that can be imported, and talks to the test over a link. A backend whose
stores live in memory gets threads; there a crash is an exception after which the handle is left as it is.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from ontolake.suites.child import FORK, LOAD, WAIT

PATIENCE = 60.0
"""Seconds after which a silent peer is taken for stuck."""

Task = Callable[..., None]
"""Called with the link to the test, the suite's class, and what the test passes on."""


class Crash(BaseException):
    """Stands for the end of a process where there is no process to end."""


class PeerFailed(AssertionError):
    """A peer ended in an error that its task did not expect."""


def crash() -> None:
    """Stop here, in a peer that has no process of its own to kill."""
    raise Crash


class Peer(ABC):
    """The test's side of a peer."""

    def __init__(self, link: Connection) -> None:
        self.link = link

    def hear(self, timeout: float = PATIENCE) -> Any:
        """The next thing the peer says, None when it has ended. Raises `PeerFailed` if it says so or says nothing."""
        try:
            if not self.link.poll(timeout):
                raise PeerFailed(f"the peer has said nothing for {timeout:.0f} s")
            said = self.link.recv()
        except (EOFError, ConnectionError):
            return None
        if isinstance(said, tuple) and said[:1] == ("failed",):
            raise PeerFailed(said[1])
        return said

    def tell(self, message: object) -> None:
        """Say something to the peer."""
        self.link.send(message)

    def end(self) -> None:
        """Hear the peer out and wait until it is gone, with everything it held."""
        while self.hear() is not None:
            pass
        self.abandon()

    @abstractmethod
    def abandon(self) -> None:
        """Be done with the peer, whatever it is doing. Idempotent."""


class ProcessPeer(Peer):
    """A peer that is a process."""

    def __init__(self, link: Connection, forker: Forker, pid: int) -> None:
        super().__init__(link)
        self._forker = forker
        self._pid = pid

    def kill(self) -> None:
        """End it with SIGKILL at whatever it is doing."""
        os.kill(self._pid, signal.SIGKILL)

    def abandon(self) -> None:
        if not self.link.closed:
            self.kill()
            self._forker.wait(self._pid)
            self.link.close()


class ThreadPeer(Peer):
    """A peer that is a thread of this process."""

    def __init__(self, task: Task, suite: Any, arguments: tuple[Any, ...]) -> None:
        ours, theirs = Pipe()
        super().__init__(ours)
        self._thread = _PeerThread(task, theirs, suite, arguments)
        self._thread.start()

    def abandon(self) -> None:
        if not self.link.closed:
            self.link.close()
            self._thread.join(PATIENCE)


class _PeerThread(threading.Thread):
    def __init__(self, task: Task, link: Connection, suite: Any, arguments: tuple[Any, ...]) -> None:
        super().__init__(daemon=True)
        self._work = task, link, suite, arguments

    def run(self) -> None:
        task, link, suite, arguments = self._work
        try:
            task(link, suite, *arguments)
        except Crash:
            pass
        except BaseException as error:
            with suppress(OSError):
                link.send(("failed", f"{type(error).__name__}: {error}"))
        finally:
            link.close()


class Forker:
    """A helper process that has loaded the class of a suite, and forks a peer whenever asked to."""

    def __init__(self, suite: type) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair()
        described = {
            "path": sys.path,
            "module": suite.__module__,
            "file": inspect.getsourcefile(suite),
            "qualname": suite.__qualname__,
        }
        start = (
            "import json, sys; sys.path[:] = json.loads(sys.argv[2])['path'];"
            "from ontolake.suites.child import main; main()"
        )
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", start, str(theirs.fileno()), json.dumps(described)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def start(self, task: Task, arguments: tuple[Any, ...]) -> ProcessPeer:
        """A new process that does `task`."""
        ours, theirs = socket.socketpair()
        with self._lock, theirs:
            socket.send_fds(self._socket, [FORK], [theirs.fileno()])
            pid = int.from_bytes(self._answer(), "little")
        link = Connection(ours.detach())
        link.send((dict(os.environ), task.__module__, task.__qualname__, arguments))
        return ProcessPeer(link, self, pid)

    @contextmanager
    def starting(self) -> Iterator[Callable[..., ProcessPeer]]:
        """A function that starts a process, `start(task, …)`. Those left over when the block ends are killed."""
        peers: list[ProcessPeer] = []

        def start(task: Task, *arguments: Any) -> ProcessPeer:
            peers.append(self.start(task, arguments))
            return peers[-1]

        try:
            yield start
        finally:
            for peer in peers:
                peer.abandon()

    def load(self, modules: Iterable[str]) -> None:
        """Let the helper import modules that peers would otherwise load each for itself."""
        names = " ".join(modules).encode()
        with self._lock:
            self._socket.sendall(LOAD + len(names).to_bytes(8, "little"))
            self._socket.sendall(names)
            self._answer()

    def wait(self, pid: int) -> int:
        """Wait for the end of a peer; return its exit code, minus the signal that ended it."""
        with self._lock:
            self._socket.sendall(WAIT + pid.to_bytes(8, "little"))
            return int.from_bytes(self._answer(), "little", signed=True)

    def _answer(self) -> bytes:
        answer = self._socket.recv(8)
        if not answer:
            raise PeerFailed(f"the helper process has ended with code {self._process.wait()}")
        return answer

    def close(self) -> None:
        """End the helper."""
        self._socket.close()
        self._process.wait()
