"""pytest fixtures for the real servers. In a conftest: `pytest_plugins = ["ontolake.objects.testing.fixtures"]`.

`seaweed`, `ministack` and `azurite` run one server for the whole session; `seaweed_url`, `ministack_url` and
`azurite_url` give each test a fresh prefix, with the environment set to reach it. Where Azurite cannot be
installed, its tests are skipped, and say so.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from ontolake.errors import OntolakeError
from ontolake.objects.testing.azurite import AzuriteServer, installed
from ontolake.objects.testing.servers import MinistackServer, SeaweedServer, Server


@pytest.fixture(scope="session")
def seaweed() -> Iterator[SeaweedServer]:
    """A SeaweedFS server, with the bucket `test`."""
    with SeaweedServer() as server:
        yield server


@pytest.fixture(scope="session")
def ministack() -> Iterator[MinistackServer]:
    """A ministack server, with the bucket `test`."""
    with MinistackServer() as server:
        yield server


@pytest.fixture(scope="session")
def azurite() -> Iterator[AzuriteServer]:
    """An Azurite server, with the container `test`. Skips where node is missing or npm cannot install it."""
    try:
        installed()
    except OntolakeError as error:
        pytest.skip(str(error))
    with AzuriteServer() as server:
        yield server


@pytest.fixture
def seaweed_url(seaweed: SeaweedServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """A fresh `s3://` prefix on SeaweedFS, reachable through the environment."""
    return _fresh(seaweed, monkeypatch)


@pytest.fixture
def ministack_url(ministack: MinistackServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """A fresh `s3://` prefix on ministack, reachable through the environment."""
    return _fresh(ministack, monkeypatch)


@pytest.fixture
def azurite_url(azurite: AzuriteServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """A fresh `az://` prefix on Azurite, reachable through the environment."""
    return _fresh(azurite, monkeypatch)


def _fresh(server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in server.env().items():
        monkeypatch.setenv(name, value)
    return server.url(f"t-{secrets.token_hex(6)}")
