"""A PostgreSQL server of the test's own: a cluster in a temporary folder, reached by a socket there."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_ACCOUNTS = ("postgres", "nobody")
_SETTINGS = {"listen_addresses": "", "fsync": "off", "full_page_writes": "off", "timezone": "UTC", "datestyle": "ISO",
             "shared_buffers": "16MB", "max_connections": "5", "autovacuum": "off"}  # fmt: skip


class Unavailable(Exception):
    """Why no server can be started here."""


def programs() -> Path:
    """The folder of the newest server that is installed. Raises `Unavailable`."""
    found = [Path(path).resolve().parent for path in [shutil.which("initdb")] if path]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    for folder in found:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise Unavailable("PostgreSQL is not installed: tools/need-postgres installs Debian's package")


def account() -> dict[str, Any]:
    """Who the server runs as: PostgreSQL refuses root. Raises `Unavailable`."""
    if os.geteuid() != 0:
        return {}
    for name in _ACCOUNTS:
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    raise Unavailable(f"PostgreSQL does not run as root, and there is no account {' or '.join(_ACCOUNTS)}")


@contextmanager
def running(settings: Mapping[str, str] | None = None, *, user: str = "tester") -> Iterator[str]:
    """Start a server; gives its connection string. Raises `Unavailable`.

    `settings` replace those of tests. With a `port` among them, the server is reached by TCP on loopback.
    """
    settings = {**_SETTINGS, **(settings or {})}
    port = settings.get("port")
    if port is not None:
        settings["listen_addresses"] = "127.0.0.1"
    bin, who = programs(), account()
    with tempfile.TemporaryDirectory(prefix="ontolake-pg-") as folder:
        if who:
            os.chown(folder, who["user"], who["group"])
        data = f"{folder}/data"
        options = {**who, "cwd": folder, "env": {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}}
        made = subprocess.run([bin / "initdb", "-D", data, "-U", user, "-A", "trust", "-E", "UTF8", "--locale=C",
                               "--no-sync"], capture_output=True, text=True, check=False, **options)  # fmt: skip
        if made.returncode:
            raise Unavailable(f"PostgreSQL's initdb failed: {made.stderr.strip()[-500:]}")
        arguments = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with open(f"{folder}/log", "w") as log:
            server = subprocess.Popen([bin / "postgres", "-D", data, "-k", folder, *arguments], stdout=log,
                                      stderr=subprocess.STDOUT, **options)  # fmt: skip
        try:
            _wait(server, [bin / "pg_isready", "-q", "-h", folder, *([] if port is None else ["-p", port])], options)
            where = f"host={folder}" if port is None else f"host=127.0.0.1 port={port}"
            yield f"{where} user={user} dbname=postgres"
        finally:
            server.send_signal(signal.SIGQUIT)  # nothing is to be kept
            server.wait(60)


def _wait(server: subprocess.Popen[bytes], question: list[Any], options: dict[str, Any]) -> None:
    from waiting import wait_for

    def is_ready() -> bool:
        if server.poll() is not None:
            raise Unavailable(f"PostgreSQL ended at once: {Path(options['cwd'], 'log').read_text()[-500:]}")
        return subprocess.run(question, check=False, **options).returncode == 0

    wait_for(is_ready)
