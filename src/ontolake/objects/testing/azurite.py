"""Azurite, a server that speaks the protocol of Azure Blob Storage: an npm package, installed when first needed.

It goes into the user's cache folder, in the version that is named here, and stays there.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import secrets
import shutil
import subprocess
import tempfile
import urllib.error
from pathlib import Path

from ontolake.errors import Invalid, Transient
from ontolake.objects.testing.buckets import create_container
from ontolake.objects.testing.servers import Server

VERSION = "3.35.0"
"""The last version that runs on node 20."""

_SWEEP = "DEFAULT_GC_INTERVAL_MS"
_MAIN = Path("node_modules", "azurite", "dist", "src", "blob", "main.js")


class AzuriteServer(Server):
    """Azurite: keeps data in memory, checks credentials, honours conditions on version tags."""

    program = "node"
    package = f"azurite@{VERSION}"

    def __init__(self) -> None:
        super().__init__()
        self.secret_key = base64.b64encode(secrets.token_bytes(32)).decode()

    def find(self) -> str:
        return str(installed())

    @property
    def endpoint(self) -> str:
        """The address of the account."""
        return f"http://127.0.0.1:{self._port('blob')}/{self.access_key}"

    def env(self) -> dict[str, str]:
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": self.access_key,
            "AZURE_STORAGE_ACCOUNT_KEY": self.secret_key,
            "AZURE_STORAGE_SAS_TOKEN": "",
            "AZURE_STORAGE_ENDPOINT": self.endpoint,
            "AZURE_ALLOW_HTTP": "true",
        }

    def url(self, prefix: str = "", *, bucket: str = "test") -> str:
        return f"az://{bucket}/{prefix}".rstrip("/")

    def create_bucket(self, name: str = "test") -> None:
        """Create a container; one that is there is left alone. Raises `Transient` if the server refuses."""
        try:
            create_container(self.endpoint, name, self.access_key, self.secret_key)
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise Transient(f"cannot create the container {name!r} on {self.endpoint}: {error}") from error

    def command(self, program: str, directory: Path) -> tuple[list[str], dict[str, str]]:
        # Every ten minutes it removes the data of blobs that were replaced, and answers no request meanwhile: for 2,000
        # of them 27 seconds were seen. The longest that its timer can wait is 24 days.
        constants = Path(program).parent / "utils" / "constants.js"
        (directory / "keep.js").write_text(f"require({json.dumps(str(constants))}).{_SWEEP} = 2 ** 31 - 1;\n")
        return [
            "node", "--require", str(directory / "keep.js"), program, "--blobHost", "127.0.0.1", "--blobPort",
            str(self._port("blob")), "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--silent",
            "--disableProductStyleUrl",
        ], {"AZURITE_ACCOUNTS": f"{self.access_key}:{self.secret_key}"}


def has_node() -> bool:
    """Whether node and npm are there."""
    return shutil.which("node") is not None and shutil.which("npm") is not None


def installed() -> Path:
    """The file that starts Azurite. Installs it with npm if it is not there yet, once for all processes.

    Raises `Invalid` if node is missing, and `Transient` if npm cannot install it.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ontolake"
    place = cache / f"azurite-{VERSION}"
    if (place / _MAIN).is_file():
        return place / _MAIN
    if not has_node():
        raise Invalid("the test server 'azurite' needs node and npm, which are not installed",
                      hint="install node 20 or newer")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "azurite.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / _MAIN).is_file():
            _install(place)
    return place / _MAIN


def _install(place: Path) -> None:
    made = Path(tempfile.mkdtemp(dir=place.parent, prefix="azurite-"))
    try:
        command = ["npm", "install", "--prefix", str(made), "--no-audit", "--no-fund", "--omit=dev", "--ignore-scripts",
                   "--fetch-retries=1", AzuriteServer.package]
        done = subprocess.run(command, cwd=made, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not (made / _MAIN).is_file():
            raise Transient(f"npm cannot install {AzuriteServer.package}: {done.stderr[-1000:]}", hint="try again")
        made.rename(place)
    finally:
        shutil.rmtree(made, ignore_errors=True)
