"""The helper process that forks the suite's children, and what happens inside such a child.

The helper loads the backend once and never opens it: it starts no thread and no network client, so
forking it is cheap and safe. Each child opens the store for itself.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import signal
import socket
import sys
import traceback
import warnings
from contextlib import suppress
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any, NoReturn

FORK, LOAD, WAIT = b"F", b"L", b"W"


def load(module: str, file: str | None, qualname: str) -> Any:
    """The class or function of this name. A module that cannot be imported by name is loaded from its file."""
    found: Any = _by_name(module)
    if file is not None and getattr(found, "__file__", None) != file:
        found = _by_file(module, file)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def _by_name(module: str) -> ModuleType | None:
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def _by_file(module: str, file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(module, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{module} cannot be loaded from {file}")
    sys.modules[module] = found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def serve(server: socket.socket, suite: Any) -> None:
    """Fork a child for every file descriptor that comes, and wait for those the parent asks about."""
    while True:
        message, fds, _, _ = socket.recv_fds(server, 9, 1)
        if not message:
            return
        if message[:1] == FORK:
            pid = os.fork()
            if pid == 0:
                server.close()
                _run(fds[0], suite)
            os.close(fds[0])
            server.sendall(pid.to_bytes(8, "little"))
        elif message[:1] == LOAD:
            size = int.from_bytes(message[1:9], "little")
            _import(server.recv(size, socket.MSG_WAITALL).decode().split())
            server.sendall(bytes(8))
        else:
            _, status = os.waitpid(int.from_bytes(message[1:9], "little"), 0)
            server.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, "little", signed=True))


def _import(modules: list[str]) -> None:
    """Import what can be imported. What cannot, children do without, as they do without this."""
    for name in modules:
        with suppress(Exception):
            importlib.import_module(name)
    gc.freeze()


def _run(fd: int, suite: Any) -> NoReturn:
    """One child: take the environment and the task from the parent, do it, report an error if there is one."""
    link = Connection(fd)
    code = 1
    try:
        environment, module, name, arguments = link.recv()
        os.environ.clear()
        os.environ.update(environment)
        task = load(module, None, name)
        task(link, suite, *arguments)
        code = 0
    except BaseException:
        link.send(("failed", traceback.format_exc()))
    finally:
        os._exit(code)  # documented in spite of its name: skips the exit handlers that the fork inherited


def main() -> None:
    """Entry point of the helper: argv has the socket's descriptor, and where the suite's class is."""
    # An interrupt at the terminal reaches everyone in it; whoever started this one decides when it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    fd, described = int(sys.argv[1]), json.loads(sys.argv[2])
    suite = load(described["module"], described["file"], described["qualname"])
    # Lance warns of forks once it is imported; it starts its threads when it is used, and the helper does not use it.
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    gc.freeze()  # what children do not collect they do not copy
    serve(socket.socket(fileno=fd), suite)
