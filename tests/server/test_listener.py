"""The process around the application."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import urllib3
from certificates import certificate
from serving import serving

from ontolake.errors import Invalid
from ontolake.server.app import StoreServer
from ontolake.server.config import ServerConfig, TlsSection
from ontolake.server.handles import ServedStores
from ontolake.server.listener import Listener


def test_a_server_answers_until_its_block_ends() -> None:
    with serving({}) as served:
        answer = served.call("GET", "//healthz", token=None)
        assert (answer.status, answer.json["status"]) == (200, "ok")


def test_a_port_that_is_taken_is_refused() -> None:
    app = StoreServer(ServedStores({}), lambda token: None).app()
    with Listener(app).running() as url, pytest.raises(Invalid, match=r"cannot listen on 127\.0\.0\.1 port"):
        Listener(app, port=int(url.rpartition(":")[2]))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="nothing makes a certificate here")
def test_connections_are_encrypted_with_the_certificate_of_the_configuration(tmp_path: Path) -> None:
    pem, key = certificate(tmp_path)
    config = ServerConfig(tls=TlsSection(pem, key))
    app = StoreServer(ServedStores({}), lambda token: None).app()
    with Listener(app, tls=config.tls_context()).running() as url, urllib3.PoolManager(ca_certs=pem) as pool:
        assert url.startswith("https://127.0.0.1:")
        answer = pool.request("GET", f"{url}/healthz", retries=False)
        assert (answer.status, "strict-transport-security" in answer.headers) == (200, True)
    with pytest.raises(Invalid, match=r"tls\.certificate"):
        ServerConfig(tls=TlsSection(key, pem)).tls_context()
    with pytest.raises(Invalid, match=r"nowhere\.pem"):
        ServerConfig(tls=TlsSection("nowhere.pem", key)).tls_context()
